# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Is the instruction before an address a call? The mark of a return address, x86 and x64.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, CALL (E8, FF /2).
"""

from __future__ import annotations

from typing import Iterator, Optional

from ...names.decode.unwindinfo import Bytes

LONGEST_CALL = 7
"""Bytes of the longest call without prefixes: FF /2 with a SIB byte and a displacement of four bytes."""

_NEAR = 5
_DISPLACEMENT = {0: 0, 1: 1, 2: 4}


def is_call(before: Bytes) -> bool:
    """Tells whether bytes of code end in a call.

    Args:
        before: the bytes before the supposed return address; LONGEST_CALL of them decide every case
    """
    return next(lengths(before), None) is not None


def lengths(before: Bytes) -> Iterator[int]:
    """Yields how many bytes the call before an address may have; `before` is that of `is_call`."""
    code = bytes(before[-LONGEST_CALL:])
    if code[-_NEAR:-4] == b"\xe8":
        yield _NEAR
    for start in range(len(code) - 1):
        if code[start] == 0xFF and _indirect(code[start + 1 :]):
            yield len(code) - start


def direct_target(before: Bytes, address: int) -> Optional[int]:
    """Returns where a direct call that ends at an address goes, or None if none does.

    Args:
        before: the bytes before the address, five or more
        address: the return address, in any unit that code is counted in
    """
    code = bytes(before[-_NEAR:])
    if len(code) == _NEAR and code[0] == 0xE8:
        return address + int.from_bytes(code[1:], "little", signed=True)
    return None


def _indirect(operand: bytes) -> bool:
    """Tells whether bytes are exactly the operand of a call through a register or memory (FF /2)."""
    mode, operation, base = operand[0] >> 6, operand[0] >> 3 & 7, operand[0] & 7
    if operation != 2:
        return False
    if mode == 3:
        return len(operand) == 1
    sib = base == 4
    if sib and len(operand) < 2:
        return False
    no_base = mode == 0 and (operand[1] & 7 if sib else base) == 5
    return len(operand) == 1 + sib + (4 if no_base else _DISPLACEMENT[mode])
