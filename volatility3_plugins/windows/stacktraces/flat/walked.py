# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks of threads: kinds `kernel`, `user` and `wow64`."""

from __future__ import annotations

from typing import Iterator

from ..base.decode.status import Word, status
from ..names.symbolizer import Symbolizer
from ..stacks.lister import CallStack, StackLister
from ..threads.lister import Thread, Threads
from ..tracedb.decode.capture import back_trace_hash
from .frames import FlatFrames
from .stack import Distinct, FlatStack, FlatWanted


class ThreadStacks:
    """Walks the stacks of threads.

    Args:
        symbolizer: knows the modules of every address space
        frames: looks up their frames
    """

    def __init__(self, symbolizer: Symbolizer, frames: FlatFrames) -> None:
        self._image = symbolizer.image
        self._frames = frames
        self._lister = StackLister(self._image, symbolizer)
        self._distinct = Distinct()

    def list_threads(self, wanted: FlatWanted) -> Iterator[Thread]:
        """Yields the threads that are wanted, process by process, and what stands for damaged lists."""
        return Threads.list_threads(self._image, wanted.pids, None, wanted.tids, wanted.scan_threads)

    def of_thread(self, thread: Thread) -> Iterator[FlatStack]:
        """Yields the stacks of a thread."""
        # What only a scan of physical memory found has no address, and may be there twice.
        distinct = Distinct() if thread.ethread else self._distinct
        for stack in self._lister.of_thread(thread):
            yield self._flat(stack, distinct)

    def _flat(self, stack: CallStack, distinct: Distinct) -> FlatStack:
        thread, kind = stack.thread, stack.part.split()[0]
        addresses = stack.return_addresses
        looked_up = self._frames.of(stack.space)
        frames = [looked_up.frame(frame.address, frame.returns) for frame in stack.frames]
        first = len(stack.frames) - len(addresses)
        unsure = any(not frame.sure for frame in stack.frames)
        hash_unsure = any(not frame.sure for frame in stack.frames[first:])
        place = stack.frames[0].sp if stack.frames else 0
        known = () if thread.ethread else (thread.tid or 0, thread.kernel_stack or 0)
        return FlatStack(
            kind,
            distinct.key(kind, stack.space, thread.ethread, stack.part.partition(" ")[2], place, *known),
            stack.space,
            thread.ethread or None,
            None,
            frames,
            status(
                stack.status,
                Word.HASH_UNSURE if hash_unsure else None,
                Word.UNSURE if unsure else None,
            ),
            stack.frames,
            thread,
            thread.tid,
            None,
            1,
            None,
            len(addresses),
            back_trace_hash(addresses) if addresses else None,
        )
