# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Follows closures, delegates and thunks: short code that loads the address of its data and jumps on.

Such code lies in private memory, one piece for each closure. The forms are:

* libffi's trampolines (described: libffi, `src/x86/ffiw64.c`, `ffi.c`)
* UMEntryThunk of .NET (described: dotnet/runtime, `vm/amd64/cgenamd64.cpp`)
* ATL's thunks (described: Microsoft, `atlstdthunk.h`)

A thunk of AutoHotkey's RegisterCallback and CallbackCreate for x86 calls instead, and its address is on
stacks (described: AutoHotkey, `script2.cpp`, `RCCallbackFunc`; the code that writes it is in AutoHotkey.exe
1.1 of 32 bits: listing).

Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

import re
from typing import Dict, Optional, Tuple

from ...memory.decode.machine import Machine
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import unsigned
from .jumps import Read, follow_jumps

_MOST_INSTRUCTIONS = 6
_LONGEST = 10
_FIXED = {
    Machine.AMD64: ((b"\xf3\x0f\x1e\xfa", 4), (b"\x90", 1), (b"\xf8", 1), (b"\xf9", 1)),
    Machine.I386: ((b"\xf3\x0f\x1e\xfb", 4), (b"\x90", 1), (b"\x68", 5), (b"\xc7\x44\x24\x04", 8)),
}
"""First bytes and lengths of instructions that load no register: endbr, nop; clc and stc, by which libffi
marks whether xmm registers have arguments; push imm32, mov dword ptr [esp+4], imm32."""

_CALLING = re.compile(rb"\xe8\0{4}\x8d\x44\x24\x08\x50\xff\x15(.{4})\x59\x83\xc4.\xff\xe1", re.DOTALL)
"""call to the next instruction; lea eax, [esp+8]; push eax; call [address]; pop ecx; add esp, imm8; jmp ecx:
it pushes the addresses of its arguments and of itself, and returns when the function that it calls does."""
_BEFORE, _BEHIND = 16, 6
"""Bytes of this code up to where its call returns, and behind."""


class _Load(NamedTuple):
    """An instruction at the start of a closure: its length, the register that it loads, and the value."""

    length: int
    register: Optional[int] = None
    value: Optional[int] = None


def closure_target(read: Read, start: int, machine: Machine) -> Optional[int]:
    """Returns the address to which a closure jumps, None if the code is none, or code of ARM64."""
    registers: Dict[int, Optional[int]] = {}
    address = start
    if machine not in _FIXED:
        return None
    for _ in range(_MOST_INSTRUCTIONS):
        target = follow_jumps(read, address, machine)
        if target is not None:
            return target
        code = next(filter(None, (read(address, size) for size in range(_LONGEST, 1, -1))), b"")
        jumped = _jumps_by(code, machine)
        if jumped is not None:
            target = registers.get(jumped)
            further = None if target is None else follow_jumps(read, target, machine)
            return target if further is None else further
        load = _load(read, address, code, machine)
        if load is None:
            return None
        address += load.length
        if load.register is not None:
            registers[load.register] = load.value
    return None


def called_by_thunk(read: Read, address: int, machine: Machine) -> Optional[int]:
    """Returns the address that a thunk calls which does nothing else; `address` is where its call returns.

    None if the code there is other code, or a page is missing.
    """
    if machine is not Machine.I386:
        return None
    found = _CALLING.match(read(address - _BEFORE, _BEFORE + _BEHIND) or b"")
    return None if found is None else unsigned(read(int.from_bytes(found[1], "little"), machine.pointer_size))


def _jumps_by(code: bytes, machine: Machine) -> Optional[int]:
    """Returns the register of a jump by register at the start of code (FF /4), None if there is none."""
    rex, code = _rex(code, machine)
    if code[:1] == b"\xff" and code[1:2] and code[1] & 0xF8 == 0xE0:
        return code[1] & 7 | (rex & 1) << 3
    return None


def _load(read: Read, address: int, code: bytes, machine: Machine) -> Optional[_Load]:
    """Returns the load at an address, or None; `code` begins with its bytes."""
    length = next((size for start, size in _FIXED[machine] if code.startswith(start)), 0)
    if length:
        return _Load(length)
    size = machine.pointer_size
    rex, rest = _rex(code, machine)
    if machine is Machine.AMD64 and not rex & 8:
        return None
    before = len(code) - len(rest)
    if rest[:1] and rest[0] & 0xF8 == 0xB8 and len(rest) > size:
        value = int.from_bytes(rest[1 : 1 + size], "little")
        return _Load(before + 1 + size, rest[0] & 7 | (rex & 1) << 3, value)
    if machine is Machine.AMD64 and rest[:1] in (b"\x8d", b"\x8b") and len(rest) >= 6 and rest[1] & 0xC7 == 5:
        # lea or mov register, [rip + disp32]
        end = address + before + 6
        place = end + int.from_bytes(rest[2:6], "little", signed=True) & (1 << 8 * size) - 1
        loaded = unsigned(read(place, size)) if rest[0] == 0x8B else place
        return _Load(before + 6, rest[1] >> 3 & 7 | (rex & 4) << 1, loaded)
    return None


def _rex(code: bytes, machine: Machine) -> Tuple[int, bytes]:
    """Returns the REX prefix of an instruction, 0 if it has none, and the bytes behind it."""
    if machine is Machine.AMD64 and code[:1] and code[0] & 0xF0 == 0x40:
        return code[0], code[1:]
    return 0, code
