# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The write barriers of CLR: code that stores a pointer and marks a card of memory.

CLR rewrites its barriers whenever its heap grows, in each process with other numbers and with another one of
several bodies (described: dotnet/runtime, `vm/amd64/JitHelpers_FastWriteBarriers.asm`,
`vm/i386/jithelp.asm`, `StompWriteBarrierEphemeral`). Without symbols a barrier has no name. Its code is known
by what it can do: it begins with the store of a register, then compares, shifts, stores and returns. Code
without a call, an indirect jump, a push or a system call leads nowhere.

Source of the encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from __future__ import annotations

from typing import Optional

from ...memory.decode.machine import Machine
from ...stacks.decode.instructions_x86 import instruction
from .differing import Ranges
from .jumps import Read

LONGEST = 0x100
"""The longest barrier, in bytes."""
_BEFORE = 0x80
"""The most bytes before the first changed byte at which a barrier may begin."""
_LONGEST_INSTRUCTION = 16

_REX, _WIDE = range(0x40, 0x50), 8
_STORE = 0x89
"""mov [register], register."""
_TARGETS = {Machine.AMD64: (1, 7), Machine.I386: (2, 1)}
"""Registers with the place to write to: Rcx, in JIT_ByRefWriteBarrier Rdi; Edx, Ecx in a debug build."""
_MOVES = (*range(0x88, 0x8C), 0x8D, 0xA4, 0xA5, *range(0xB0, 0xC0), 0x0FB6, 0x0FB7)
_COMPARES = (*range(0x38, 0x3E), 0x84, 0x85, 0xA8, 0xA9)
_ARITHMETIC = (0x01, 0x03, *range(0x08, 0x0C), *range(0x20, 0x24), 0x29, 0x2B, 0x31, 0x33, 0x81, 0x83)
_NOTHING = (0x90, 0x0F1F)
_JUMPS = (*range(0x70, 0x80), 0xEB)
_BY_OPERATION = {0x80: (1, 7), 0xC6: (0,), 0xF6: (0,), **dict.fromkeys((0xC1, 0xD1, 0xD2, 0xD3), (4, 5))}
"""Operations of the opcodes with several: or and cmp, mov, test, shl and shr."""
_PLAIN = frozenset((*_MOVES, *_COMPARES, *_ARITHMETIC, *_NOTHING))
_RETURN, _FILLERS = 0xC3, b"\xcc\x90"
_WITHOUT_MODRM = frozenset((0x3C, 0x3D, 0xA4, 0xA5, 0xA8, 0xA9, 0x90, *range(0xB0, 0xC0)))
_TO_REGISTER = frozenset((0x03, 0x0B, 0x23, 0x2B, 0x33, 0x8B, 0x8D, 0x0FB6, 0x0FB7))
"""Opcodes whose result is in the register that ModRM.reg names."""
_STACK = 4
"""Number of Rsp and Esp, which a barrier does not use."""


def is_write_barrier(read: Read, changed: Ranges, machine: Machine) -> bool:
    """Returns whether all changed bytes of a function are the code of one write barrier."""
    first, end = changed[0][0], changed[-1][1]
    for start in range(first, first - _BEFORE, -1):
        stop = None if end - start > LONGEST else _end_of(read, start, machine)
        if stop is not None and end <= stop:
            return True
    return False


def _end_of(read: Read, start: int, machine: Machine) -> Optional[int]:
    """Returns the end of the barrier that begins at an address, with what fills it up; None if none does."""
    code = next(filter(None, (read(start, size) for size in (LONGEST, LONGEST // 4))), b"")
    if not _begins(code, machine):
        return None
    at = farthest = 0
    while at < len(code):
        length = _length(code, at, machine)
        if length is None:
            return None
        opcode = code[at + length - 2]
        if length == 2 and opcode in _JUMPS:
            farthest = max(farthest, at + 2 + int.from_bytes(code[at + 1 : at + 2], "little", signed=True))
        at += length
        if code[at - 1] == _RETURN and length <= 2 and at > farthest:
            while at < len(code) and code[at] in _FILLERS:
                at += 1
            return start + at if farthest <= at else None
    return None


def _begins(code: bytes, machine: Machine) -> bool:
    """Returns whether code begins with the store of a register to where a barrier writes."""
    rest = code[1:] if machine is Machine.AMD64 and code[:1] == b"\x48" else code
    wide = machine is Machine.I386 or rest is not code
    return wide and len(rest) > 2 and rest[0] == _STORE and rest[1] & 0xC7 in _TARGETS[machine]


def _length(code: bytes, at: int, machine: Machine) -> Optional[int]:
    """Returns the length of an instruction, None if no barrier has it."""
    if code[at] == _RETURN:
        return 1
    if code[at : at + 2] == bytes((0xF3, _RETURN)):
        return 2
    rex = code[at] if machine is Machine.AMD64 and code[at] in _REX else 0
    begin = at + bool(rex)
    decoded = instruction(code[: begin + _LONGEST_INSTRUCTION], begin)
    if decoded is None:
        return None
    opcode, end = decoded.opcode, decoded.end
    if machine is Machine.AMD64 and 0xB8 <= opcode < 0xC0 and rex & _WIDE:
        end += 4
    if opcode in _JUMPS:
        forward = code[end - 1] < 0x80
        return end - at if forward and not rex and not decoded.prefixed else None
    if end > len(code) or (opcode == 0xB8 + _STACK and not rex & 1):
        return None
    if opcode in _WITHOUT_MODRM:
        return end - at
    modrm = code[decoded.modrm]
    operation = modrm >> 3 & 7
    if opcode not in _PLAIN and operation not in _BY_OPERATION.get(opcode, ()):
        return None
    stack = (modrm >> 6 == 3 and modrm & 7 == _STACK and not rex & 1) or (
        opcode in _TO_REGISTER and operation == _STACK and not rex & 4
    )
    return None if stack else end - at
