# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every register state that an image holds: trap frames, processors' contexts, WoW64 CPU areas.

symbolizer = Symbolizer(image)
for state in TrapStates.list_states(image, symbolizer, scan_stacks=True): ...
"""

from __future__ import annotations

import logging
from functools import cached_property, partial
from typing import Callable, Collection, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from ..columns.words import STACK, THREAD, TOP, USER
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import NOTHING, Status, Word, says, status
from ..memory.image import KERNEL_PID, Image
from ..names.symbolizer import Symbolizer
from ..process import processors
from ..process.kernelstacks import KernelStacks, Segment
from ..process.processlist import is_isolated
from ..process.processors import Processor
from ..process.thread import Thread
from ..process.threads import Threads, threads
from ..process.userstacks import UserStacks
from .decode.frame import Facts
from .reader import Reading, TrapKernel, TrapReader
from .state import State, TrapContexts

vollog = logging.getLogger(__name__)

MAX_CHAIN = 64

_TOLD = (Word.UNREADABLE, Word.TERMINATED)
"""What a thread's rows say where no registers of user mode are to be expected, or can be told."""

Complete = Callable[[Thread, Iterable[State]], Iterator[State]]
"""Takes a thread and its register states, yields them with more registers."""


class ThreadFrames:
    """Lists a thread's states: where it points, the fixed places of its stack, what a scan finds.

    Args:
        image: the image
        reader: reads the frames
        contexts: reads WoW64 CPU areas

    Attributes:
        unread: bytes of scanned stacks that are not in the image
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

    def of_thread(self, thread: Thread, scan: bool = False) -> Iterator[State]:
        """Yields the register states of one thread, in the order: chain, top, stack, wow64."""
        if thread.unusable:
            yield self._state(thread, THREAD, 0, Reading(None, True), thread.status)
            return
        segments = list(self._stacks.segments(thread))
        taken: List[int] = []
        user_cs: Optional[int] = None
        found = (*self._chain(thread, segments, taken), *self._tops(thread, segments, taken))
        for state in found:
            if user_cs is None and state.mode == USER:
                user_cs = state.registers.get("SegCs")
            yield state
        if self._lacks_user_mode(thread, found):
            yield self._state(thread, TOP, 0, Reading(None, True), status(Word.NO_SAVED_REGISTERS))
        if scan:
            lowest: Dict[int, Segment] = {}
            for segment in segments:
                # Of several on the same memory the newest one reaches lowest.
                lowest.setdefault(segment.base, segment)
            for segment in lowest.values():
                yield from self._scan(thread, segment, taken)
        context = self._contexts.wow64(thread, user_cs)
        if context is not None:
            yield context

    def _lacks_user_mode(self, thread: Thread, found: Collection[State]) -> bool:
        """Returns whether a thread came from user mode, as all with a TEB did, and no state of it says how.

        A thread that has ended has no stack any more, and one in VTL 1 has no registers in an image.
        """
        if not thread.teb or says(thread.status, *_TOLD):
            return False
        if any(state.mode == USER or says(state.status, *_TOLD) for state in found):
            return False
        return not is_isolated(self._image, thread.space.eprocess)

    def _chain(self, thread: Thread, segments: List[Segment], taken: List[int]) -> Iterator[State]:
        """Yields KTHREAD.TrapFrame and the frames before it, each of which lies above the one after."""
        address = thread.trap_frame or 0
        while address and len(taken) < MAX_CHAIN:
            segment = _segment_of(segments, address, self._reader.kernel.form.size)
            if segments and segment is None:
                outside = status(Word.OUTSIDE_THE_STACK)
                yield self._state(thread, THREAD, address, Reading(None, True), outside)
                return
            held = self._reader.window(address)
            told = _told(thread, chained=True, newest=not taken)
            reading = self._reader.read(address, held, False, told, thread.space)
            yield self._thread_state(thread, THREAD, address, reading, segment)
            taken.append(address)
            address = reading.previous
            if address in taken:
                return

    def _tops(self, thread: Thread, segments: List[Segment], taken: List[int]) -> Iterator[State]:
        """Yields what entries from user mode left at the top of each segment."""
        told = _told(thread)
        for segment in segments:
            places = [segment.initial - distance for distance in self._reader.kernel.tops]
            readings = [
                (address, self._reader.read(address, self._reader.window(address), True, told, thread.space))
                for address in places
                if address >= segment.limit and address not in taken
            ]
            for address, reading in readings:
                if reading.frame is not None and reading.frame.mode == USER:
                    taken.append(address)
                    yield self._thread_state(thread, TOP, address, reading, segment)
            if thread.teb and len(readings) == len(places) and not any(each.readable for _, each in readings):
                yield self._thread_state(thread, TOP, *readings[0], segment)

    def _scan(self, thread: Thread, segment: Segment, taken: List[int]) -> Iterator[State]:
        held = self._reader.stack(segment.limit, segment.base)
        self.unread += held.missing(segment.limit, segment.base)
        told = _told(thread)
        for address in self._reader.scan(held, segment.limit, segment.base, taken):
            reading = self._reader.read(address, held, True, told, thread.space)
            yield self._thread_state(thread, STACK, address, reading, segment)

    def _thread_state(
        self, thread: Thread, origin: str, address: int, reading: Reading, segment: Optional[Segment]
    ) -> State:
        broken = None
        if reading.frame is None:
            broken = Word.NOT_A_TRAP_FRAME if reading.readable else Word.UNREADABLE
        dead = segment is not None and not thread.running and address < segment.kernel_stack
        limits = Word.STACK_LIMITS_UNUSABLE if segment is None else None
        said = status(Word.STALE if dead else None, limits, broken)
        return self._state(thread, origin, address, reading, said)

    def _state(
        self, thread: Thread, origin: str, address: int, reading: Reading, said: Status = NOTHING
    ) -> State:
        said = status(thread.status, Word.RUNNING if thread.running else None, said)
        name = thread.state_name
        return self._reader.state(thread.space, thread.tid, origin, address, reading, name, said)


class TrapStates:
    """Lists the register states of an image.

    Args:
        image: the image
        symbolizer: names for return addresses: they tell which handler a frame is of
        members: fill `State.members`
    """

    def __init__(self, image: Image, symbolizer: Symbolizer, members: bool = False) -> None:
        super().__init__()
        self._processors = image.service(processors.of)
        self._user_stacks = image.service(UserStacks)
        self._image = image
        self._kernel_space = image.kernel
        self._contexts = TrapContexts(image, members)
        self._make_reader = partial(_reader, image, symbolizer, members)

    # Made for the first thread of which an input has a kernel stack: only then structures of it are known.
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
    ) -> Iterator[State]:
        """Yields the register states of threads, then those of processors.

        Of a thread whose registers the input itself keeps, these come first.

        Args:
            image: the image
            symbolizer: names for return addresses: they tell which handler a frame is of
            pids: the processes wanted, 0 for the stacks of processors; all when None or empty
            offset: an _EPROCESS that no list holds: only its threads
            tids: the threads wanted; all when None or empty
            scan_stacks: look for further frames on the kernel stacks of threads and processors
            processors: add the contexts that stopped processors saved
            scan_threads: add the threads that only a pool scan finds
            members: fill `State.members`
            complete: adds to a thread's states what walking its kernel stack tells
        """
        finder = cls(image, symbolizer, members)
        running: Dict[int, Thread] = {}
        seen: List[int] = []
        for thread in Threads.list_threads(image, pids, offset, tids, scan_threads):
            if thread.processor is not None:
                running[thread.processor] = thread
            yield from finder._saved(thread)
            if thread.of_user_mode:
                continue
            states = finder._threads.of_thread(thread, scan_stacks)
            for state in states if complete is None else complete(thread, states):
                seen.append(state.address)
                yield state
        everything = not tids and offset is None and (not pids or KERNEL_PID in pids)
        if processors:
            yield from finder._of_processors(running, everything)
        if scan_stacks and everything:
            yield from finder._on_processor_stacks(seen)
        if "_threads" in vars(finder) and finder._threads.unread:
            vollog.warning(
                f"{finder._threads.unread:#x} bytes of the kernel stacks are not in the image: "
                "frames on them were not found"
            )

    def _saved(self, thread: Thread) -> Iterator[State]:
        """Yields the registers of a thread that the input itself keeps."""
        for context in thread.contexts:
            native = context.machine is thread.space.machine
            space = thread.space if native else thread.wow64
            if space is not None:
                yield self._contexts.saved(thread, space, context)

    def _of_processors(self, running: Dict[int, Thread], everything: bool) -> Iterator[State]:
        found = False
        idle = {thread.processor: thread for thread in self._image.service(threads).list_idle()}
        for processor in self._processors:
            thread = running.get(processor.number)
            if thread is None and not everything:
                continue
            space, tid = (thread.space, thread.tid) if thread is not None else (self._kernel_space, None)
            state = self._contexts.processor(processor, space, tid)
            if state is not None:
                found = True
                known = thread or idle.get(processor.number)
                yield self._contexts.judged(state, self._stacks_for(state, processor, known))
        if not found:
            vollog.warning(
                "No processor has saved a context: only a crash or a kernel debugger makes them do so"
            )

    def _stacks_for(
        self, state: State, processor: Processor, thread: Optional[Thread]
    ) -> Optional[List[Tuple[int, int]]]:
        """Returns (limit, base) of the stacks that a processor may be on; None if they are not known.

        Args:
            state: what it has saved
            processor: the processor
            thread: what runs on it, None if that is not known
        """
        if thread is None:
            return None
        if state.mode == USER:
            return self._user_stacks.both(thread) or None
        return [(stack.limit, stack.base) for stack in processor.stacks] + self._threads.stacks(thread)

    def _on_processor_stacks(self, seen: Collection[int]) -> Iterator[State]:
        """Yields the frames on the DPC, ISR and IST stacks that no thread's stack had."""
        taken = list(seen)
        tops: Set[int] = set()
        for processor in self._processors:
            for stack in processor.stacks:
                top = self._reader.physical(stack.base - 1) // PAGE_SIZE
                if top in tops:
                    vollog.warning(f"CPU {processor.number} claims another stack as its {stack.kind} stack")
                    continue
                tops.add(top)
                held = self._reader.stack(stack.limit, stack.base)
                # Nothing says how large it is: it ends at the first page that is not there.
                run = held.run_at(stack.base - 1)
                for address in self._reader.scan(held, run[0] if run else stack.base, stack.base, taken):
                    reading = self._reader.read(address, held)
                    where = f"CPU {processor.number} {stack.kind}"
                    found = self._reader.state(self._kernel_space, None, STACK, address, reading, "")
                    yield found._replace(processor=where)


def _reader(image: Image, symbolizer: Symbolizer, members: bool) -> TrapReader:
    return TrapReader(TrapKernel(image, symbolizer), members)


def _told(thread: Thread, chained: bool = False, newest: bool = False) -> Facts:
    """Returns what a thread tells of one of its frames.

    Args:
        thread: the thread
        chained: KTHREAD.TrapFrame or a frame before it names the frame
        newest: KTHREAD.TrapFrame itself does: the number and first argument of a system call are its own
    """
    number, argument = thread.system_call_number, thread.first_argument
    system_call = (number, argument) if newest and number is not None and argument is not None else None
    return Facts(debug_active=thread.debug_active, chained=chained, system_call=system_call)


def _segment_of(segments: List[Segment], address: int, size: int) -> Optional[Segment]:
    """Returns the segment that holds a frame wholly."""
    return next((each for each in segments if each.limit <= address <= each.base - size), None)
