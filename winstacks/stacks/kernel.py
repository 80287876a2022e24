# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The walks up the kernel stacks of threads, and the registers that they recover for trap frames.

`TrapUnwind` finds the non-volatile registers that no trap frame holds (x64): the functions below the trap
frame saved them on the stack.
"""

from __future__ import annotations

from functools import cached_property
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ..columns.words import THREAD, TOP, TRAP, USER, WOW64
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..names.decode.rules import undecorated
from ..names.symbolizer import Symbolizer
from ..process import processors
from ..process.kernelstacks import KernelStacks, KernelStackSegment
from ..process.processors import Processor
from ..process.thread import Thread
from ..process.userstacks import UserStacks
from ..traps.lister import ThreadFrames
from ..traps.reader import TrapKernel, TrapReader
from ..traps.state import TrapContexts, TrapState
from .cpus import AnyStart, KnownTrapFrames, Range
from .decode.frames import AnyRegisters, Frame, ReturnCandidate, StackWalk, as_candidates
from .walkers import StackWalkers

_NO_WALK = StackWalk(())
_STARTS = ("KiThreadStartup", "KiStartUserThread", "KiStartSystemThread")
"""Functions in which a thread begins to run: x86 (public symbols of XP), and x64 (public symbols of 7 to
11)."""


class KernelWalk(NamedTuple):
    """The walk up one piece of a kernel stack.

    Attributes:
        walk: walk with the frames that lie on this piece only
        status: reason why the walk could not begin at the expected place, or why the piece is unusual
        depth: 1 for the code that the thread runs now; one more for each callback to user mode that has not
            returned
        entry: registers with which the thread left user mode to come to this depth, None if there are none.
            Set on the last piece of a depth
    """

    walk: StackWalk
    status: Status = NOTHING
    depth: int = 1
    entry: Optional[TrapState] = None
    last: bool = True


class KernelWalks:
    """Walks the kernel stacks of threads."""

    def __init__(self, image: Image, symbolizer: Symbolizer, walkers: StackWalkers) -> None:
        self._image, self._symbolizer = image, symbolizer
        self._processors = {
            processor.number: processor for processor in image.service(processors.processors_of)
        }
        self._kernel = TrapKernel(image, symbolizer)
        self._contexts = TrapContexts(image, False)
        self._frames = ThreadFrames(image, TrapReader(self._kernel, False), self._contexts)
        self._stacks = KernelStacks(image, self._kernel.bounds.kernel_start)
        self._user_stacks = image.service(UserStacks)
        self._walkers = walkers
        self._cpu = walkers.cpus.for_machine(image.machine)
        self._callee = image.require_symbol("KiCallUserMode") or 0
        self._saved = self._cpu.saved(self._kernel.layout.structure)
        self.tells_registers = self._cpu.tells_registers

    def states(self, thread: Thread, scan: bool = False) -> List[TrapState]:
        """Returns the trap frames of a thread (and its 32-bit state), beginning with the current one."""
        return list(self._frames.thread_states(thread, scan))

    def context(self, thread: Thread) -> Optional[TrapState]:
        """Returns the registers that the processor of a running thread saved when it was stopped, or None.

        The status names the reasons to doubt them (see `TrapContexts.with_doubts`).
        """
        processor = self._processors.get(-1 if thread.processor is None else thread.processor)
        if processor is None:
            return None
        state = self._contexts.processor(processor, thread.space, thread.tid)
        if state is None:
            return None
        if state.mode == USER:
            return self._contexts.with_doubts(state, self._user_stacks.all_limits(thread) or None)
        stacks = [(segment.limit, segment.base) for segment in self._stacks.segments(thread)]
        return self._contexts.with_doubts(state, stacks + _of_processor(processor))

    def saved(self, state: TrapState) -> int:
        """Returns the address by which walks identify a trap frame: on x64 its machine frame's."""
        return state.address + self._saved

    def pieces(self, thread: Thread, states: Sequence[TrapState]) -> Iterator[KernelWalk]:
        """Yields the pieces of a thread's kernel stack, the newest first.

        Each callback to user mode begins a piece, and so does each stack expansion. If a piece exists but
        cannot be found, a piece without frames has the reason in its status. `states` are trap frames of the
        thread, as far as they are known.
        """
        kernel_stacks = self._stacks.find_segments(thread)
        segments = kernel_stacks.found
        for depth in range(1, segments[-1].depth + 1 if segments else 2):
            depth_segments = [segment for segment in segments if segment.depth == depth]
            traps = dict(self._traps(states))
            kernel_walk = self._walked(thread, depth_segments, segments, traps)
            if kernel_walk.walk.gaps and not kernel_walk.walk.border:
                # The walk had to guess, and may have passed trap frames that only a search of the stack
                # finds.
                traps = dict(self._traps(self.states(thread, True)))
                kernel_walk = self._walked(thread, depth_segments, segments, traps)
            kernel_walk = kernel_walk._replace(depth=depth, entry=_entry(states, depth_segments, segments))
            if len(depth_segments) < 2:
                yield kernel_walk
            else:
                yield from self._expanded(thread, depth_segments, kernel_walk, traps)
        if kernel_stacks.lost is not None:
            yield KernelWalk(_NO_WALK, status(kernel_stacks.lost), kernel_stacks.lost_depth)

    def of_state(self, thread: Thread, state: TrapState) -> StackWalk:
        """Walks a thread's kernel stack from a trap frame on it, which has Rip and Rsp."""
        start = self._cpu.start(state)
        if start is None:
            return _NO_WALK
        stacks = [(segment.limit, segment.base) for segment in self._stacks.find_segments(thread).found]
        return self._walkers.walk(thread.space, start, stacks, dict(self._traps(self.states(thread, True))))

    def passed_trap_frames(self, thread: Thread) -> Set[int]:
        """Returns the addresses, as in `saved`, of the trap frames that walks up a thread's stack pass."""
        walks = [piece.walk for piece in self.pieces(thread, self.states(thread))]
        borders = {walk.border.trap for walk in walks if walk.border is not None}
        return borders.union(frame.trap for walk in walks for frame in walk.frames)

    def registers(self, thread: Thread) -> Dict[int, AnyRegisters]:
        """Returns the registers that walks recover at each trap frame of a thread, by its address."""
        registers = {}
        for piece in self.pieces(thread, self.states(thread)):
            for frame in piece.walk.frames:
                if frame.trap and frame.sure and frame.registers is not None:
                    registers[frame.trap - self._saved] = frame.registers
            border = piece.walk.border
            if border is not None and border.sure and border.registers is not None:
                registers[border.trap - self._saved] = border.registers
        return registers

    def _walked(
        self,
        thread: Thread,
        depth_segments: Sequence[KernelStackSegment],
        segments: Sequence[KernelStackSegment],
        traps: KnownTrapFrames,
    ) -> KernelWalk:
        # If an older depth lies above on the same memory, the newer one ends at its own InitialStack.
        shared = {older.base for newer, older in zip(segments, segments[1:]) if older.base == newer.base}
        stacks = [
            (segment.limit, segment.initial if segment.base in shared else segment.base)
            for segment in depth_segments
        ]
        if depth_segments and depth_segments[0].depth > 1:
            return self._called_out(thread, depth_segments, stacks, traps)
        return self._begin(thread, stacks, traps)

    def _called_out(
        self,
        thread: Thread,
        depth_segments: Sequence[KernelStackSegment],
        stacks: List[Range],
        traps: KnownTrapFrames,
    ) -> KernelWalk:
        """Walks from the place where a callback to user mode was made."""
        start = self._walkers.callback_return(thread.space, depth_segments, self._callee)
        if start is not None and self._is_kernel_code(start.registers.ip):
            return KernelWalk(self._walkers.walk(thread.space, start, stacks, traps))
        return KernelWalk(
            self._walkers.search(
                thread.space, depth_segments[0].kernel_stack, StatusCode.NO_SAVED_REGISTERS, stacks, traps
            )
        )

    def _expanded(
        self,
        thread: Thread,
        depth_segments: Sequence[KernelStackSegment],
        kernel_walk: KernelWalk,
        traps: KnownTrapFrames,
    ) -> Iterator[KernelWalk]:
        """Yields a walk segment by segment; a segment that the walk did not reach is searched."""
        walk = kernel_walk.walk
        places = [_place(depth_segments, frame) for frame in walk.frames]
        reached = places[-1] if places else 0
        for number, segment in enumerate(depth_segments):
            last = number == len(depth_segments) - 1
            piece_status = status(StatusCode.EXPANDED) if segment.expanded else NOTHING
            if number <= reached:
                frames = tuple(frame for frame, place in zip(walk.frames, places) if place == number)
                guessed = number == reached or not all(frame.sure for frame in frames)
                piece = StackWalk(
                    frames,
                    walk.end if number == reached else None,
                    walk.gaps if guessed else (),
                    walk.border if number == reached else None,
                )
            else:
                stacks = [(segment.limit, segment.base)]
                piece = self._walkers.search(
                    thread.space, segment.kernel_stack, StatusCode.NO_SAVED_REGISTERS, stacks, traps
                )
            piece_status = status(kernel_walk.status if number == 0 else None, piece_status)
            entry = kernel_walk.entry if last else None
            yield KernelWalk(piece, piece_status, kernel_walk.depth, entry, last)

    def _begin(self, thread: Thread, stacks: List[Range], traps: KnownTrapFrames) -> KernelWalk:
        if thread.contexts:
            return self._of_context(thread, stacks, traps)
        if thread.running:
            context = self.context(thread)
            if context is None:
                return self._running(thread, stacks, traps)
            stacks = stacks + _of_processor(self._processors[thread.processor or 0])
            if has_status(context.status, StatusCode.STALE):
                return self._running(thread, stacks, traps)
            running = self._cpu.start(context._replace(unsure=()))
            if context.mode == USER or running is None:
                return KernelWalk(_NO_WALK, status(StatusCode.IN_USER_MODE, context.status))
            walk = self._walkers.walk(thread.space, running, stacks, traps)
            if has_status(context.status, StatusCode.CONTEXT_MAY_BE_OLDER):
                unsure = tuple(frame._replace(sure=False) for frame in walk.frames)
                walk = walk._replace(frames=unsure, gaps=(StatusCode.CONTEXT_MAY_BE_OLDER, *walk.gaps))
            return KernelWalk(walk)
        kernel_stack = thread.kernel_stack or 0
        memory = self._walkers.memory(thread.space)
        starts: List[AnyStart] = []
        if kernel_stack:
            starts += self._cpu.switched_out(memory, kernel_stack, thread.ethread)
        if not starts or not stacks:
            return KernelWalk(
                _NO_WALK, status(StatusCode.UNREADABLE, None if stacks else StatusCode.NO_SWITCH_FRAME)
            )
        for start in starts:
            if not self._is_kernel_code(start.registers.ip):
                continue
            if self._is_start(start.registers.ip):
                return KernelWalk(StackWalk((Frame(start.registers.ip, start.registers.sp, TRAP, False),)))
            return KernelWalk(self._walkers.walk(thread.space, start, stacks, traps))
        walk = self._walkers.search(thread.space, kernel_stack, StatusCode.NO_SWITCH_FRAME, stacks, traps)
        return KernelWalk(walk)

    def _running(self, thread: Thread, stacks: List[Range], traps: KnownTrapFrames) -> KernelWalk:
        """Returns the walk of a thread whose registers were in its processor: candidates only.

        They are the values above the stack pointer that the thread had when it last did not run.
        """
        sp = thread.kernel_stack or 0
        candidates: Tuple[ReturnCandidate, ...] = ()
        if any(low <= sp <= high for low, high in stacks):
            walk = self._walkers.search(thread.space, sp, StatusCode.RUNNING, stacks, traps)
            candidates = as_candidates(walk, self._cpu.machine.pointer_size)
        return KernelWalk(StackWalk((), candidates=candidates), status(StatusCode.RUNNING))

    def _of_context(self, thread: Thread, stacks: List[Range], traps: KnownTrapFrames) -> KernelWalk:
        """Walks from the registers in the input; the thread's first context is the innermost.

        If these are unusable, a thread that does not run has the registers of its last switch.
        """
        state = self._contexts.saved(thread, thread.space, thread.contexts[0])
        start: Optional[AnyStart] = self._cpu.start(state)
        if start is not None:
            return KernelWalk(self._walkers.walk(thread.space, start, stacks, traps))
        if thread.kernel_stack and not thread.running:
            memory = self._walkers.memory(thread.space)
            for start in self._cpu.switched_out(memory, thread.kernel_stack, thread.ethread):
                if self._is_kernel_code(start.registers.ip):
                    return KernelWalk(self._walkers.walk(thread.space, start, stacks, traps), state.status)
        return KernelWalk(_NO_WALK, status(state.status, StatusCode.NO_SAVED_REGISTERS))

    def _is_kernel_code(self, address: int) -> bool:
        """Returns whether an address is in the kernel image: every thread waits there."""
        low, high = self._kernel.bounds.kernel_image
        return low < address < high

    def _is_start(self, address: int) -> bool:
        """Returns whether a function of the kernel begins at an address: then no call returns there.

        In a thread that has never run, SwapContext returns to such an address: the code that created the
        thread put it there. The function before it is unrelated, and the stack holds the arguments of the
        thread's start routine.
        """
        module = self._symbolizer.for_space(self._image.kernel).module_at(address)
        if module is None or module.module.base != self._image.base:
            return False
        rva, table = address - module.module.base, module.image.functions
        entry = module.image.find_entry(rva)
        if table is not None and entry is not None and entry.begin == rva:
            return table.primary(entry) == entry
        label = module.begins_at(address)
        return label is not None and undecorated(label[1]) in _STARTS

    def _traps(self, states: Iterable[TrapState]) -> Iterator[Tuple[int, Optional[AnyRegisters]]]:
        """Yields (address, registers) of the trap frames that are in use."""
        for state in states:
            dead = has_status(
                state.status,
                StatusCode.STALE,
                StatusCode.UNREADABLE,
                StatusCode.NOT_A_TRAP_FRAME,
                StatusCode.OUTSIDE_THE_STACK,
            )
            if state.origin != WOW64 and not dead and state.ip is not None and state.sp is not None:
                yield self.saved(state), self._cpu.saved_registers(state)


def _of_processor(processor: Processor) -> List[Range]:
    """Returns (limit, base) of a processor's own stacks."""
    return [(stack.limit, stack.base) for stack in processor.stacks]


def _entry(
    states: Sequence[TrapState],
    depth_segments: Sequence[KernelStackSegment],
    segments: Sequence[KernelStackSegment],
) -> Optional[TrapState]:
    """Returns the first state that was saved when a thread left user mode to come to the segments of a depth.

    The trap frame that a segment of the depth names is preferred; without it, the first possible state is
    taken. A state that lies in no segment counts for the current depth.
    """
    older = bool(depth_segments) and depth_segments[0].depth > 1
    others = [segment for segment in segments if segment not in depth_segments]
    possible = [
        state
        for state in states
        if state.origin in (THREAD, TOP)
        and (state.mode == USER or not state.registers)
        and not any(stack.holds(state.address) for stack in others)
        and (not older or any(stack.holds(state.address) for stack in depth_segments))
    ]
    callback_frames = [segment.trap_frame for segment in depth_segments if segment.trap_frame]
    return next((state for state in possible if state.address in callback_frames), next(iter(possible), None))


def _place(depth_segments: Sequence[KernelStackSegment], frame: Frame) -> int:
    """Returns the index of the segment on which a frame lies; 0 if it lies on none."""
    numbers = (
        number for number, segment in enumerate(depth_segments) if segment.limit <= frame.sp <= segment.base
    )
    return next(numbers, 0)


class TrapUnwind:
    """Adds to trap frames the registers that a walk of the kernel stack recovers without guessing."""

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self._image = image
        self._symbolizer = symbolizer

    @cached_property
    def _walks(self) -> KernelWalks:
        return KernelWalks(self._image, self._symbolizer, StackWalkers(self._image, self._symbolizer))

    def complete(self, thread: Thread, states: Iterable[TrapState]) -> Iterator[TrapState]:
        """Yields a thread's register states; trap frames are completed with the registers that they lack."""
        registers: Optional[Dict[int, AnyRegisters]] = None
        for state in states:
            if self._walks.tells_registers and state.origin != WOW64 and state.registers:
                if registers is None:
                    registers = self._walks.registers(thread)
                if state.address in registers:
                    state = _completed(state, registers[state.address])
            yield state


def _completed(state: TrapState, walked: AnyRegisters) -> TrapState:
    additions: Dict[str, int] = {}
    for name, value in walked.kept():
        if value is not None and (name not in state.registers or name in state.unsure):
            additions[name] = value
    unsure = tuple(name for name in state.unsure if name not in additions)
    return state._replace(registers={**state.registers, **additions}, unsure=unsure)
