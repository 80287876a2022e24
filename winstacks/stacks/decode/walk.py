# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The walk itself, whatever the processor: step by step, by scan where a step fails, within bounds."""

from __future__ import annotations

import abc
from typing import Collection, Dict, Generic, List, Optional, Tuple, TypeVar, Union

from ...columns.words import TRAP
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.status import Word
from .frames import (
    LONGEST_CALL,
    MAX_FRAMES,
    MAX_SCANNED,
    Border,
    FindImage,
    Frame,
    MayExecute,
    Read,
    Stacks,
    StackWalk,
    UnwindError,
    is_call,
)
from .registers import Registers, Registers32

R = TypeVar("R", Registers, Registers32)

_MAX_VERDICTS = 1 << 12
"""Values of which a walker remembers whether they may be return addresses: stacks repeat many of theirs."""


class Taken(Generic[R]):
    """A step that was taken.

    Args:
        registers: those of the next frame
        how: how they were found
        interrupted: the next frame was interrupted where its `ip` is
        doubt: why the step is a guess, None if it is none
        lasting: a guess is all that follows, too; else only this frame may not be the next one
        trap: address of the machine frame (x86: trap frame) that held the registers
        border: set where the next frame is user mode's
        remark: what is odd about it, although it is no guess
    """

    __slots__ = ("border", "doubt", "how", "interrupted", "lasting", "registers", "remark", "trap")

    def __init__(
        self,
        registers: R,
        how: str,
        interrupted: bool = False,
        doubt: Optional[Word] = None,
        lasting: bool = True,
        trap: int = 0,
        border: Optional[Border] = None,
        remark: Optional[Word] = None,
    ) -> None:
        self.registers: R = registers
        self.how = how
        self.interrupted = interrupted
        self.doubt = doubt
        self.lasting = lasting
        self.trap = trap
        self.border = border
        self.remark = remark


class Walker(abc.ABC, Generic[R]):
    """Walks the stacks of one address space.

    Args:
        find_image: finds the module that holds an address
        read: reads memory, by canonical address
        may_execute: tells which memory in no module may be code
    """

    slot_size: int

    def __init__(self, find_image: FindImage, read: Read, may_execute: MayExecute) -> None:
        self._find_image = find_image
        self._read = read
        self._may_execute = may_execute
        self._verdicts: Dict[int, bool] = {}
        self._stacks = Stacks(())

    def walk(self, start: R, interrupted: bool, stacks: Collection[Tuple[int, int]] = ()) -> StackWalk:
        """Walks from a register state to the end of the stack, or to the border of kernel and user mode.

        Args:
            start: the innermost state
            interrupted: its `ip` is where execution stopped; else a return address
            stacks: (low, high) of the stacks that the thread may be on; empty if that is not known
        """
        self._stacks = Stacks(stacks)
        return _Walk(self, self._stacks).run(start, interrupted)

    def search(self, sp: int, reason: Word, stacks: Collection[Tuple[int, int]] = ()) -> StackWalk:
        """Walks from the first return address that a scan finds, where no register state is to be had.

        Args:
            sp: where the scan begins
            reason: why a scan has to do
            stacks: as for `walk`
        """
        self._stacks = Stacks(stacks)
        return _Walk(self, self._stacks).search(sp, reason)

    @abc.abstractmethod
    def step(self, registers: R, interrupted: bool) -> Taken[R]:
        """Finds the caller of a frame; raises UnwindError."""

    def follow(self, registers: R, frames: List[Frame], sure: bool) -> Optional[R]:
        """Goes on from a return address as far as every step is one that most steps are like.

        Args:
            registers: those of the last of the frames
            frames: takes the frames that are found
            sure: whether they are sure

        Returns:
            The registers of what is then the last frame; None if that is the stack's own end.
        """
        return registers

    @abc.abstractmethod
    def look(self, slot: int, value: int) -> Optional[Taken[R]]:
        """Takes a slot of the stack, and what it holds, for the way on, or returns None."""

    def read_stack(self, address: int) -> Optional[int]:
        """Reads one slot of a stack."""
        data = self._read(address, self.slot_size)
        return None if data is None else int.from_bytes(data, "little")

    def is_return(self, address: int) -> Optional[bool]:
        """Returns whether a value on a stack can be a return address: code behind a call.

        In no module that has to lie in memory that may be executed.

        Returns:
            None where the code cannot be read and nothing else tells.
        """
        image = self._find_image(address - 1)
        if image is None:
            return _behind_call(self._read, address) and self._may_execute(address - 1)
        if not image.executable(address - 1):
            return False
        rva = address - image.base
        if image.table is not None and image.table.complete_at(rva - 1) and not image.table.find(rva - 1):
            # Who calls is no leaf, and who is no leaf has unwind data.
            return False
        return _behind_call(image.read_rva, rva)

    def is_behind_call(self, address: int) -> Optional[bool]:
        """Returns whether the code before an address is a call, whatever unwind data says of it.

        Returns:
            None where that code cannot be read.
        """
        image = self._find_image(address - 1)
        if image is None:
            return _behind_call(self._read, address)
        return _behind_call(image.read_rva, address - image.base)

    def may_return(self, address: int) -> bool:
        """Returns whether a guess may take a value for a return address.

        In a module whose code cannot be read it is enough that there is a function table which does not rule
        the address out.
        """
        verdict = self._verdicts.get(address)
        if verdict is None:
            known = self.is_return(address)
            if known is None:
                image = self._find_image(address - 1)
                known = image is not None and image.table is not None
            if len(self._verdicts) >= _MAX_VERDICTS:
                self._verdicts.clear()
            verdict = self._verdicts[address] = known
        return verdict


class _Walk(Generic[R]):
    """One walk and what it has found so far."""

    def __init__(self, walker: Walker[R], stacks: Stacks) -> None:
        self._walker: Walker[R] = walker
        self._stacks = stacks
        self._frames: List[Frame] = []
        self._gaps: List[Word] = []
        self._scannable = MAX_SCANNED
        self._lost = False

    def run(self, registers: R, interrupted: bool) -> StackWalk:
        """Walks until something ends the walk."""
        return self._run(Taken(registers, TRAP, interrupted))

    def search(self, sp: int, reason: Word) -> StackWalk:
        """Begins with a scan."""
        found = self._scan(sp, reason)
        if isinstance(found, Word):
            return self._end(found)
        if found.border is not None:
            return self._end(None, found.border._replace(sure=False))
        return self._run(found)

    def _run(self, taken: Taken[R]) -> StackWalk:
        while True:
            self._frames.append(self._frame(taken))
            last: Optional[R] = taken.registers
            if not taken.interrupted:
                last = self._walker.follow(taken.registers, self._frames, not self._lost)
            if len(self._frames) >= MAX_FRAMES:
                return self._end(Word.TOO_MANY_FRAMES)
            if last is None:
                return self._end(None)
            here = last
            try:
                taken = self._walker.step(here, taken.interrupted)
            except UnwindError as error:
                found = self._scan(here.sp, error.word)
                if isinstance(found, Word):
                    return self._end(found)
                taken = found
            if taken.remark:
                self._gaps.append(taken.remark)
            if taken.doubt:
                self._gaps.append(taken.doubt)
                self._lost = self._lost or taken.lasting
            if taken.border is not None:
                return self._end(None, taken.border._replace(sure=not self._lost))
            if taken.registers.ip == 0:
                return self._end(None)
            objection = self._stacks.objection(here.sp, taken.registers.sp)
            if objection:
                return self._end(objection)

    def _frame(self, taken: Taken[R]) -> Frame:
        registers = taken.registers if isinstance(taken.registers, Registers) else None
        sure = not self._lost and not taken.doubt
        ip, sp = taken.registers.ip, taken.registers.sp
        return Frame(ip, sp, taken.how, not taken.interrupted, sure, registers, taken.trap)

    def _end(self, reason: Optional[Word], border: Optional[Border] = None) -> StackWalk:
        return StackWalk(tuple(self._frames), reason, tuple(dict.fromkeys(self._gaps)), border)

    def _scan(self, sp: int, reason: Word) -> Union[Taken[R], Word]:
        """Looks up the stack for the way on; returns why there is none if there is none."""
        self._gaps.append(reason)
        self._lost = True
        limit, size = self._stacks.limit(sp), self._walker.slot_size
        slot = sp + -sp % size
        while limit is not None and slot + size <= limit and self._scannable > 0:
            value = self._walker.read_stack(slot)
            if value is None:
                return Word.STACK_UNREADABLE
            found = self._walker.look(slot, value)
            if found is not None:
                return found
            slot += size
            self._scannable -= size
        return reason


def _behind_call(read: Read, address: int) -> Optional[bool]:
    """Returns whether the code before an address (in any unit that `read` takes) ends in a call.

    Returns:
        None where that cannot be read, or only so far back that a longer call may go unseen.
    """
    for length in (LONGEST_CALL, address % PAGE_SIZE):
        if 0 < length <= min(address, LONGEST_CALL):
            code = read(address - length, length)
            if code is not None:
                found = is_call(code)
                return None if not found and length < LONGEST_CALL else found
    return None
