# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every register state that an image holds: trap frames, processors' contexts, WoW64 CPU areas.

symbolizer = Symbolizer(context, kernel_module_name, config_path)
for state in TrapFrames.list_states(context, kernel_module_name, symbolizer, scan_stacks=True): ...
"""

from __future__ import annotations

import logging
from typing import Collection, Dict, Iterator, List, Optional

from volatility3.framework import interfaces

from ..base import bulk
from ..base.spaces import KERNEL_PID
from ..names.symbolizer import Symbolizer
from ..stacks.nonvolatile import TrapUnwind
from ..threads.lister import Thread, Threads
from ..threads.processors import IST, Processors
from .contexts import TrapContexts
from .kernel import TrapKernel
from .of_thread import ThreadFrames
from .reader import TrapReader
from .state import STACK, State

vollog = logging.getLogger(__name__)


class TrapFrames(interfaces.configuration.VersionableInterface):
    """Lists the register states of an image."""

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
        members: bool = False,
    ) -> None:
        super().__init__()
        kernel = context.modules[kernel_module_name]
        self._context = context
        self._name = kernel_module_name
        self._layer_name = kernel.layer_name
        self._processors = list(Processors.list_processors(context, kernel_module_name))
        tops = frozenset(
            stack.base
            for processor in self._processors
            for stack in processor.stacks
            if stack.kind.startswith(IST)
        )
        self._kernel = TrapKernel(context, kernel_module_name, symbolizer, tops)
        self._contexts = TrapContexts(context, kernel_module_name, members)
        self._reader = TrapReader(context, kernel.layer_name, self._kernel, members)
        self._threads = ThreadFrames(context, kernel_module_name, self._reader, self._contexts)

    @classmethod
    def list_states(
        cls,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        symbolizer: Symbolizer,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
        tids: Optional[Collection[int]] = None,
        scan_stacks: bool = False,
        processors: bool = False,
        scan_threads: bool = False,
        members: bool = False,
        unwind: bool = False,
    ) -> Iterator[State]:
        """Yields the register states of threads, then those of processors.

        Args:
            context: the context that holds the image
            kernel_module_name: the name of the kernel's module in the context
            symbolizer: names for return addresses: they tell which handler a frame is of
            pids: the processes wanted, 0 for the stacks of processors; all when None or empty
            offset: an _EPROCESS that no list holds: only its threads
            tids: the threads wanted; all when None or empty
            scan_stacks: look for further frames on the kernel stacks of threads and processors
            processors: add the contexts that stopped processors saved
            scan_threads: add the threads that only a pool scan finds
            members: fill `State.members`
            unwind: add the non-volatile registers that walking the kernel stack tells (x64)
        """
        walks = TrapUnwind(context, kernel_module_name, symbolizer) if unwind else None
        finder = cls(context, kernel_module_name, symbolizer, members)
        running: Dict[int, Thread] = {}
        seen: List[int] = []
        listed = Threads.list_threads(context, kernel_module_name, pids, offset, tids, scan_threads)
        for thread in listed:
            if thread.processor is not None:
                running[thread.processor] = thread
            states = finder._threads.of_thread(thread, scan_stacks)
            for state in states if walks is None else walks.complete(thread, states):
                seen.append(state.address)
                yield state
        everything = not tids and offset is None and (not pids or KERNEL_PID in pids)
        if processors:
            yield from finder._of_processors(running, everything)
        if scan_stacks and everything:
            yield from finder._on_processor_stacks(seen)
        if finder._threads.unread:
            vollog.warning(
                f"{finder._threads.unread:#x} bytes of the kernel stacks are not in the image: "
                "frames on them were not found"
            )

    def _of_processors(self, running: Dict[int, Thread], everything: bool) -> Iterator[State]:
        found = False
        for processor in self._processors:
            thread = running.get(processor.number)
            if thread is None and not everything:
                continue
            space, tid = (thread.space, thread.tid) if thread is not None else (self._kernel.space, None)
            state = self._contexts.processor(processor, space, tid)
            if state is not None:
                found = True
                yield state
        if not found:
            vollog.warning(
                "No processor has saved a context: only a crash or a kernel debugger makes them do so"
            )

    def _on_processor_stacks(self, seen: Collection[int]) -> Iterator[State]:
        """Yields the frames on the DPC, ISR and IST stacks that no thread's stack had."""
        taken = list(seen)
        for processor in self._processors:
            for stack in processor.stacks:
                size = stack.base - stack.limit
                held = bulk.read_extents(self._context, self._layer_name, stack.limit, size)
                # How large it is nothing says: it ends at the first page that is not there.
                run = held.run_at(stack.base - 1)
                for address in self._reader.scan(held, run[0] if run else stack.base, stack.base, taken):
                    reading = self._reader.read(address, held)
                    where = f"CPU {processor.number} {stack.kind}"
                    yield self._reader.state(self._kernel.space, None, STACK, address, reading, where)
