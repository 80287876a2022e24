# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What unwinding does from an x64 return address: found out once, and carried out for every stack.

Most frames of a stack are calls that have not returned yet. What unwind data says of such a call depends on
the return address alone, so it is put into the form of one read of the stack: where the saved registers and
the caller's return address lie, and how far the stack pointer moves. Whatever does not take this form (a
machine frame, two bases, a saved stack pointer) is left to `step_x64`, which knows all forms.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import Any, Callable, Dict, List, Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...names.decode.functiontable import FunctionTable
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
    UnwindDataError,
    UnwindInfo,
)
from .registers import NON_VOLATILE, NON_VOLATILE_XMM, RSP, Values

FAR = 1 << 62
"""A position behind every prologue."""

MOST = 1 << 12
"""Return addresses of which is kept what was found out, of an address space and of a module."""

_REGISTERS = 16
_SLOT = 8


class Effect:
    """What unwinding from a return address does, as one read of the stack.

    Args:
        base: the number of the register from which offsets count
        slots: offsets of what is read, ascending, eight bytes each and disjoint
        general: which slot each general register was saved in
        xmm: which slot the lower half of each Xmm register was saved in; the upper half is in the next one
        returns: the slot of the caller's return address
        release: what is added to the base for the caller's stack pointer

    Attributes:
        base: as given
        start: offset of the first byte that is read
        size: how many bytes are read
        unpack: takes bytes and where in them the read begins, and returns the slots
        returns: as given
        release: as given
        xmm: pairs of a register and its slot
        general: takes 16 registers, the slots, the new stack pointer and None; returns the caller's registers
    """

    __slots__ = ("base", "general", "release", "returns", "size", "start", "unpack", "xmm")

    def __init__(
        self,
        base: int,
        slots: List[int],
        general: Dict[int, int],
        xmm: Dict[int, int],
        returns: int,
        release: int,
    ) -> None:
        gaps = [after - before - _SLOT for before, after in zip(slots, slots[1:])]
        layout = struct.Struct("<Q" + "".join(f"{gap}xQ" for gap in gaps))
        sp = _REGISTERS + len(slots)
        sources = [number if number in NON_VOLATILE else sp + 1 for number in range(_REGISTERS)]
        for number, slot in general.items():
            sources[number] = _REGISTERS + slot
        sources[RSP] = sp
        self.base = base
        self.start = slots[0]
        self.size = layout.size
        self.unpack: Callable[[Any, int], Tuple[int, ...]] = layout.unpack_from
        self.returns = returns
        self.release = release
        self.xmm = tuple(xmm.items())
        self.general: Callable[[Values], Values] = itemgetter(*sources)


Site = Tuple[Optional[Effect], bool]
"""Of a return address: the effect, None where it takes more than one; whether code shows that no call is
before it."""


def effect_at(table: FunctionTable, rva: int) -> Optional[Effect]:
    """Returns what unwinding from the return address at an RVA does, None if that is no single read.

    The table keeps it: processes share a table if they are proven to have the same unwind data.
    """
    kept = table.derived
    if rva not in kept:
        if len(kept) >= MOST:
            kept.clear()
        kept[rva] = _found(table, rva)
    found: Optional[Effect] = kept[rva]
    return found


def _found(table: FunctionTable, rva: int) -> Optional[Effect]:
    piece = table.find(rva - 1)
    if piece is None:
        return None
    try:
        entry = table.direct(piece)
        chain = table.chain(entry)
    except UnwindDataError:
        return None
    return _Effects(rva - entry.begin if entry.begin <= rva < entry.end else FAR).of(chain)


class _NoSingleReadError(Exception):
    """What is undone has no single base, or is more than registers saved on the stack."""


class _Effects:
    """Undoes a chain of unwind data, with offsets from a register in the place of addresses.

    Args:
        offset: where in the function execution will go on
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._general: Dict[int, int] = {}
        self._xmm: Dict[int, int] = {}
        self._base, self._sp = RSP, 0
        self._bases: List[int] = []

    def of(self, chain: List[UnwindInfo]) -> Optional[Effect]:
        """Returns the effect of undoing the chain; None if it is no single read."""
        try:
            for number, info in enumerate(chain):
                self._undo(info, FAR if number else self._offset)
        except _NoSingleReadError:
            return None
        if any(each != self._base for each in self._bases):
            return None
        xmm = {number: offset for number, offset in self._xmm.items() if number in NON_VOLATILE_XMM}
        general = {number: offset for number, offset in self._general.items() if number in NON_VOLATILE}
        halves = [offset + half for offset in xmm.values() for half in (0, _SLOT)]
        slots = sorted({self._sp, *general.values(), *halves})
        if slots[-1] - slots[0] >= PAGE_SIZE or any(a + _SLOT > b for a, b in zip(slots, slots[1:])):
            return None
        place = {offset: number for number, offset in enumerate(slots)}
        return Effect(
            self._base,
            slots,
            {number: place[offset] for number, offset in general.items()},
            {number: place[offset] for number, offset in xmm.items()},
            place[self._sp],
            self._sp + _SLOT,
        )

    def _undo(self, info: UnwindInfo, offset: int) -> None:
        executed = [code for code in info.codes if code.offset <= offset]
        base, frame = self._base, self._sp
        if info.frame_register and (
            offset >= info.prolog_size or any(code.operation == SET_FPREG for code in executed)
        ):
            base, frame = self._frame(info)
            self._bases.append(base)
        for code in executed:
            self._undo_code(code, info, base, frame)

    def _undo_code(self, code: Code, info: UnwindInfo, base: int, frame: int) -> None:
        if code.operation == PUSH_NONVOL:
            self._save(self._general, code.info, self._base, self._sp)
            self._sp += _SLOT
        elif code.operation in (ALLOC_SMALL, ALLOC_LARGE):
            self._sp += code.value
        elif code.operation == SET_FPREG:
            self._base, self._sp = self._frame(info)
        elif code.operation in (SAVE_NONVOL, SAVE_NONVOL_FAR):
            self._save(self._general, code.info, base, frame + code.value)
        elif code.operation in (SAVE_XMM128, SAVE_XMM128_FAR):
            self._save(self._xmm, code.info, base, frame + code.value)
        elif code.operation == PUSH_MACHFRAME:
            raise _NoSingleReadError

    def _save(self, registers: Dict[int, int], number: int, base: int, offset: int) -> None:
        if number == RSP and registers is self._general:
            raise _NoSingleReadError
        self._bases.append(base)
        registers[number] = offset

    def _frame(self, info: UnwindInfo) -> Tuple[int, int]:
        """Returns the base of the fixed allocation: a register, and what is added to it."""
        if info.frame_register in (0, RSP) or info.frame_register in self._general:
            raise _NoSingleReadError
        return info.frame_register, -info.frame_offset
