# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 instructions: the length of each, and the places of its ModRM byte and its operand.

Source: Intel, "64 and IA-32 Architectures Software Developer's Manual", volume 2, appendix A (opcode maps).
"""

from __future__ import annotations

from typing import List, Optional

from ...memory.decode.records import NamedTuple

_PREFIXES = frozenset((0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0xF0, 0xF2, 0xF3))
_NO, _MODRM, _IMM8, _IMM, _MODRM_IMM8, _MODRM_IMM, _IMM16, _BAD = range(8)


def _one_byte() -> List[int]:
    """Returns the form (ModRM byte, immediate) of each one-byte opcode."""
    form = [_NO] * 256
    for row in range(0, 0x40, 8):
        form[row : row + 6] = [_MODRM] * 4 + [_IMM8, _IMM]
    spans = (
        ((0x62, 0x63), _MODRM),
        ((0x67, 0x67), _BAD),
        ((0x68, 0x68), _IMM),
        ((0x69, 0x69), _MODRM_IMM),
        ((0x6A, 0x6A), _IMM8),
        ((0x6B, 0x6B), _MODRM_IMM8),
        ((0x70, 0x7F), _IMM8),
        ((0x80, 0x83), _MODRM_IMM8),
        ((0x81, 0x81), _MODRM_IMM),
        ((0x84, 0x8F), _MODRM),
        ((0x9A, 0x9A), _BAD),
        ((0xA0, 0xA3), _IMM),
        ((0xA8, 0xA8), _IMM8),
        ((0xA9, 0xA9), _IMM),
        ((0xB0, 0xB7), _IMM8),
        ((0xB8, 0xBF), _IMM),
        ((0xC0, 0xC1), _MODRM_IMM8),
        ((0xC2, 0xC2), _IMM16),
        ((0xC4, 0xC5), _BAD),
        ((0xC6, 0xC6), _MODRM_IMM8),
        ((0xC7, 0xC7), _MODRM_IMM),
        ((0xC8, 0xC8), _BAD),
        ((0xCA, 0xCB), _BAD),
        ((0xCD, 0xCD), _IMM8),
        ((0xD0, 0xD3), _MODRM),
        ((0xD4, 0xD5), _IMM8),
        ((0xD8, 0xDF), _MODRM),
        ((0xE0, 0xE7), _IMM8),
        ((0xE8, 0xE9), _IMM),
        ((0xEA, 0xEA), _BAD),
        ((0xEB, 0xEB), _IMM8),
        ((0xF6, 0xF7), _MODRM),
        ((0xFE, 0xFF), _MODRM),
    )
    for (low, high), kind in spans:
        form[low : high + 1] = [kind] * (high - low + 1)
    return form


def _two_bytes() -> List[int]:
    """Returns the form of each two-byte opcode, by its second byte; the first is 0F."""
    form = [_MODRM] * 256
    for low, high in ((0x05, 0x0C), (0x30, 0x37), (0x77, 0x77), (0xA0, 0xA2), (0xA8, 0xAA), (0xC8, 0xCF)):
        form[low : high + 1] = [_NO] * (high - low + 1)
    form[0x80:0x90] = [_IMM] * 16
    for opcode in (0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6):
        form[opcode] = _MODRM_IMM8
    return form


_ONE, _TWO = _one_byte(), _two_bytes()


class Instruction(NamedTuple):
    """An instruction: its opcode (0F and a second byte: 0F00h + that byte), and the places of ModRM and the
    operand."""

    opcode: int
    modrm: int
    operand: int
    end: int
    prefixed: bool


def instruction(code: bytes, at: int) -> Optional[Instruction]:
    """Decodes the instruction at a position in code; None if compilers never generate it, or it is cut."""
    try:
        return _instruction(code, at)
    except IndexError:
        return None


def _instruction(code: bytes, position: int) -> Optional[Instruction]:
    start, wide = position, 4
    while code[position] in _PREFIXES:
        if code[position] == 0x66:
            wide = 2
        position += 1
        if position - start > 4:
            return None
    prefixed = position > start
    opcode = code[position]
    position += 1
    if opcode == 0x0F:
        second = code[position]
        position += 1
        opcode = 0x0F00 | second
        form = _TWO[second]
        if second in (0x38, 0x3A):
            position += 1
            form = _MODRM if second == 0x38 else _MODRM_IMM8
    else:
        form = _ONE[opcode]
    modrm = position
    if form == _BAD:
        return None
    if form in (_MODRM, _MODRM_IMM8, _MODRM_IMM):
        byte = code[position]
        mode, base = byte >> 6, byte & 7
        position += 1
        if mode != 3:
            if base == 4:
                base = code[position] & 7
                position += 1
            if mode == 1:
                position += 1
            elif mode == 2 or base == 5:
                position += 4
        if opcode in (0xF6, 0xF7) and byte & 0x30 == 0:
            form = _MODRM_IMM8 if opcode == 0xF6 else _MODRM_IMM
    operand = position
    if form in (_IMM8, _MODRM_IMM8):
        position += 1
    elif form in (_IMM, _MODRM_IMM):
        position += 4 if 0xA0 <= opcode <= 0xA3 else wide
    elif form == _IMM16:
        position += 2
    return Instruction(opcode, modrm, operand, position, prefixed) if position <= len(code) else None
