# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists every stack of an image, walked or recorded by Windows.

    symbolizer = Symbolizer(image)
    for stack in StackCollector(symbolizer).list_stacks(StackFilter(kinds=("std", "lock"))): ...

The stacks are listed by kind, and within a kind by process. None is stored.

Of the things in the flat tables only processes and threads have a time, their start: `started` yields them. A
thread has a line for each of its stacks, because the TraceId in the line is the key of `windows.traces`.
"""

from __future__ import annotations

import functools
import itertools
from operator import attrgetter
from typing import (
    Any,
    Callable,
    Collection,
    Iterable,
    Iterator,
    List,
    Optional,
    Sequence,
    Tuple,
)

from ..columns.words import (
    CALLBACK,
    HANDLE,
    HEAP,
    HEAPLOG,
    KERNEL,
    LOCK,
    OBJECT,
    STD,
    THREAD_KINDS,
    USER,
    WOW64,
)
from ..memory.decode.machine import Machine
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import KERNEL_PID, AddressSpace
from ..names.symbolizer import Symbolizer
from ..process.processlist import SYSTEM_PID, create_time
from ..process.spaces import AddressSpaces
from ..process.thread import Thread
from ..process.threads import Threads, processes, threads
from ..stacks.lister import CallStack, StackLister
from ..tracedb.decode.capture import back_trace_hash
from .frames import NamedFrames
from .imagefacts import Totals
from .shown import left_out
from .stack import Distinct, StackFilter, StackRecord

EVERYTHING = StackFilter()

ThreadWatch = Callable[[Thread, Sequence[Tuple[CallStack, str]]], None]
"""Takes a thread and its stacks, each with its TraceId; of threads in the order of their processes."""


def unwatched(thread: Thread, stacks: Sequence[Tuple[CallStack, str]]) -> None:
    """Does nothing with a thread: the `ThreadWatch` of a caller that needs none."""


class Portion(NamedTuple):
    """The stacks of some kinds of one address space, or of all where they cannot be divided.

    Portions can be read in any order, and by several processes.

    Attributes:
        list_stacks: yields the stacks, and counts threads and databases
        whose: whose stacks they are if they are not of one address space; else empty
    """

    kinds: Tuple[str, ...]
    space: AddressSpace
    list_stacks: Callable[[Totals], Iterator[StackRecord]]
    whose: str = ""

    @property
    def text(self) -> str:
        """The portion in words, as the progress shows it."""
        return f"of kind {self.kinds[0]} {self.whose or f'of process {self.space.pid_text}'}"


_LEFT_OVER = "trap"
"""Part of the TraceId of a stack that begins at a trap frame found only by a scan."""


class StackCollector:
    """Lists the stacks of an image.

    Args:
        frames: its named frames, if there are any already
        watch: called for each thread, after its stacks were yielded
    """

    def __init__(
        self,
        symbolizer: Symbolizer,
        frames: Optional[NamedFrames] = None,
        watch: ThreadWatch = unwatched,
    ) -> None:
        self._watch = watch
        self._symbolizer = symbolizer
        self._image = symbolizer.image
        self._frames = NamedFrames(symbolizer) if frames is None else frames

    def list_stacks(
        self, stack_filter: StackFilter = EVERYTHING, totals: Optional[Totals] = None
    ) -> Iterator[StackRecord]:
        """Yields the requested stacks, and a row for those that cannot be read."""
        totals = totals or Totals()
        for portion in self.portions(stack_filter, totals):
            yield from self.stacks_of(portion, stack_filter, totals)

    def stacks_of(self, portion: Portion, stack_filter: StackFilter, totals: Totals) -> Iterator[StackRecord]:
        """Yields the requested stacks of a portion, and a row for those that cannot be read."""
        for stack in self._image.possible(portion.list_stacks(totals)):
            if stack_filter.takes(stack):
                self._count(stack, totals)
                yield stack

    @staticmethod
    def lost(portion: Portion, stack_filter: StackFilter, totals: Totals) -> Iterator[StackRecord]:
        """Yields the rows of a portion that was not read to its end."""
        for kind in portion.kinds:
            if stack_filter.has(kind):
                stack = Distinct().lost(kind, portion.space, status(StatusCode.WORKER_ENDED))
                StackCollector._count(stack, totals)
                yield stack

    @staticmethod
    def _count(stack: StackRecord, totals: Totals) -> None:
        """Counts a stack, or the missing stacks for which its row stands; keeps the first of a crash."""
        if totals.crash is None and stack.crashed and stack.frames:
            totals.crash = stack
        lost = stack.is_lost
        if lost or stack.frames:
            totals.count_kind(stack.kind, not lost, stack.missing if lost else 0)
        if stack.status:
            process = stack.space.eprocess, stack.space.arch
            own_status = [
                item for item in stack.status if item not in stack.space.remark + stack.space.status
            ]
            totals.lacks((stack.kind, process, stack.owner or stack.trace_id), status(*own_status))
            totals.lacks(process, status(stack.space.remark, stack.space.status))

    def portions(self, stack_filter: StackFilter, totals: Totals) -> Iterator[Portion]:
        """Yields the portions of the requested stacks. A missing symbol costs only the kinds that need it."""
        if stack_filter.has(*THREAD_KINDS):
            totals.walked_threads = True
            yield from self._image.possible(self._portions_of_threads(stack_filter))
        if self._image.threads_only:
            return
        # Traces of databases, heaps and objects do not record the thread that left them; a callback has none.
        recorded: List[Tuple[Tuple[str, ...], Callable[[AddressSpace, Totals], Iterator[StackRecord]]]] = []
        if stack_filter.tids is None and stack_filter.has(STD, HEAPLOG):
            totals.walked_databases = True
            kinds = tuple(kind for kind in (STD, HEAPLOG) if stack_filter.has(kind))
            databases = functools.partial(self._recorded.of_databases, kinds, stack_filter.carve)
            recorded.append(((STD, HEAPLOG), databases))
        if stack_filter.tids is None and stack_filter.has(HEAP):
            recorded.append(((HEAP,), self._recorded.of_heaps))
        if stack_filter.has(LOCK):
            recorded.append(((LOCK,), self._recorded.of_locks))
        if stack_filter.tids is None and stack_filter.has(CALLBACK) and self._image.table_name:
            recorded.append(((CALLBACK,), self._callbacks.of_space))
        spaces = list(AddressSpaces.list_spaces(self._image, stack_filter.pids)) if recorded else []
        for kinds, of_space in recorded:
            for space in spaces:
                yield Portion(kinds, space, functools.partial(of_space, space))
        if stack_filter.has(HANDLE):
            handles = functools.partial(self._recorded.of_handles, stack_filter.pids)
            yield Portion((HANDLE,), self._image.kernel, handles, "of all processes")
        traced = bool(self._image.table_name) and stack_filter.tids is None and stack_filter.has(OBJECT)
        if traced and (stack_filter.pids is None or KERNEL_PID in stack_filter.pids):
            yield Portion((OBJECT,), self._image.kernel, self._recorded.of_objects)

    def _portions_of_threads(self, stack_filter: StackFilter) -> Iterator[Portion]:
        threads = ThreadStacks(self._symbolizer, self._frames, self._lister, self._watch)
        listed = threads.list_threads(stack_filter)
        if stack_filter.scan_threads:
            # The threads of a process are not adjacent.
            of_all = functools.partial(self._of_threads, stack_filter, threads, listed)
            yield Portion(THREAD_KINDS, self._image.kernel, of_all, "of all processes")
            return
        for space, members in itertools.groupby(listed, attrgetter("space")):
            of_process = functools.partial(self._of_threads, stack_filter, threads, list(members))
            yield Portion(THREAD_KINDS, space, of_process)

    def _of_threads(
        self, stack_filter: StackFilter, threads: ThreadStacks, listed: Iterable[Thread], totals: Totals
    ) -> Iterator[StackRecord]:
        distinct = Distinct()
        unread: Optional[AddressSpace] = None
        for thread in listed:
            if thread.space != unread and thread.wow64 is None and self._image.machine is Machine.AMD64:
                unread = thread.space
                if has_status(unread.remark, StatusCode.PROCESS_UNREADABLE):
                    # Whether the process has a 32-bit half is unknown, too.
                    yield distinct.lost(WOW64, unread, unread.remark)
            totals.threads += thread.ethread != 0 or thread.tid is not None
            totals.newest.add_thread(thread)
            yield from self._counted(
                threads.thread_stacks(thread, stack_filter.scan_stacks), stack_filter, totals
            )

    @staticmethod
    def _counted(
        stacks: Iterator[StackRecord], stack_filter: StackFilter, totals: Totals
    ) -> Iterator[StackRecord]:
        for stack in stacks:
            if stack_filter.takes(stack) and stack.counted is not None:
                totals.stack(stack.incomplete)
            yield stack

    # Cached: a caller that lists a large image in parts asks many times.
    @functools.cached_property
    def _lister(self) -> StackLister:
        return StackLister(self._image, self._symbolizer)

    @functools.cached_property
    def _callbacks(self) -> Any:
        # Dumps have no callbacks: they do without these modules.
        from .callbacks import CallbackStacks

        return CallbackStacks(self._image, self._frames)

    @functools.cached_property
    def _recorded(self) -> Any:
        # Small kernel dumps have no recorded stacks: they do without the modules of all of their owners.
        from .recorded import RecordedStacks

        return RecordedStacks(self._symbolizer, self._frames)


class ThreadStacks:
    """Walks the stacks of threads."""

    def __init__(
        self,
        symbolizer: Symbolizer,
        frames: NamedFrames,
        lister: StackLister,
        watch: ThreadWatch = unwatched,
    ) -> None:
        self._watch = watch
        self._image = symbolizer.image
        self._frames = frames
        self._lister = lister
        self._distinct = Distinct()

    def list_threads(self, stack_filter: StackFilter) -> Iterator[Thread]:
        """Yields the requested threads by process, and a row for each damaged list."""
        yield from Threads.list_threads(
            self._image, stack_filter.pids, None, stack_filter.tids, stack_filter.scan_threads
        )
        if (
            stack_filter.processors
            and stack_filter.tids is None
            and (stack_filter.pids is None or KERNEL_PID in stack_filter.pids)
        ):
            yield from self._image.service(threads).list_idle()

    def thread_stacks(self, thread: Thread, scan: bool = False) -> Iterator[StackRecord]:
        """Yields the stacks of a thread. `scan` says whether to add the stacks from trap frames found only by
        a scan of the kernel stacks."""
        walked: List[Tuple[CallStack, str]] = []
        if thread.unusable and not thread.ethread:
            yield from self._gaps(thread, *((KERNEL,) if self._image.kernel_stacks else ()))
            self._watch(thread, walked)
            return
        # A thread found only by a scan of physical memory has no address, and may be found twice.
        distinct = Distinct() if thread.ethread else self._distinct
        for stack in self._lister.thread_stacks(thread):
            place = stack.frames[0].sp if stack.frames else 0
            record = self._flat(stack, distinct, stack.part.partition(" ")[2], place)
            walked.append((stack, record.trace_id))
            yield record
        self._watch(thread, walked)
        if thread.unusable:
            yield from self._gaps(thread)
        for trap_frame, stack in self._lister.list_searched(thread) if scan else ():
            record = self._flat(stack, distinct, _LEFT_OVER, trap_frame)
            yield record._replace(status=status(record.status, StatusCode.STALE))

    def _gaps(self, thread: Thread, *kinds: str) -> Iterator[StackRecord]:
        """Yields rows for the stacks of a thread, or of several threads, that cannot be read. `kinds` are
        kinds of stacks to report in addition to user-mode stacks."""
        space = thread.space
        halves = [(USER, space)] if space.pid != SYSTEM_PID else []
        if space.kernel and self._image.machine is Machine.AMD64:
            # The row stands for the process list: which kinds of stacks its processes had is unknown.
            halves.append((WOW64, space))
        halves += [(WOW64, thread.wow64)] if thread.wow64 is not None else []
        for kind, half in (*((kind, space) for kind in kinds), *halves):
            row = self._distinct.lost(kind, half, thread.status, thread.ethread)
            yield row._replace(thread=thread if thread.ethread else None, tid=thread.tid)

    def _flat(self, stack: CallStack, distinct: Distinct, piece: str, place: int) -> StackRecord:
        """Converts a walked stack.

        Args:
            piece: part of the thread's stack, as in the TraceId
            place: start of the stack: stack pointer of the innermost frame, or address of the trap frame
        """
        thread, kind = stack.thread, stack.part.split()[0]
        addresses = stack.return_addresses
        frames = self._frames.for_space(stack.space).name_walked(stack.frames)
        first = len(stack.frames) - len(addresses)
        unsure = any(not frame.sure for frame in stack.frames)
        hash_unsure = any(not frame.sure for frame in stack.frames[first:])
        numbers = () if thread.ethread else (thread.tid or 0, thread.kernel_stack or 0)
        return StackRecord(
            kind,
            distinct.key(kind, stack.space, thread.ethread, piece, place, *numbers),
            stack.space,
            owner=thread.ethread or None,
            owner_name=None,
            frames=frames,
            status=status(
                stack.status,
                left_out(len(frames)),
                StatusCode.HASH_UNSURE if hash_unsure else None,
                StatusCode.UNSURE if unsure else None,
            ),
            walked=stack.frames,
            thread=thread,
            tid=thread.tid,
            counted=1,
            depth=len(addresses),
            hash=back_trace_hash(addresses) if addresses else None,
            entry=stack.entry,
        )


class Started(NamedTuple):
    """The start of a process or thread, for one of the thread's stacks.

    Attributes:
        description: text that names the process or thread with its keys; no two are equal
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
    """Yields the starts of processes and threads, a thread once for each of its stacks.

    Args:
        pids: PIDs to list; None for all
        offset: address of an _EPROCESS that no list holds: only this process and its threads are listed
        tids: TIDs to list, without any process; None for all
    """
    image = symbolizer.image
    for process in processes(image, pids, offset) if tids is None else ():
        space = process.space
        address = image.machine.masked(space.eprocess)
        description = f"Process started: PID {space.pid} {space.process}, _EPROCESS {address:#x}"
        yield Started(description, create_time(image, space.eprocess))
    stacks = ThreadStacks(symbolizer, NamedFrames(symbolizer), StackLister(image, symbolizer))
    for thread in Threads.list_threads(image, pids, offset, tids):
        if thread.unusable:
            continue
        description = f"Thread started: {_thread(symbolizer, thread)}"
        for stack in stacks.thread_stacks(thread):
            yield Started(f"{description}, TraceId {stack.trace_id}", thread.create_time)


def _thread(symbolizer: Symbolizer, thread: Thread) -> str:
    """Returns the description of a thread: its process, TID and start address."""
    space, start = thread.space, thread.win32_start_address or thread.start_address
    tid = "unreadable" if thread.tid is None else str(thread.tid)
    words = f"PID {space.pid} {space.process}, TID {tid}"
    if start is None:
        return words
    return f"{words}, at {symbolizer.for_space(space).name(start, return_address=False).symbol}"
