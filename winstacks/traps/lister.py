# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the register states of an image: trap frames, processors' contexts, WoW64 CPU areas.

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
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.image import KERNEL_PID, Image
from ..names.symbolizer import Symbolizer
from ..process import processors
from ..process.kernelstacks import KernelStacks, KernelStackSegment
from ..process.processlist import is_isolated
from ..process.processors import Processor
from ..process.thread import Thread
from ..process.threads import Threads, threads
from ..process.userstacks import UserStacks
from .decode.frame import NO_FRAME, EntryFacts
from .reader import WITHOUT_FRAME, TrapKernel, TrapReader, TrapReading
from .state import TrapContexts, TrapState, state_without_registers

vollog = logging.getLogger(__name__)

MAX_CHAIN = 64
"""The most frames of a thread that are followed from KTHREAD.TrapFrame to older ones."""
_EXPLAINS_NO_REGISTERS = words_that(Means.NO_REGISTERS)
"""Status words that already explain why a thread has no user-mode registers."""

Complete = Callable[[Thread, Iterable[TrapState]], Iterator[TrapState]]
"""Takes a thread and its register states; yields the same states, completed by more registers."""


class ThreadFrames:
    """Lists the register states of a thread: frames to which it points, frames at fixed places at the top of
    its kernel stack, frames that a scan of the stack finds, and the WoW64 CPU area. `unread` is the number of
    bytes of scanned stacks that are not in the image."""

    def __init__(self, image: Image, reader: TrapReader, contexts: TrapContexts) -> None:
        self._image = image
        self._reader = reader
        self._contexts = contexts
        self.unread = 0
        self._stacks = KernelStacks(image, reader.kernel.bounds.kernel_start)

    def stacks(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns (limit, base), canonical addresses, of the segments of a thread's kernel stack."""
        return [(segment.limit, segment.base) for segment in self._stacks.segments(thread)]

    def thread_states(self, thread: Thread, scan: bool = False) -> Iterator[TrapState]:
        """Yields the register states of one thread: the chain of frames from KTHREAD.TrapFrame, frames at the
        top of the stack, scanned frames, the WoW64 context."""
        if thread.unusable:
            yield state_without_registers(thread)
            return
        segments = list(self._stacks.segments(thread))
        frames: List[int] = []
        user_cs: Optional[int] = None
        pointed = (
            *self._chained_frames(thread, segments, frames),
            *self._top_frames(thread, segments, frames),
        )
        for state in pointed:
            if user_cs is None and state.mode == USER:
                user_cs = state.registers.get("SegCs")
            yield state
        if self._lacks_user_mode(thread, pointed):
            yield self._state(thread, TOP, 0, WITHOUT_FRAME, status(StatusCode.NO_SAVED_REGISTERS))
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
        """Returns whether none of a thread's states has its user-mode registers, and nothing explains why.

        Each thread with a TEB came from user mode. Of such threads, a thread that has ended has no stack any
        more, and a thread in VTL 1 has no registers in an image.
        """
        if not thread.teb or has_status(thread.status, *_EXPLAINS_NO_REGISTERS):
            return False
        if any(state.mode == USER or has_status(state.status, *_EXPLAINS_NO_REGISTERS) for state in found):
            return False
        return not is_isolated(self._image, thread.space.eprocess)

    def _chained_frames(
        self, thread: Thread, segments: List[KernelStackSegment], frames: List[int]
    ) -> Iterator[TrapState]:
        """Yields the frame at KTHREAD.TrapFrame, then the older frames to which each frame points.

        A chain that leads back, or has more than MAX_CHAIN frames, ends with a state that has no registers.
        `segments` are segments of its kernel stack; empty if unknown.
        """
        address = thread.trap_frame or 0
        while address:
            if address in frames or len(frames) == MAX_CHAIN:
                why = status(StatusCode.CYCLE if address in frames else StatusCode.LIMIT)
                yield self._state(thread, THREAD, address, WITHOUT_FRAME, why)
                return
            segment = _segment_of(segments, address, self._reader.kernel.layout.size)
            if segments and segment is None:
                outside = status(StatusCode.OUTSIDE_THE_STACK)
                yield self._state(thread, THREAD, address, WITHOUT_FRAME, outside)
                return
            memory = self._reader.window(address)
            facts = _thread_facts(thread, chained=True, newest=not frames)
            top = segment is not None and address in self._tops(segment)
            reading = self._reader.read(address, memory, False, facts, thread.space, top)
            yield self._thread_state(thread, THREAD, address, reading, segment)
            frames.append(address)
            address = reading.previous

    def _top_frames(
        self, thread: Thread, segments: List[KernelStackSegment], frames: List[int]
    ) -> Iterator[TrapState]:
        """Yields the frames that entries from user mode left at the top of each segment.

        A segment none of whose places can be read has one state without registers. `frames` are known frames,
        which are left out; receives the addresses of the others.
        """
        facts, space = _thread_facts(thread), thread.space
        for segment in segments:
            addresses = self._tops(segment)
            readings = [
                (address, self._reader.read(address, self._reader.window(address), True, facts, space, True))
                for address in addresses
                if address >= segment.limit and address not in frames
            ]
            for address, reading in readings:
                if reading.frame.mode == USER:
                    frames.append(address)
                    yield self._thread_state(thread, TOP, address, reading, segment)
            if (
                thread.teb
                and len(readings) == len(addresses)
                and not any(result.readable for _, result in readings)
            ):
                yield self._thread_state(thread, TOP, *readings[0], segment)

    def _tops(self, segment: KernelStackSegment) -> List[int]:
        """Returns the places of a frame from user mode at the top of a segment."""
        return [segment.initial - distance for distance in self._reader.kernel.tops]

    def _scan(self, thread: Thread, segment: KernelStackSegment, frames: List[int]) -> Iterator[TrapState]:
        """Yields the frames in a segment that share no bytes with known frames, and adds them to `frames`."""
        memory = self._reader.stack(segment.limit, segment.base)
        self.unread += memory.missing(segment.limit, segment.base)
        facts = _thread_facts(thread)
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
        """Returns the state at an address, with the faults of the frame and of its place in the stack.
        `segment` is the segment of the kernel stack that holds it, None if the stack's limits are unknown."""
        fault = None
        if reading.frame is NO_FRAME:
            fault = StatusCode.NOT_A_TRAP_FRAME if reading.readable else StatusCode.UNREADABLE
        stale = segment is not None and not thread.running and address < segment.kernel_stack
        limits = StatusCode.STACK_LIMITS_UNUSABLE if segment is None else None
        statuses = status(StatusCode.STALE if stale else None, limits, fault)
        return self._state(thread, origin, address, reading, statuses)

    def _state(
        self, thread: Thread, origin: str, address: int, reading: TrapReading, statuses: Status = NOTHING
    ) -> TrapState:
        statuses = status(thread.status, StatusCode.RUNNING if thread.running else None, statuses)
        name = thread.state_name
        return self._reader.state(thread.space, thread.tid, origin, address, reading, name, statuses)


class TrapStates:
    """Lists the register states of an image. `symbolizer` names the return addresses below frames, which
    identify the handlers of the frames."""

    def __init__(self, image: Image, symbolizer: Symbolizer, members: bool = False) -> None:
        self._processors = image.service(processors.processors_of)
        self._user_stacks = image.service(UserStacks)
        self._image = image
        self._kernel_space = image.kernel
        self._contexts = TrapContexts(image, members)
        self._make_reader = partial(_trap_reader, image, symbolizer, members)
        self._running: Dict[int, Thread] = {}
        self._frames: List[int] = []

    # Created when a thread has a kernel stack: for a dump of one process the kernel's structures are unknown.
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

        If the input itself has a thread's registers (a dump has them as a CONTEXT), they come first.

        Args:
            pids, tids: processes (0 for the stacks of processors) and threads to list; None for all
            scan_stacks: whether to scan the kernel stacks of threads and processors for further frames
            scan_threads: whether to add the threads that only a pool scan finds
            complete: adds to a thread's states the registers that walking the kernel stack recovers
        """
        lister = cls(image, symbolizer, members)
        listed = Threads.list_threads(image, pids, offset, tids, scan_threads)
        yield from lister.of_threads(listed, scan_stacks, complete)
        all_processors = tids is None and offset is None and (pids is None or KERNEL_PID in pids)
        if processors:
            yield from lister._processor_states(all_processors)
        if scan_stacks and all_processors:
            yield from lister._scan_processor_stacks()
        if "_threads" in vars(lister) and lister._threads.unread:
            vollog.warning(
                f"{lister._threads.unread:#x} bytes of the kernel stacks are not in the image: "
                "frames on them were not found"
            )

    def of_threads(
        self, listed: Iterable[Thread], scan_stacks: bool = False, complete: Optional[Complete] = None
    ) -> Iterator[TrapState]:
        """Yields the register states of threads; `list_states` explains the arguments."""
        for thread in listed:
            if thread.processor is not None:
                self._running[thread.processor] = thread
            yield from self._saved_states(thread)
            if thread.of_user_mode:
                continue
            if thread.unusable:
                # A row in place of a damaged list needs no kernel, which the input may lack.
                yield state_without_registers(thread)
                continue
            switched = self._contexts.switched(thread)
            if switched is not None:
                yield switched
            states = self._threads.thread_states(thread, scan_stacks)
            for state in states if complete is None else complete(thread, states):
                self._frames.append(state.address)
                yield state

    def _saved_states(self, thread: Thread) -> Iterator[TrapState]:
        """Yields the registers of a thread that the input itself contains."""
        for context in thread.contexts:
            space, missing = thread.half_of(context.machine)
            state = self._contexts.saved(thread, space, context)
            yield state._replace(status=status(state.status, missing)) if missing else state

    def _processor_states(self, all_processors: bool) -> Iterator[TrapState]:
        """Yields the contexts that stopped processors saved. `all_processors` says whether to yield the
        contexts of processors that run no selected thread, too."""
        any_context = False
        idle = {thread.processor: thread for thread in self._image.service(threads).list_idle()}
        for processor in self._processors:
            thread = self._running.get(processor.number)
            space, tid = (thread.space, thread.tid) if thread is not None else (self._kernel_space, None)
            state = self._contexts.processor(processor, space, tid)
            any_context = any_context or state is not None
            if state is not None and (thread is not None or all_processors):
                current = thread or idle.get(processor.number)
                yield self._contexts.with_doubts(state, self._possible_stacks(state, processor, current))
        if not any_context:
            vollog.warning(
                "No processor has saved a context: only a crash or a kernel debugger makes them do so"
            )

    def _possible_stacks(
        self, state: TrapState, processor: Processor, thread: Optional[Thread]
    ) -> Optional[List[Tuple[int, int]]]:
        """Returns (limit, base) of the stacks that a processor may be on; None if unknown. `thread` is the
        thread that the processor runs, None if unknown."""
        if thread is None:
            return None
        if state.mode == USER:
            return self._user_stacks.all_limits(thread) or None
        return [(stack.limit, stack.base) for stack in processor.stacks] + self._threads.stacks(thread)

    def _scan_processor_stacks(self) -> Iterator[TrapState]:
        """Yields the frames on the DPC, ISR and IST stacks of processors that are no frames of threads."""
        frames = list(self._frames)
        top_pages: Set[int] = set()
        for processor in self._processors:
            for stack in processor.stacks:
                top_page = self._reader.physical(stack.base - 1) // PAGE_SIZE
                if top_page in top_pages:
                    vollog.warning(f"CPU {processor.number} claims another stack as its {stack.kind} stack")
                    continue
                top_pages.add(top_page)
                memory = self._reader.stack(stack.limit, stack.base)
                # The size of the stack is unknown: it ends at the first page that is not present.
                run = memory.run_at(stack.base - 1)
                for address in self._reader.scan(memory, run[0] if run else stack.base, stack.base, frames):
                    reading = self._reader.read(address, memory)
                    stack_name = f"CPU {processor.number} {stack.kind}"
                    state = self._reader.state(self._kernel_space, None, STACK, address, reading, "")
                    yield state._replace(processor=stack_name)


def _trap_reader(image: Image, symbolizer: Symbolizer, members: bool) -> TrapReader:
    """Returns a reader of the trap frames of an image's kernel."""
    return TrapReader(TrapKernel(image, symbolizer), members)


def _thread_facts(thread: Thread, chained: bool = False, newest: bool = False) -> EntryFacts:
    """Returns the facts that a thread supplies about one of its frames. `newest` says whether
    KTHREAD.TrapFrame itself points to the frame: then the thread's system call number and first argument
    belong to the frame."""
    number, argument = thread.system_call_number, thread.first_argument
    system_call = (number, argument) if newest and number is not None and argument is not None else None
    return EntryFacts(debug_active=thread.debug_active, chained=chained, system_call=system_call)


def _segment_of(segments: List[KernelStackSegment], address: int, size: int) -> Optional[KernelStackSegment]:
    """Returns the segment that holds the whole of a frame, None if none does."""
    return next((segment for segment in segments if segment.limit <= address <= segment.base - size), None)
