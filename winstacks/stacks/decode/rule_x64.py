# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What unwinding from a place in an x64 function does, found out once, before any stack is looked at.

Unwind codes, and what is left of an epilogue, are carried out on symbols: where in the stack each saved
register lies, and where the caller's stack pointer is, counted from a register of the function. Such a rule
is the same for every stack that passes there. Source: Microsoft, "x64 exception handling", "Unwind
procedure"; the name is that of the Rust unwinder framehop.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

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
"""General registers. Bases from this number on are loads."""

_SLOT, _XMM = 8, 16
_RSP_IN_MACHINE_FRAME = 24


class SavedAt(NamedTuple):
    """An address: what a base holds, plus an offset.

    The base is the number of a general register, with the value that it has in the function, or 16 plus the
    number of a load, where the register had been saved before it serves as base.
    """

    base: int
    offset: int


class Load(NamedTuple):
    """A read of the stack, of 8 or 16 bytes."""

    place: SavedAt
    size: int


class Rule(NamedTuple):
    """What unwinding does.

    Attributes:
        loads: the reads of the stack, in their order
        general: the number of the load that has each general register which was saved; not Rsp
        xmm: the same for Xmm registers
        sp: the caller's stack pointer, before the return address is popped
        ip: the load that has the caller's Rip, where a machine frame begins with it; None: it is at `sp`
    """

    loads: Tuple[Load, ...]
    general: Dict[int, int]
    xmm: Dict[int, int]
    sp: SavedAt
    ip: Optional[int] = None


RETURN = Rule((), {}, {}, SavedAt(RSP, 0))
"""What a return does, where nothing else is left to do."""


def of_prologue(chain: Sequence[UnwindInfo], offset: int) -> Rule:
    """Returns what undoes the prologue of a function.

    Args:
        chain: its unwind data, and that to which it is chained
        offset: where in the function execution will go on: only codes up to there were executed
    """
    undoing = _Undoing()
    for number, info in enumerate(chain):
        undoing.undo(info, FAR if number else offset)
    return undoing.rule()


def of_epilogue(rest: Epilogue) -> Rule:
    """Returns what the rest of an epilogue does, up to its return, its jump or its return from interrupt."""
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
    """Registers while they are unwound, as places in the stack.

    Attributes:
        sp: the stack pointer
    """

    def __init__(self) -> None:
        self.sp = SavedAt(RSP, 0)
        self._loads: List[Load] = []
        self._general: Dict[int, int] = {}
        self._xmm: Dict[int, int] = {}
        self._ip: Optional[int] = None

    def rule(self) -> Rule:
        """Returns what was done so far."""
        return Rule(tuple(self._loads), self._general, self._xmm, self.sp, self._ip)

    def place(self, register: int) -> SavedAt:
        """Returns what a general register holds now."""
        if register == RSP:
            return self.sp
        load = self._general.get(register)
        return SavedAt(register if load is None else REGISTERS + load, 0)

    def release(self, size: int) -> None:
        """Moves the stack pointer up."""
        self.sp = _behind(self.sp, size)

    def pop(self, register: int) -> None:
        """Takes a general register from the top of the stack; of a pushed Rsp only the slot counts."""
        if register != RSP:
            self._general[register] = self._load(self.sp)
        self.release(_SLOT)

    def pop_machine_frame(self) -> None:
        """Takes Rip and Rsp from what the processor pushed: Rip, SegCs, EFlags, Rsp, SegSs."""
        self._ip = self._load(self.sp)
        sp = self._load(_behind(self.sp, _RSP_IN_MACHINE_FRAME))
        self.sp = SavedAt(REGISTERS + sp, 0)

    def undo(self, info: UnwindInfo, offset: int) -> None:
        """Undoes the codes of a prologue up to an offset in it, the last first."""
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
