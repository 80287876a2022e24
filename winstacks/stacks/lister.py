# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks of threads, in kernel, user and 32-bit mode, as RtlCaptureStackBackTrace would have captured
them.

symbolizer = Symbolizer(image)
for stack in StackLister.list_stacks(image, symbolizer, pids=[1000]): ...
"""

from __future__ import annotations

from functools import cached_property, partial
from operator import attrgetter
from typing import Collection, Iterator, List, Optional, Sequence, Tuple

from ..columns.words import KERNEL, STACK, USER, WOW64
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, StatusItem, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..names.symbolizer import Symbolizer
from ..process.thread import Thread
from ..process.threads import Threads
from ..process.userstacks import UserStacks
from ..traps.decode.frame import CS_USER_32
from ..traps.state import TrapContexts, TrapState, kernel_values
from .cpus import NO_TRAPS, KnownTrapFrames, Range
from .decode.frames import Frame, ReturnCandidate, StackWalk, UserTransition
from .kernel import KernelWalk, KernelWalks
from .walkers import StackWalkers

_address = attrgetter("address")


class CallStack(NamedTuple):
    """One stack of a thread. Addresses are canonical.

    Attributes:
        part: kernel, user or wow64; with a number (`kernel 2`) for a part that the thread left by callbacks
            to user mode: the newest callback left number 2
        entry: user-mode registers with which the stack begins, None for a kernel stack
        candidates: further values on the stack that may be return addresses
    """

    thread: Thread
    part: str
    space: AddressSpace
    frames: Tuple[Frame, ...]
    status: Status
    entry: Optional[TrapState] = None
    candidates: Tuple[ReturnCandidate, ...] = ()

    @property
    def return_addresses(self) -> Tuple[int, ...]:
        """The addresses that RtlCaptureStackBackTrace counts: all but the address at which the thread was
        interrupted."""
        counted = self.frames[1:] if self.frames and not self.frames[0].returns else self.frames
        return tuple(map(_address, counted))


class StackLister:
    """Walks the stacks of threads."""

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self._walkers = StackWalkers(image, symbolizer)
        self._user_stacks = image.service(UserStacks)
        self._contexts = TrapContexts(image, False)
        self._user_end = symbolizer.halves.user_end
        self._part_of_none = KERNEL if image.kernel_stacks else USER
        self._make_kernel = partial(KernelWalks, image, symbolizer, self._walkers)

    @cached_property
    def _kernel(self) -> KernelWalks:
        """The kernel stacks, created for the first thread of an input that has a kernel."""
        return self._make_kernel()

    @classmethod
    def list_stacks(
        cls,
        image: Image,
        symbolizer: Symbolizer,
        pids: Optional[Collection[int]] = None,
        offset: Optional[int] = None,
        tids: Optional[Collection[int]] = None,
    ) -> Iterator[CallStack]:
        """Yields the stacks of threads: for each thread its kernel part, its user part, its 32-bit part.

        If callbacks have not returned, the older parts follow in the same order, the newest first. A part on
        an expanded stack comes before the part from which the kernel expanded it. Yields the stacks. A stack
        that could not be walked to its end has a `status`, and the frames up to the break, perhaps none.
        Threads without a user half have no user part.
        """
        finder = cls(image, symbolizer)
        for thread in Threads.list_threads(image, pids, offset, tids):
            yield from finder.thread_stacks(thread)

    def thread_stacks(self, thread: Thread) -> Iterator[CallStack]:
        if thread.unusable:
            yield CallStack(thread, self._part_of_none, thread.space, (), thread.status)
            return
        if thread.of_user_mode:
            yield from self._of_contexts(thread)
            return
        states = self._kernel.states(thread)
        has_user_half = bool(thread.teb) or any(state.mode == USER for state in states)
        pieces = list(self._kernel.pieces(thread, states))
        for number, piece in enumerate(pieces):
            statuses = status(thread.status, piece.status, _remarks(piece.walk))
            part = _numbered(KERNEL, piece.depth)
            walk = piece.walk
            yield CallStack(thread, part, thread.space, walk.frames, statuses, None, walk.candidates)
            if piece.last and has_user_half:
                # On x86, a walk up the user stack continues behind the dispatcher of a callback with the
                # registers in a trap frame that the kernel kept: the entry of an older depth.
                older_entries = [older.entry for older in pieces[number + 1 :] if older.entry is not None]
                yield from self._user_parts(thread, states, piece, older_entries)
        for context in thread.contexts[1:]:
            state = self._contexts.saved(thread, thread.space, context)
            if context.kernel and state.registers:
                yield self._interrupted(thread, state)

    def _of_contexts(self, thread: Thread) -> Iterator[CallStack]:
        """Yields the stacks of a thread from an input that has its registers, but no kernel."""
        in_32_bit_code = False
        for context in thread.contexts:
            native = context.machine is thread.space.machine
            space, missing = thread.half_of(context.machine)
            if missing:
                yield CallStack(thread, WOW64, space, (), status(thread.status, missing))
                continue
            if not native and in_32_bit_code:
                # The registers in the CPU area are older than these.
                continue
            stacks = self._user_stacks.native(thread) if native else self._user_stacks.narrow(thread)
            state = self._contexts.saved(thread, space, context)
            in_32_bit_code = thread.wow64 is not None and state.registers.get("SegCs") == CS_USER_32
            if native and in_32_bit_code:
                statuses = status(state.status, StatusCode.IN_32_BIT_CODE)
                yield CallStack(thread, USER, thread.space, (), statuses)
                yield self._interrupted(thread, state)
                continue
            traps = dict.fromkeys(thread.kept_frames)
            part = USER if native else WOW64
            yield self._user(thread, part, space, state, stacks, None, traps, context.shadow)

    def list_searched(self, thread: Thread) -> Iterator[Tuple[int, CallStack]]:
        """Yields the stacks from the trap frames that only a search of the thread's kernel stacks finds.

        Such stacks are usually of past events: a walk passes every trap frame that is still in use. Later
        calls may have overwritten the callers, so that only the interrupted code is certain. Measured on
        ReactOS: the rest of one stack followed upon another. Yields the address of the trap frame, and the
        stack of the code that it interrupted.
        """
        if thread.unusable or thread.of_user_mode:
            return
        passed = self._kernel.passed_trap_frames(thread)
        for state in self._kernel.states(thread, True):
            if state.origin == STACK and self._kernel.saved(state) not in passed:
                stack = self._interrupted(thread, state)
                yield state.address, stack._replace(frames=_doubted(stack.frames, 1))

    def _interrupted(self, thread: Thread, state: TrapState) -> CallStack:
        """Walks the stack of the code that a trap frame interrupted."""
        if state.mode != USER:
            walk = self._kernel.of_state(thread, state)
            statuses = status(state.status, _remarks(walk))
            return CallStack(thread, KERNEL, thread.space, walk.frames, statuses, None, walk.candidates)
        if thread.wow64 is not None and state.registers.get("SegCs") == CS_USER_32:
            return self._user(thread, WOW64, thread.wow64, state, self._user_stacks.narrow(thread))
        return self._user(thread, USER, thread.space, state, self._user_stacks.native(thread))

    def _user_parts(
        self,
        thread: Thread,
        states: Sequence[TrapState],
        piece: KernelWalk,
        older_entries: Sequence[TrapState],
    ) -> Iterator[CallStack]:
        """Yields the user part from which a thread came to a piece of its kernel stack, and the 32-bit
        part."""
        entered = self._entered(thread, piece)
        part, part32 = _numbered(USER, piece.depth), _numbered(WOW64, piece.depth)
        narrow = entered is not None and entered.registers.get("SegCs") == CS_USER_32
        older = thread.running and not (piece.walk.frames and piece.walk.frames[0].sure)
        if narrow:
            statuses = status(thread.status, StatusCode.IN_32_BIT_CODE)
            yield CallStack(thread, part, thread.space, (), statuses)
        else:
            stacks = self._user_stacks.native(thread)
            traps = {self._kernel.saved(state): None for state in older_entries if state.registers}
            yield self._user(
                thread, part, thread.space, entered, stacks, piece.walk.border, traps, older=older
            )
        if thread.wow64 is not None:
            # The CPU area holds the newest 32-bit context only. Where a callback saves the previous one is
            # unknown.
            current = (state for state in states if state.origin == WOW64 and piece.depth == 1)
            stacks = self._user_stacks.narrow(thread)
            state32 = entered if narrow else next(current, None)
            yield self._user(thread, part32, thread.wow64, state32, stacks, older=older)

    def _entered(self, thread: Thread, piece: KernelWalk) -> Optional[TrapState]:
        """Returns the registers with which the thread left user mode, or with which it is running there."""
        if thread.running and piece.depth == 1:
            context = self._kernel.context(thread)
            if (
                context is not None
                and context.mode == USER
                and not has_status(context.status, StatusCode.STALE)
            ):
                return context
        return piece.entry

    def _user(
        self,
        thread: Thread,
        part: str,
        space: AddressSpace,
        state: Optional[TrapState],
        stacks: List[Range],
        border: Optional[UserTransition] = None,
        traps: KnownTrapFrames = NO_TRAPS,
        shadow: Sequence[int] = (),
        older: bool = False,
    ) -> CallStack:
        """Walks a stack of user mode.

        Args:
            part: user or wow64, with the number of an older part
            stacks: (limit, base) of the stacks that the thread may be on
            border: the user-mode state at which the walk up the kernel stack ended
            traps: trap frames that callbacks have kept; they do not lie on this stack
            older: whether the thread may have run in user mode since it left it with the registers of a trap
                frame: what it interrupted is certain, and the stack may hold the callers of other functions
        """
        doubtful = state is not None and has_status(state.status, StatusCode.CONTEXT_MAY_BE_OLDER)
        if state is not None and doubtful:
            # The whole state is doubtful: every frame will be marked unsure.
            state = state._replace(unsure=())
        start = None if state is None else self._walkers.cpus.for_machine(space.machine).start(state)
        if state is None or start is None:
            why = status(None if state is None else state.status) or status(StatusCode.NO_SAVED_REGISTERS)
            return CallStack(thread, part, space, (), status(thread.status, why))
        if border is not None and border.trap == self._kernel.saved(state):
            start = start.keeping(border)
        sp = state.sp or 0
        limits, stacks = stacks, [(low, high) for low, high in stacks if low <= sp <= high]
        known, own = bool(stacks), None if stacks else self._walkers.find_stack(space, sp)
        if own is not None:
            stacks = [own, *limits]
        wrong = kernel_values(state, self._user_end)
        if space.machine.sp_register in wrong:
            # Memory of the kernel is no stack of a process.
            stacks = [(0, self._user_end)]
        if space.machine.ip_register in wrong:
            walk = self._walkers.search(space, sp, StatusCode.NO_SAVED_REGISTERS, stacks, traps)
        else:
            walk = self._walkers.walk(space, start, stacks, traps)
        if shadow:
            walk = self._walkers.proven(space, walk, shadow)
        if doubtful or (older and has_status(state.status, StatusCode.RUNNING)):
            walk = walk._replace(frames=_doubted(walk.frames, 0 if doubtful else 1))
        unlimited = None if known else StatusCode.STACK_LIMITS_UNKNOWN
        statuses = status(thread.status, state.status, unlimited, _remarks(walk))
        return CallStack(thread, part, space, walk.frames, statuses, state, walk.candidates)


def _doubted(frames: Tuple[Frame, ...], first: int) -> Tuple[Frame, ...]:
    """Returns frames that are unsure from a number on."""
    return (*frames[:first], *(frame._replace(sure=False) for frame in frames[first:]))


def _remarks(walk: StackWalk) -> Status:
    """Returns the defects of a walk: its gaps, the reason for its end, and the values that it passed over.

    Without a frame the walk did not begin, and passed over nothing.
    """
    count = len(walk.candidates) if walk.frames else 0
    return status(*walk.gaps, walk.end, StatusItem(StatusCode.CANDIDATES, count) if count else None)


def _numbered(part: str, depth: int) -> str:
    """Returns the name of a part; the newest depth has no number."""
    return part if depth == 1 else f"{part} {depth}"
