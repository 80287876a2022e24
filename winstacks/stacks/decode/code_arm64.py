# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64 code, as far as a walk up a stack looks at it: calls, branch islands, writes to the stack pointer.

Source: Arm Architecture Reference Manual for A-profile, the encodings of the named instructions.
"""

from __future__ import annotations

import struct
from typing import Optional

from ...names.decode.unwindinfo import Bytes

_SP = 31
_BL = 0x25
"""The upper bits of bl."""


def is_call(before: Bytes) -> bool:
    """Returns whether bytes of code end in a call: bl, blr, or an authenticated form of blr. `before` has the
    bytes before the supposed return address; the last four are enough."""
    if len(before) < 4:
        return False
    word = int.from_bytes(before[-4:], "little")
    return is_direct_call(before) or word & 0xFFFFFC1F == 0xD63F0000 or word & 0xFEFFF800 == 0xD63F0800


def is_direct_call(before: Bytes) -> bool:
    """Returns whether bytes of code end in a call of a fixed address: bl."""
    return int.from_bytes(before[-4:], "little") >> 26 == _BL


def goes_elsewhere(word: int) -> bool:
    """Returns whether what follows an instruction is not run next, or only behind a call: b, bl, br, blr,
    ret, and what authenticates first."""
    return word & 0x7C000000 == 0x14000000 or word & 0xFE000000 == 0xD6000000


def stores_lr(code: Optional[Bytes]) -> bool:
    """Returns whether an instruction lowers the stack pointer and stores lr there: str x30, [sp, #-n]!."""
    return code is not None and int.from_bytes(code, "little") & 0xFFF00FFF == 0xF8100FFE


def returns(word: int) -> bool:
    """Returns whether an instruction returns to the address in lr: ret, retaa or retab."""
    return word in (0xD65F03C0, 0xD65F0BFF, 0xD65F0FFF)


def island_target(code: Bytes, rva: int) -> Optional[int]:
    """Returns the RVA to which a branch island jumps, None if the code is no island.

    Args:
        code: adrp, add, br
        rva: RVA of the first of these instructions
    """
    page, low, branch = struct.unpack("<3I", code)
    register = page & 31
    jump = page & 0x9F000000 == 0x90000000 and low & 0xFFC00000 == 0x91000000
    if not jump or low & 0x3FF != register << 5 | register or branch != 0xD61F0000 | register << 5:
        return None
    pages = (page >> 5 & 0x7FFFF) << 2 | page >> 29 & 3
    if pages & 1 << 20:
        pages -= 1 << 21
    return (rva & ~0xFFF) + (pages << 12) + (low >> 10 & 0xFFF)


def moves_sp(code: Bytes) -> bool:
    """Returns whether an instruction in a stretch of code writes to the stack pointer."""
    return any(_writes_sp(word) for (word,) in struct.iter_unpack("<I", code[: len(code) & ~3]))


def _writes_sp(word: int) -> bool:
    if word & 31 == _SP:
        immediate = word & 0x3F800000 == 0x11000000  # add, sub
        extended = word & 0x3FE00000 == 0x0B200000
        logical = word & 0x1F800000 == 0x12000000 and word & 0x60000000 != 0x60000000
        vectors = word & 0xFFE0F800 in (0x04205000, 0x04605000)  # addvl, addpl
        if immediate or extended or logical or vectors:
            return True
    if word >> 5 & 31 != _SP:
        return False
    single = word & 0x3B200400 == 0x38000400  # ldr, str; pre- and post-indexed
    pair = word & 0x3A800000 == 0x28800000  # ldp, stp; pre- and post-indexed
    structures = word & 0xBE800000 == 0x0C800000  # ld1 to st4, post-indexed
    return single or pair or structures
