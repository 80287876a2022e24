# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The register states of an image: trap frames, processors' contexts, WoW64 CPU areas.

symbolizer = Symbolizer(image)
for state in TrapStates.list_states(image, symbolizer, scan_stacks=True): ...
"""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import Callable, Collection, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from ..columns.words import STACK, THREAD, TOP, USER
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import NOTHING, Status, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import KERNEL_PID, Image
from ..names.symbolizer import Symbolizer
from ..process import processors
from ..process.kernelstacks import KernelStacks, KernelStackSegment
from ..process.processlist import is_isolated
from ..process.processors import Processor
from ..process.thread import Thread
from ..process.threads import Threads, threads
from ..process.userstacks import UserStacks
from .decode.frame import EntryFacts
from .reader import TrapKernel, TrapReader, TrapReading
from .state import TrapContexts, TrapState

vollog = logging.getLogger(__name__)

MAX_CHAIN = 64

_TOLD = (StatusCode.UNREADABLE, StatusCode.TERMINATED)
"""Status words of threads that need no user-mode registers, or whose registers cannot be read."""

Complete = Callable[[Thread, Iterable[TrapState]], Iterator[TrapState]]
"""Takes a thread and its register states, and yields the states with more registers."""


class ThreadFrames:
    """Lists a thread's states: from its pointers, from the fixed places of its stack, from a scan.

    Args:
        image: the image
        reader: reads the frames
        contexts: reads WoW64 CPU areas

    Attributes:
        unread: number of bytes of scanned stacks that are not in the image
    """

    def __init__(self, image: Image, reader: TrapReader, contexts: TrapContexts) -> None:
        self._image = image
        self._reader = reader
        self._contexts = contexts
        self.unread = 0
        self._stacks = KernelStacks(image, reader.kernel.bounds.kernel_start)

    def stacks(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns (limit, base) of the segments of a thread's kernel stack."""
        return [(segment.limit, segment.base) for segment in self._stacks.segments(thread)]

    def of_thread(self, thread: Thread, scan: bool = False) -> Iterator[TrapState]:
        """Yields the register states of one thread, in the order: chain, top, stack, wow64."""
        if thread.unusable:
            yield self._state(thread, THREAD, 0, TrapReading(None, True), thread.status)
            return
        segments = list(self._stacks.segments(thread))
        frames: List[int] = []
        user_cs: Optional[int] = None
        pointed = (*self._chain(thread, segments, frames), *self._tops(thread, segments, frames))
        for state in pointed:
            if user_cs is None and state.mode == USER:
                user_cs = state.registers.get("SegCs")
            yield state
        if self._lacks_user_mode(thread, pointed):
            yield self._state(thread, TOP, 0, TrapReading(None, True), status(StatusCode.NO_SAVED_REGISTERS))
        if scan:
            lowest: Dict[int, KernelStackSegment] = {}
            for segment in segments:
                # If several segments share memory, the newest one reaches lowest.
                lowest.setdefault(segment.base, segment)
            for segment in lowest.values():
                yield from self._scan(thread, segment, frames)
        context = self._contexts.wow64(thread, user_cs)
        if context is not None:
            yield context

    def _lacks_user_mode(self, thread: Thread, found: Collection[TrapState]) -> bool:
        """Returns whether a thread came from user mode, as each thread with a TEB did, without a state that
        shows it.

        A thread that has ended has no stack any more, and a thread in VTL 1 has no registers in an image.
        """
        if not thread.teb or has_status(thread.status, *_TOLD):
            return False
        if any(state.mode == USER or has_status(state.status, *_TOLD) for state in found):
            return False
        return not is_isolated(self._image, thread.space.eprocess)

    def _chain(
        self, thread: Thread, segments: List[KernelStackSegment], frames: List[int]
    ) -> Iterator[TrapState]:
        """Yields KTHREAD.TrapFrame and the frames before it; each older frame lies above the newer one."""
        address = thread.trap_frame or 0
        while address and len(frames) < MAX_CHAIN:
            segment = _segment_of(segments, address, self._reader.kernel.layout.size)
            if segments and segment is None:
                outside = status(StatusCode.OUTSIDE_THE_STACK)
                yield self._state(thread, THREAD, address, TrapReading(None, True), outside)
                return
            memory = self._reader.window(address)
            facts = _told(thread, chained=True, newest=not frames)
            reading = self._reader.read(address, memory, False, facts, thread.space)
            yield self._thread_state(thread, THREAD, address, reading, segment)
            frames.append(address)
            address = reading.previous
            if address in frames:
                return

    def _tops(
        self, thread: Thread, segments: List[KernelStackSegment], frames: List[int]
    ) -> Iterator[TrapState]:
        """Yields the frames that entries from user mode left at the top of each segment."""
        facts = _told(thread)
        for segment in segments:
            places = [segment.initial - distance for distance in self._reader.kernel.tops]
            readings = [
                (address, self._reader.read(address, self._reader.window(address), True, facts, thread.space))
                for address in places
                if address >= segment.limit and address not in frames
            ]
            for address, reading in readings:
                if reading.frame is not None and reading.frame.mode == USER:
                    frames.append(address)
                    yield self._thread_state(thread, TOP, address, reading, segment)
            if (
                thread.teb
                and len(readings) == len(places)
                and not any(attempt.readable for _, attempt in readings)
            ):
                yield self._thread_state(thread, TOP, *readings[0], segment)

    def _scan(self, thread: Thread, segment: KernelStackSegment, frames: List[int]) -> Iterator[TrapState]:
        memory = self._reader.stack(segment.limit, segment.base)
        self.unread += memory.missing(segment.limit, segment.base)
        facts = _told(thread)
        for address in self._reader.scan(memory, segment.limit, segment.base, frames):
            reading = self._reader.read(address, memory, True, facts, thread.space)
            yield self._thread_state(thread, STACK, address, reading, segment)

    def _thread_state(
        self,
        thread: Thread,
        origin: str,
        address: int,
        reading: TrapReading,
        segment: Optional[KernelStackSegment],
    ) -> TrapState:
        broken = None
        if reading.frame is None:
            broken = StatusCode.NOT_A_TRAP_FRAME if reading.readable else StatusCode.UNREADABLE
        dead = segment is not None and not thread.running and address < segment.kernel_stack
        limits = StatusCode.STACK_LIMITS_UNUSABLE if segment is None else None
        statuses = status(StatusCode.STALE if dead else None, limits, broken)
        return self._state(thread, origin, address, reading, statuses)

    def _state(
        self, thread: Thread, origin: str, address: int, reading: TrapReading, statuses: Status = NOTHING
    ) -> TrapState:
        statuses = status(thread.status, StatusCode.RUNNING if thread.running else None, statuses)
        name = thread.state_name
        return self._reader.state(thread.space, thread.tid, origin, address, reading, name, statuses)


class TrapStates:
    """Lists the register states of an image.

    Args:
        image: the image
        symbolizer: names of return addresses: they identify the handler of a frame
        members: whether to fill `TrapState.members`
    """

    def __init__(self, image: Image, symbolizer: Symbolizer, members: bool = False) -> None:
        super().__init__()
        self._processors = image.service(processors.processors_of)
        self._user_stacks = image.service(UserStacks)
        self._image = image
        self._kernel_space = image.kernel
        self._contexts = TrapContexts(image, members)
        self._make_reader = partial(_reader, image, symbolizer, members)

    # Created for the first thread of an input that has kernel stacks: only then are its structures known.
    @cached_property
    def _reader(self) -> TrapReader:
        return self._make_reader()

    @cached_property
    def _threads(self) -> ThreadFrames:
        return ThreadFrames(self._image, self._reader, self._contexts)

    @classmethod
    def list_states(
        cls,
        image: Image,
        symbolizer: Symbolizer,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
        tids: Optional[Collection[int]] = None,
        scan_stacks: bool = False,
        processors: bool = False,
        scan_threads: bool = False,
        members: bool = False,
        complete: Optional[Complete] = None,
    ) -> Iterator[TrapState]:
        """Yields the register states of threads, then of processors.

        If the input itself has a thread's registers, they come first.

        Args:
            image: the image
            symbolizer: names of return addresses: they identify the handler of a frame
            pids: process ids, 0 for the stacks of processors; all processes if None or empty
            offset: offset of an _EPROCESS that no list holds: only the threads of that process
            tids: thread ids; all threads if None or empty
            scan_stacks: whether to scan the kernel stacks of threads and processors for further frames
            processors: whether to add the contexts that stopped processors saved
            scan_threads: whether to add the threads that only a pool scan finds
            members: whether to fill `TrapState.members`
            complete: adds the registers that walking the kernel stack recovers to a thread's states
        """
        finder = cls(image, symbolizer, members)
        running: Dict[int, Thread] = {}
        frames: List[int] = []
        for thread in Threads.list_threads(image, pids, offset, tids, scan_threads):
            if thread.processor is not None:
                running[thread.processor] = thread
            yield from finder._saved(thread)
            if thread.of_user_mode:
                continue
            states = finder._threads.of_thread(thread, scan_stacks)
            for state in states if complete is None else complete(thread, states):
                frames.append(state.address)
                yield state
        everything = not tids and offset is None and (not pids or KERNEL_PID in pids)
        if processors:
            yield from finder._of_processors(running, everything)
        if scan_stacks and everything:
            yield from finder._on_processor_stacks(frames)
        if "_threads" in vars(finder) and finder._threads.unread:
            vollog.warning(
                f"{finder._threads.unread:#x} bytes of the kernel stacks are not in the image: "
                "frames on them were not found"
            )

    def _saved(self, thread: Thread) -> Iterator[TrapState]:
        """Yields the registers of a thread that the input itself contains."""
        for context in thread.contexts:
            native = context.machine is thread.space.machine
            space = thread.space if native else thread.wow64
            if space is not None:
                yield self._contexts.saved(thread, space, context)

    def _of_processors(self, running: Dict[int, Thread], everything: bool) -> Iterator[TrapState]:
        any_context = False
        idle = {thread.processor: thread for thread in self._image.service(threads).list_idle()}
        for processor in self._processors:
            thread = running.get(processor.number)
            if thread is None and not everything:
                continue
            space, tid = (thread.space, thread.tid) if thread is not None else (self._kernel_space, None)
            state = self._contexts.processor(processor, space, tid)
            if state is not None:
                any_context = True
                current = thread or idle.get(processor.number)
                yield self._contexts.judged(state, self._stacks_for(state, processor, current))
        if not any_context:
            vollog.warning(
                "No processor has saved a context: only a crash or a kernel debugger makes them do so"
            )

    def _stacks_for(
        self, state: TrapState, processor: Processor, thread: Optional[Thread]
    ) -> Optional[List[Tuple[int, int]]]:
        """Returns (limit, base) of the stacks that a processor may be on; None if unknown.

        Args:
            state: context that the processor saved
            processor: the processor
            thread: thread that the processor runs, None if unknown
        """
        if thread is None:
            return None
        if state.mode == USER:
            return self._user_stacks.all_limits(thread) or None
        return [(stack.limit, stack.base) for stack in processor.stacks] + self._threads.stacks(thread)

    def _on_processor_stacks(self, thread_frames: Collection[int]) -> Iterator[TrapState]:
        """Yields the frames on the DPC, ISR and IST stacks that no thread's stack contained."""
        frames = list(thread_frames)
        tops: Set[int] = set()
        for processor in self._processors:
            for stack in processor.stacks:
                top = self._reader.physical(stack.base - 1) // PAGE_SIZE
                if top in tops:
                    vollog.warning(f"CPU {processor.number} claims another stack as its {stack.kind} stack")
                    continue
                tops.add(top)
                memory = self._reader.stack(stack.limit, stack.base)
                # The size of the stack is unknown: it ends at the first page that is not present.
                run = memory.run_at(stack.base - 1)
                for address in self._reader.scan(memory, run[0] if run else stack.base, stack.base, frames):
                    reading = self._reader.read(address, memory)
                    where = f"CPU {processor.number} {stack.kind}"
                    state = self._reader.state(self._kernel_space, None, STACK, address, reading, "")
                    yield state._replace(processor=where)


def _reader(image: Image, symbolizer: Symbolizer, members: bool) -> TrapReader:
    return TrapReader(TrapKernel(image, symbolizer), members)


def _told(thread: Thread, chained: bool = False, newest: bool = False) -> EntryFacts:
    """Returns the facts that a thread supplies about one of its frames.

    Args:
        thread: the thread
        chained: whether KTHREAD.TrapFrame or a frame before it names the frame
        newest: whether KTHREAD.TrapFrame itself names it: then the thread's system call number and first
            argument belong to the frame
    """
    number, argument = thread.system_call_number, thread.first_argument
    system_call = (number, argument) if newest and number is not None and argument is not None else None
    return EntryFacts(debug_active=thread.debug_active, chained=chained, system_call=system_call)


def _segment_of(segments: List[KernelStackSegment], address: int, size: int) -> Optional[KernelStackSegment]:
    """Returns the segment that holds the whole of a frame."""
    return next((segment for segment in segments if segment.limit <= address <= segment.base - size), None)
