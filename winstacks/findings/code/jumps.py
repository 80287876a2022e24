# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Follows the jumps that hooks, sandboxes and thunks write at the entry of a function.

Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

from typing import Callable, Optional, Tuple

from ...memory.decode.machine import Machine

ENTRY = 16
"""Bytes of a function's entry that a jump may replace: no encoding of a jump is longer."""

_MAX_HOPS = 4
_WIDE = 0x48
"""REX.W, which some tools write before a jump through a register."""

Read = Callable[[int, int], Optional[bytes]]
"""Takes an address and a number of bytes; returns these bytes, None if some are not there."""


def follow_jumps(read: Read, address: int, machine: Machine) -> Optional[int]:
    """Returns the final target of the jumps at an address, None if there is none."""
    way = hops(read, address, machine)
    return way[-1] if way else None


def hops(read: Read, address: int, machine: Machine) -> Tuple[int, ...]:
    """Returns the target of each of the consecutive jumps at an address; see `follow_jumps`."""
    way: Tuple[int, ...] = ()
    for _ in range(_MAX_HOPS):
        target = _jump(read, address, machine)
        if target is None:
            break
        way, address = (*way, target), target
    return way


def _jump(read: Read, at: int, machine: Machine) -> Optional[int]:
    """Returns the target of one jump, None if there is none or its target cannot be read.

    The code of ARM64 is not known here: it has no jump.
    """
    if machine is Machine.ARM64:
        return None
    pointer_size = machine.pointer_size
    wide, limit = machine is Machine.AMD64, (1 << 8 * pointer_size) - 1
    code = next(filter(None, (read(at, size) for size in range(ENTRY, 1, -1))), b"").ljust(ENTRY, b"\xcc")
    if code[0] == 0xEB:
        return at + 2 + int.from_bytes(code[1:2], "little", signed=True) & limit
    if code[0] == 0xE9:
        return at + 5 + int.from_bytes(code[1:5], "little", signed=True) & limit
    if code[:2] == b"\xff\x25":
        place = int.from_bytes(code[2:6], "little", signed=wide) + (at + 6 if wide else 0)
        data = read(place & limit, pointer_size)
        return None if data is None else int.from_bytes(data, "little")
    if wide and code[0] & 0xFE == 0x48 and code[1] & 0xF8 == 0xB8:
        # mov register, imm64; jmp register
        rest = code[10:13] if code[0] & 1 or code[10] == _WIDE else b"\x41" + code[10:12]
        rest = b"\x41" + rest[1:] if rest[:1] == bytes((_WIDE,)) and not code[0] & 1 else rest
        return (
            int.from_bytes(code[2:10], "little") if rest == bytes((0x41, 0xFF, 0xE0 | code[1] & 7)) else None
        )
    if not wide and code[0] & 0xF8 == 0xB8 and code[5:7] == bytes((0xFF, 0xE0 | code[0] & 7)):
        return int.from_bytes(code[1:5], "little")
    if code[0] == 0x68:
        # push imm32, in 64-bit code followed by a store of the upper half; ret
        low = int.from_bytes(code[1:5], "little", signed=wide) & limit
        if code[5] == 0xC3:
            return low
        if wide and code[5:9] == b"\xc7\x44\x24\x04" and code[13] == 0xC3:
            return low & 0xFFFFFFFF | int.from_bytes(code[9:13], "little") << 32
    return None
