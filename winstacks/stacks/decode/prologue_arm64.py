# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether ARM64 code agrees with its unwind data: at the start of a function, and where it was interrupted.

Some unwind data only approximates the code: the data of V8's builtins has one pair of codes for many
functions. Other code was changed in memory. Both show in the prologue: each of its instructions has a code.

Source: Arm Architecture Reference Manual for A-profile, the encodings. Of 65,872 functions of MSVC, clang and
flang no prologue disagrees; of 6.8 million instructions in bodies 28 look like a prologue (measured).
"""

from __future__ import annotations

import struct
from typing import Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import signed
from ...names.decode.unwind_arm64 import (
    ADD_FP,
    ALLOC,
    D0,
    FP,
    INSTRUCTION,
    LR,
    SAVE,
    SET_FP,
    UnwindCode,
    UnwindRecord,
)
from ...names.decode.unwindinfo import Bytes
from . import code_arm64

_MOV_FP_SP = 0x910003FD
_BRANCH_REGISTER = 0xD61F0000
_DETOUR = 4
"""Instructions in which the jump of a hook ends: an address is loaded before it, or lies behind it."""
_STORES = {
    0xA9000000: (0, 8, 15),
    0xA9800000: (0, 8, 15),
    0x6D000000: (D0, 8, 15),
    0x6D800000: (D0, 8, 15),
    0xAD000000: (D0, 16, 15),
    0xAD800000: (D0, 16, 15),
    0xF9000000: (0, 8, 10),
    0xFD000000: (D0, 8, 10),
}
"""stp and str with sp as base: first register, unit of the offset, lowest bit of the offset."""
_SINGLES = {0xF8000C00: 0, 0xFC000C00: D0}
"""str, pre-indexed: first register."""


class _Store(NamedTuple):
    """A store with sp as base: registers, offset, bytes by which it lowers the stack pointer."""

    registers: Tuple[int, ...]
    offset: int
    size: int


def _store(word: int) -> Optional[_Store]:
    """Returns the store that an instruction is, None if it is none of the known ones."""
    if word >> 5 & 31 != 31:
        return None
    first = _SINGLES.get(word & 0xFFE00C00)
    if first is not None:
        return _Store((first + (word & 31),), 0, -signed(word >> 12, 9))
    form = _STORES.get(word & 0xFFC00000)
    if form is None:
        return None
    first, unit, lowest = form
    if lowest == 10:
        return _Store((first + (word & 31),), (word >> 10 & 0xFFF) * unit, 0)
    registers = first + (word & 31), first + (word >> 10 & 31)
    offset = signed(word >> 15, 7) * unit
    return _Store(registers, 0, -offset) if word & 0x00800000 else _Store(registers, offset, 0)


def agrees(code: Bytes, record: UnwindRecord) -> bool:
    """Returns whether the first instructions of a function are those that its codes describe. `code` has the
    instructions of the prologue, as many as there are codes."""
    words = struct.unpack_from(f"<{record.prolog}I", code)
    codes = reversed(record.codes[: record.prolog])
    return all(_is_coded(word, unwind_code) for word, unwind_code in zip(words, codes))


def detour(code: Bytes) -> int:
    """Returns the length of the jump with which code begins, 0 if it begins with none: a hook is at the entry
    of the function."""
    words = struct.unpack_from(f"<{len(code) // INSTRUCTION}I", code)[:_DETOUR]
    if words and words[0] & 0xFC000000 == 0x14000000:
        return INSTRUCTION
    jumps = (place for place, word in enumerate(words, 1) if word & ~0x3E0 == _BRANCH_REGISTER)
    return INSTRUCTION * next(jumps, 0)


def _is_coded(word: int, code: UnwindCode) -> bool:
    """Returns whether an instruction may be what a code describes."""
    if code.operation == SET_FP:
        return word == _MOV_FP_SP
    if code.operation == ADD_FP:
        return word & 0xFFC003FF == _MOV_FP_SP and word >> 10 & 0xFFF == code.size
    store = _store(word)
    if code.operation == ALLOC:
        # A store may lower the stack pointer, too; what a call or a register subtracts is not looked at.
        if word & 0xFF8003FF == 0xD10003FF:
            return (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0) == code.size
        return store is None or store.size == code.size
    if code.operation == SAVE:
        if store is None:
            return code.registers[0] >= D0
        return store == (code.registers, code.offset, code.size)
    return True


def loads_pair(word: int) -> bool:
    """Returns whether an instruction is ldp fp, lr, [sp], #n, with which a frame ends."""
    return word & 0xFFC07FFF == 0xA8C07BFD


def stores_pair(word: int) -> bool:
    """Returns whether an instruction stores fp and lr on the stack, in any form: a frame begins."""
    return _pair_store(word) is not None


def _pair_store(word: int) -> Optional[_Store]:
    """Returns the store of fp and lr that an instruction is, None if it is another instruction."""
    found = _store(word)
    return found if found is not None and found.registers == (FP, LR) else None


def outside_of_body(before: int, word: int) -> bool:
    """Returns whether an instruction belongs to a prologue or an epilogue: then no function is in its body
    there."""
    pairs = _pair_store(word), _pair_store(before)
    return (
        any(found is not None and found.size for found in pairs)
        or word == _MOV_FP_SP
        or code_arm64.returns(word)
        or loads_pair(before)
    )
