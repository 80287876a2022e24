# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What of the flat tables has a time: when processes and threads were started.

A thread has a line for each of its stacks, because the TraceId in it is the key of `windows.traces`. Traces
that databases, heaps, locks, handles and objects keep have no times.
"""

from __future__ import annotations

from typing import Collection, Iterator, Optional

from ..base import bulk
from ..base.decode.record import Record
from ..base.processlist import create_time
from ..names.symbolizer import Symbolizer
from ..threads.lister import Thread, Threads, processes
from .frames import FlatFrames
from .traces import ThreadStacks


class Started(Record):
    """A process or a stack of a thread.

    Attributes:
        description: what was started, with its keys; no two are equal
        time: a FILETIME, None if it cannot be read
    """

    description: str
    time: Optional[int]


def started(
    symbolizer: Symbolizer,
    pids: Optional[Collection[int]] = None,
    offset: Optional[int] = None,
    tids: Optional[Collection[int]] = None,
) -> Iterator[Started]:
    """Yields processes, and the stacks of their threads.

    Args:
        symbolizer: names the addresses at which threads were started
        pids: the processes wanted; all when None or empty
        offset: an _EPROCESS that no list holds: only it and its threads
        tids: the threads wanted, without any process; all when None or empty
    """
    image = symbolizer.image
    for process in () if tids else processes(image, pids, offset):
        space = process.space
        address = bulk.masked(image.layer, space.eprocess)
        said = f"Process started: PID {space.pid} {space.process}, _EPROCESS {address:#x}"
        yield Started(said, create_time(image, space.eprocess))
    stacks = ThreadStacks(symbolizer, FlatFrames(symbolizer))
    for thread in Threads.list_threads(image, pids, offset, tids):
        if thread.unusable:
            continue
        said = f"Thread started: {_thread(symbolizer, thread)}"
        for stack in stacks.of_thread(thread):
            yield Started(f"{said}, TraceId {stack.trace_id}", thread.create_time)


def _thread(symbolizer: Symbolizer, thread: Thread) -> str:
    """Returns what a thread is, in words."""
    space, start = thread.space, thread.win32_start_address or thread.start_address
    known = "unreadable" if thread.tid is None else str(thread.tid)
    words = f"PID {space.pid} {space.process}, TID {known}"
    if start is None:
        return words
    return f"{words}, at {symbolizer.names(space).name(start, return_address=False).symbol}"
