# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rule of unwinding from a place in an x64 function, derived once, before any stack is read.

Unwind codes, and the rest of an epilogue, are applied to symbols: the place on the stack of each saved
register, and of the caller's stack pointer, relative to a register of the function. Such a rule is the same
for every stack that passes through the place. Source: Microsoft, "x64 exception handling", "Unwind
procedure"; framehop, an unwinder in Rust, also calls this a rule.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from ...memory.decode.records import NamedTuple
from ...names.decode.unwindinfo import (
    ALLOC_LARGE,
    ALLOC_SMALL,
    PUSH_MACHFRAME,
    PUSH_NONVOL,
    SAVE_NONVOL,
    SAVE_NONVOL_FAR,
    SAVE_XMM128,
    SAVE_XMM128_FAR,
    SET_FPREG,
    Code,
    UnwindInfo,
)
from .epilogue import Epilogue
from .registers import RSP

FAR = 1 << 62
"""An offset behind every prologue."""

REGISTERS = 16
"""Number of general registers. Base numbers from this one on are loads."""

_SLOT, _XMM = 8, 16
_RSP_IN_MACHINE_FRAME = 24


class SavedAt(NamedTuple):
    """An address: the value of a base, plus an offset.

    The base is the number of a general register, as it is in the function; or 16 plus the number of a load,
    if the base register itself had been saved before.
    """

    base: int
    offset: int


class Load(NamedTuple):
    """A read of the stack, of 8 or 16 bytes."""

    place: SavedAt
    size: int


class Rule(NamedTuple):
    """The unwinding of one frame.

    Attributes:
        loads: reads of the stack, in order
        general: for each saved general register, the number of its load; never Rsp
        xmm: for each saved Xmm register, the number of its load
        sp: address of the return address: the caller's stack pointer before the return address is popped
        ip: number of the load of the caller's Rip if a machine frame holds it; None: the return address is at
            `sp`
    """

    loads: Tuple[Load, ...]
    general: Dict[int, int]
    xmm: Dict[int, int]
    sp: SavedAt
    ip: Optional[int] = None


RETURN = Rule((), {}, {}, SavedAt(RSP, 0))
"""The rule of a function that only has to return: its return address is on top of the stack."""


def of_prologue(chain: Sequence[UnwindInfo], offset: int) -> Rule:
    """Returns the rule that undoes the prologue of a function.

    Args:
        chain: unwind data of the function, then the unwind data to which it is chained
        offset: offset in the function where execution will continue: only codes up to there were executed
    """
    undoing = _Undoing()
    for number, info in enumerate(chain):
        undoing.undo(info, FAR if number else offset)
    return undoing.rule()


def of_epilogue(rest: Epilogue) -> Rule:
    """Returns the rule for the rest of an epilogue, up to its return, jump or return from interrupt."""
    undoing = _Undoing()
    if rest.base is not None:
        undoing.sp = undoing.place(rest.base)
    undoing.release(rest.adjust)
    for register in rest.pops:
        undoing.pop(register)
    if rest.from_interrupt:
        undoing.pop_machine_frame()
    return undoing.rule()


class _Undoing:
    """Registers during unwinding, as places on the stack."""

    def __init__(self) -> None:
        self.sp = SavedAt(RSP, 0)
        self._loads: List[Load] = []
        self._general: Dict[int, int] = {}
        self._xmm: Dict[int, int] = {}
        self._ip: Optional[int] = None

    def rule(self) -> Rule:
        """Returns the rule for all steps so far."""
        return Rule(tuple(self._loads), self._general, self._xmm, self.sp, self._ip)

    def place(self, register: int) -> SavedAt:
        """Returns the place of a general register's current value."""
        if register == RSP:
            return self.sp
        load = self._general.get(register)
        return SavedAt(register if load is None else REGISTERS + load, 0)

    def release(self, size: int) -> None:
        """Moves the stack pointer up."""
        self.sp = _behind(self.sp, size)

    def pop(self, register: int) -> None:
        """Takes a general register from the top of the stack; for a pushed Rsp only the slot is removed."""
        if register != RSP:
            self._general[register] = self._load(self.sp)
        self.release(_SLOT)

    def pop_machine_frame(self) -> None:
        """Takes Rip and Rsp from the frame that the processor pushed: Rip, SegCs, EFlags, Rsp, SegSs."""
        self._ip = self._load(self.sp)
        sp = self._load(_behind(self.sp, _RSP_IN_MACHINE_FRAME))
        self.sp = SavedAt(REGISTERS + sp, 0)

    def undo(self, info: UnwindInfo, offset: int) -> None:
        """Undoes the codes of a prologue up to an offset in it, the last code first."""
        executed = [code for code in info.codes if code.offset <= offset]
        frame = self.sp
        if info.frame_register and (
            offset >= info.prolog_size or any(code.operation == SET_FPREG for code in executed)
        ):
            frame = self._frame(info)
        for code in executed:
            self._undo(code, info, frame)

    def _undo(self, code: Code, info: UnwindInfo, frame: SavedAt) -> None:
        """Undoes one code; `frame` is the base of the fixed allocation."""
        if code.operation == PUSH_NONVOL:
            self.pop(code.info)
        elif code.operation in (ALLOC_SMALL, ALLOC_LARGE):
            self.release(code.value)
        elif code.operation == SET_FPREG:
            self.sp = self._frame(info)
        elif code.operation in (SAVE_NONVOL, SAVE_NONVOL_FAR):
            self._general[code.info] = self._load(_behind(frame, code.value))
            if code.info == RSP:
                self.sp = SavedAt(REGISTERS + self._general.pop(RSP), 0)
        elif code.operation in (SAVE_XMM128, SAVE_XMM128_FAR):
            self._xmm[code.info] = self._load(_behind(frame, code.value), _XMM)
        elif code.operation == PUSH_MACHFRAME:
            # The processor pushes an error code for some interrupts only.
            self.release(_SLOT * (code.info & 1))
            self.pop_machine_frame()

    def _frame(self, info: UnwindInfo) -> SavedAt:
        return _behind(self.place(info.frame_register), -info.frame_offset)

    def _load(self, place: SavedAt, size: int = _SLOT) -> int:
        self._loads.append(Load(place, size))
        return len(self._loads) - 1


def _behind(place: SavedAt, distance: int) -> SavedAt:
    return SavedAt(place.base, place.offset + distance)
