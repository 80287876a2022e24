# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The walk up a stack, for any processor: step by step, and by a bounded scan where a step fails."""

from __future__ import annotations

import abc
import struct
from typing import Collection, Dict, FrozenSet, Generic, List, Optional, Tuple, Union

from ...columns.words import LEAF, TRAP, UNWIND
from ...memory.decode.memo import Kept
from ...memory.decode.memory import ReadMemory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.statuscodes import StatusCode
from ...names.decode.unwindinfo import Bytes
from .budget import UNLIMITED, WalkBudget
from .frames import (
    LONGEST_CALL,
    MAX_FRAMES,
    MAX_SCANNED,
    CodeImage,
    FindImage,
    Frame,
    MayExecute,
    ReturnCandidate,
    StackRanges,
    StackWalk,
    UnwindError,
    UserTransition,
    is_call,
)
from .go_frames import GoStack
from .registers import MASK, Registers
from .registers_arm64 import RegistersArm64
from .scan import MAX_CANDIDATES, Scan
from .surroundings import UNKNOWN, Surroundings
from .walkstep import R, WalkStep

__all__ = ["NO_MEMORY", "WalkStep", "Walker"]

_FINAL = (StatusCode.OTHER_ARCHITECTURE,)
"""Reasons that end a walk without a scan: a guess by the rules of this machine would be worth nothing."""

_COMPLETE = (Registers, RegistersArm64)
"""Register states that frames keep."""

NO_MEMORY = 1 << 16
"""Windows never maps memory below this address (MmLowestUserAddress)."""

_DIRECT_CALL = b"\xe8"

_WORDS = {4: "I", 8: "Q"}
"""Format of a slot by its size."""

_MAX_VERDICTS = 1 << 12
"""Number of values for which a walker remembers whether they may be return addresses: stacks repeat many
values."""


class Walker(abc.ABC, Generic[R]):
    """Walks the stacks of one address space."""

    slot_size: int

    most_frames = MAX_FRAMES
    """Frames after which a walk ends."""

    refused: FrozenSet[int] = frozenset()
    """Addresses at which the processor refused to execute, as the input shows."""

    calls_push = False
    """Whether a call pushes its return address onto the stack."""

    weighs = False
    """Whether a scan weighs all candidates (`scan`); False: the first one is taken."""

    def __init__(
        self,
        find_image: FindImage,
        read: ReadMemory,
        may_execute: MayExecute,
        surroundings: Surroundings = UNKNOWN,
    ) -> None:
        self._find_image = find_image
        self._read = read
        self._may_execute = may_execute
        self._surroundings = surroundings
        self.budget = WalkBudget(UNLIMITED)
        self._verdicts: Kept[int, bool] = Kept(_MAX_VERDICTS)
        self._stacks = StackRanges(())

    def share(self, budget: WalkBudget) -> None:
        """Keeps the next walk within what the walks of the input have left; the caller counts its frames."""
        self.budget, self.most_frames = budget, budget.most_frames

    def walk(self, start: R, interrupted: bool, stacks: Collection[Tuple[int, int]] = ()) -> StackWalk:
        """Walks from a register state to the end of the stack, or to the border of kernel and user mode.

        Args:
            interrupted: whether execution stopped at `ip`; False: `ip` is a return address
            stacks: (low, high) of the stacks that the thread may be on; empty if unknown
        """
        self._stacks = StackRanges(stacks)
        return _Walk(self, self._stacks).run(start, interrupted)

    def search(self, sp: int, reason: StatusCode, stacks: Collection[Tuple[int, int]] = ()) -> StackWalk:
        """Walks from the first return address that a scan finds, if no register state is available."""
        self._stacks = StackRanges(stacks)
        return _Walk(self, self._stacks).search(sp, reason)

    @abc.abstractmethod
    def step(self, registers: R, interrupted: bool) -> WalkStep[R]:
        """Finds the caller of a frame; raises UnwindError."""

    def follow(self, registers: R, frames: List[Frame], sure: bool) -> Optional[R]:
        """Continues from a return address by a fast path that covers the most frequent kind of step.

        A walker without a fast path returns the registers unchanged. Returns the registers of the new last
        frame; None if that frame is the end of the stack.
        """
        return registers

    @abc.abstractmethod
    def take_slot(self, slot: int, value: int) -> Optional[WalkStep[R]]:
        """Returns the step that a stack slot and its value allow, or None."""

    def read_slots(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """Reads adjacent slots of a stack; None unless all of them can be read."""
        size = self.slot_size
        data = self._read(address, size * count)
        return None if data is None else struct.unpack_from(f"<{count}{_WORDS[size]}", data)

    def read_stack(self, address: int) -> Optional[int]:
        """Reads one slot of a stack."""
        data = self._read(address, self.slot_size)
        return None if data is None else int.from_bytes(data, "little")

    def read_page(self, address: int) -> Tuple[int, Bytes]:
        """Returns start and bytes of the page that holds an address; no bytes unless all are present."""
        low = address & MASK & -PAGE_SIZE
        return low, self._read(low, PAGE_SIZE) or b""

    def is_return(self, address: int) -> Optional[bool]:
        """Returns whether a value on a stack can be a return address: code behind a call.

        Outside all modules the address must lie in executable memory. Returns None if the code cannot be read
        and nothing else decides.
        """
        image = self._find_image(address - 1)
        if image is None:
            return self.behind_call(self._read, address) and self._may_execute(address - 1)
        # A function that calls is no leaf, and every function that is no leaf has unwind data.
        if not image.executable(address - 1) or image.has_no_entry(address - 1):
            return False
        return self.behind_call(image.read_rva, address - image.base)

    def find_stack(self, sp: int) -> Optional[Tuple[int, int]]:
        """Returns (low, high) of the memory that a stack pointer leads to if it may be a stack, else None."""
        return self._surroundings.find_stack(sp)

    def leads_to_stack(self, registers: R) -> bool:
        """Returns whether a return address is proven, and the stack pointer leads to what may be a stack."""
        return bool(self.is_return(registers.ip)) and self.find_stack(registers.sp) is not None

    def is_first(self, address: int) -> bool:
        """Returns whether code is of a function in which threads begin."""
        return self._surroundings.is_first(address)

    def is_absent(self, slot: int, value: int) -> bool:
        """Returns whether the value of a stack slot may lead to code that the image lacks, behind a call.

        The value must lead into a section that holds code by the headers of its module (anywhere behind the
        headers if they are absent, too), or into executable memory outside all modules.
        """
        image = self._find_image(value - 1)
        if image is None:
            known = self._surroundings.is_executable(value - 1) and self._may_execute(value - 1)
            return known and self._read(value - 1, 1) is None
        headers = image.code is None and value - image.base < PAGE_SIZE
        return image.executable(value - 1) and not headers and self.is_return(value) is None

    def go_stack(self, image: Optional[CodeImage]) -> Optional[GoStack]:
        """Returns the stack as a step from a Go function needs it, None if the image is of no Go program."""
        if image is None or image.go is None:
            return None
        return GoStack(self._find_image, self.read_stack, self.is_return, self.is_behind_call)

    def is_no_code(self, address: int) -> bool:
        """Returns whether it is known that no code lies at an address: a thread there was sent there."""
        if address in self.refused:
            return True
        image = self._find_image(address)
        if image is not None:
            return not image.executable(address)
        if self._read(address, 1) is not None:
            return not self._may_execute(address)
        return address < NO_MEMORY or self._surroundings.is_mapped(address) is False

    def sent_nowhere(self, registers: R) -> Optional[WalkStep[R]]:
        """Returns the step to the code whose call sent a thread to a place without code, None if no call did.

        The call pushed its return address last. It was indirect: the target of a direct call is part of the
        code. If the image lacks that code the step is a guess, because a jump or a return may have led there.
        """
        address = self.read_stack(registers.sp)
        if address is None:
            return None
        image, size = self._find_image(address - 1), len(_DIRECT_CALL) + 4
        if image is not None and self.is_absent(registers.sp, address):
            return WalkStep(registers.returned(address), LEAF, doubt=StatusCode.CODE_UNREADABLE)
        if not self.is_return(address):
            return None
        read = self._read if image is None else image.read_rva
        code = read(address - (0 if image is None else image.base) - size, size)
        direct = code is None or bytes(code[:1]) == _DIRECT_CALL
        return None if direct else WalkStep(registers.returned(address), LEAF)

    def is_behind_call(self, address: int) -> Optional[bool]:
        """Returns whether the code before an address is a call, whatever the unwind data says; None if that
        code cannot be read."""
        image = self._find_image(address - 1)
        if image is None:
            return self.behind_call(self._read, address)
        return self.behind_call(image.read_rva, address - image.base)

    def behind_call(self, read: ReadMemory, address: int) -> Optional[bool]:
        """Returns whether the code before an address (in any unit that `read` takes) ends in a call of x86 or
        x64; None if the code cannot be read, or only so little of it that a longer call could be missed."""
        for length in (LONGEST_CALL, address % PAGE_SIZE):
            if 0 < length <= min(address, LONGEST_CALL):
                code = read(address - length, length)
                if code is not None:
                    verdict = is_call(code)
                    return None if not verdict and length < LONGEST_CALL else verdict
        return None

    def may_return(self, address: int) -> bool:
        """Returns whether a guess may take a value for a return address.

        In a module whose code cannot be read it is enough that a function table exists and does not rule out
        the address.
        """
        verdict = self._verdicts.get(address)
        if verdict is None:
            plausible = self.is_return(address)
            if plausible is None:
                image = self._find_image(address - 1)
                plausible = image is not None and image.table is not None
            verdict = self._verdicts.keep(address, plausible)
        return verdict


class _Walk(Generic[R]):
    """One walk, with the frames found so far."""

    def __init__(self, walker: Walker[R], stacks: StackRanges) -> None:
        self._walker: Walker[R] = walker
        self._stacks = stacks
        self._frames: List[Frame] = []
        self._gaps: List[StatusCode] = []
        self._scannable = MAX_SCANNED
        self._weighed: Optional[Scan[R]] = Scan(walker, stacks) if walker.weighs else None
        self._lost = False
        self._absent: Dict[int, ReturnCandidate] = {}

    def run(self, registers: R, interrupted: bool) -> StackWalk:
        """Walks until something ends the walk."""
        return self._run(WalkStep(registers, TRAP, interrupted))

    def search(self, sp: int, reason: StatusCode) -> StackWalk:
        """Walks from the first return address that a scan finds."""
        step = self._scan(sp, reason)
        if isinstance(step, StatusCode):
            return self._end(step)
        if step.border is not None:
            return self._end(None, step.border._replace(sure=False))
        return self._run(step)

    def _run(self, taken: WalkStep[R]) -> StackWalk:
        while True:
            self._frames.append(self._frame(taken))
            last: Optional[R] = taken.registers
            if not taken.interrupted:
                last = self._walker.follow(taken.registers, self._frames, not self._lost)
            if len(self._frames) >= self._walker.most_frames:
                return self._end(StatusCode.TOO_MANY_FRAMES)
            if last is None:
                return self._end(None)
            registers = last
            try:
                pushed = taken.interrupted and self._walker.calls_push
                lost = pushed and self._walker.is_no_code(registers.ip)
                sent = self._walker.sent_nowhere(registers) if lost else None
                taken = sent or self._walker.step(registers, taken.interrupted)
            except UnwindError as error:
                if error.code in _FINAL:
                    return self._end(error.code)
                step = self._scan(registers.sp, error.code)
                if isinstance(step, StatusCode):
                    return self._end(step)
                taken = step
            if taken.remark:
                self._gaps.append(taken.remark)
            if taken.doubt:
                self._gaps.append(taken.doubt)
                self._lost = self._lost or taken.lasting
            if taken.border is not None:
                return self._end(None, taken.border._replace(sure=not self._lost))
            # A thread that was interrupted at address 0 called a null pointer: the stack has its caller.
            if taken.registers.ip == 0 and not (taken.interrupted and taken.registers.sp):
                return self._end(None)
            stays = taken.return_register is not None and taken.registers.sp == registers.sp
            objection = None if stays else self._stacks.objection(registers.sp, taken.registers.sp)
            if objection is StatusCode.OUTSIDE_THE_STACK and self._switches(taken):
                self._gaps.append(StatusCode.STACK_SWITCHED)
                objection = self._stacks.objection(registers.sp, taken.registers.sp)
            if objection:
                return self._end(objection)

    def _switches(self, taken: WalkStep[R]) -> bool:
        """Returns whether a step that leaves the known stacks leads to another stack of the program.

        Unwind data must have led there, to a proven return address.
        """
        guessed = taken.doubt is not None or taken.interrupted or taken.how != UNWIND
        if guessed or not self._walker.is_return(taken.registers.ip):
            return False
        limits = self._walker.find_stack(taken.registers.sp)
        return limits is not None and self._stacks.add(*limits)

    def _frame(self, taken: WalkStep[R]) -> Frame:
        registers = taken.registers if isinstance(taken.registers, _COMPLETE) else None
        sure = not self._lost and not taken.doubt
        ip, sp = taken.registers.ip, taken.registers.sp
        returns, register = not taken.interrupted, taken.return_register
        return Frame(ip, sp, taken.how, returns, sure, registers, taken.trap, register)

    def _end(self, reason: Optional[StatusCode], border: Optional[UserTransition] = None) -> StackWalk:
        candidates = tuple(self._absent.values())
        if self._weighed is not None:
            candidates = self._weighed.candidates()
        return StackWalk(tuple(self._frames), reason, tuple(dict.fromkeys(self._gaps)), border, candidates)

    def _scan(self, sp: int, reason: StatusCode) -> Union[WalkStep[R], StatusCode]:
        """Scans up the stack for the next step; returns the reason if there is none."""
        self._gaps.append(reason)
        self._lost = True
        if self._weighed is not None:
            return self._weighed.find(sp) or (
                StatusCode.STACK_UNREADABLE if self._weighed.unreadable else reason
            )
        limit, size = self._stacks.limit(sp), self._walker.slot_size
        slot, budget = sp + -sp % size, self._walker.budget
        while limit is not None and slot + size <= limit and self._scannable > 0 and budget.scanned > 0:
            value = self._walker.read_stack(slot)
            if value is None:
                return StatusCode.STACK_UNREADABLE
            step = self._walker.take_slot(slot, value)
            if step is not None:
                return step
            countable = self._walker.calls_push and len(self._absent) < MAX_CANDIDATES
            if countable and self._walker.is_absent(slot, value):
                self._absent[slot] = ReturnCandidate(value, slot, True)
            slot += size
            self._scannable -= size
            budget.scanned -= size
        return reason
