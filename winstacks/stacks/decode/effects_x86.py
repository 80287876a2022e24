# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The effect of one x86 instruction on the known values of Esp, Ebp and the registers that functions
preserve.

A depth is the distance of a place on the stack below the return address, in bytes.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; the prologues of Microsoft's
and GNU's compilers.
"""

from __future__ import annotations

import re
from typing import Optional, Tuple

from ...memory.decode.records import NamedTuple
from .instructions_x86 import Instruction

CALLERS, OURS, BASED, COPY, OTHER = range(5)
"""Value of Ebp: the caller's, the frame pointer that the function has set up, or something else.

OURS points at the caller's Ebp right below the return address, BASED at another known depth. COPY points at
the caller's Ebp too, but above it lies a copy of the return address: the function aligns its stack.
"""


_MASK = 0xFFFFFFFF


class StackPlace(NamedTuple):
    """The known stack state before an instruction.

    Attributes:
        depth: depth of Esp, in bytes; None if unknown
        ebp: value of Ebp: CALLERS, OURS, BASED, COPY or OTHER
        saved: depth of the caller's saved Ebp, None if it was not pushed
        loaded: for each of Ebx, Esi and Edi: address of the pointer that was loaded into it last (of an
            import, say), None for any other value
        frame: depth that Ebp points at if it is BASED, else None
        ebx: depth that Ebx points at; None if it points elsewhere, or if this is unknown
        eax: size that `mov eax, size` has put into Eax, None for any other value
    """

    depth: Optional[int]
    ebp: int
    saved: Optional[int]
    loaded: Tuple[Optional[int], ...] = (None, None, None)
    frame: Optional[int] = None
    ebx: Optional[int] = None
    eax: Optional[int] = None

    def return_slot(self, sp: int, bp: Optional[int]) -> Optional[int]:
        """Returns the address of the return address, from Ebp if possible, else from Esp; None if unknown."""
        if self.ebp == BASED and self.frame is not None:
            slot = None if bp is None else bp + self.frame & _MASK
            return slot if slot is not None and slot >= sp else None
        return None if self.depth is None else sp + self.depth & _MASK


ENTRY = StackPlace(0, CALLERS, None)
SET_UP = StackPlace(None, OURS, 4)
"""State behind the call of a helper that has set up the frame."""

_UNKNOWN = StackPlace(None, OTHER, None)
_FRAME = 4
"""Depth that a frame pointer usually points at."""


def merge_places(first: StackPlace, second: StackPlace) -> StackPlace:
    """Returns the facts that two states share: those that hold on both ways."""
    same = (first.ebp, first.frame) == (second.ebp, second.frame)
    return StackPlace(
        first.depth if first.depth == second.depth else None,
        first.ebp if same else OTHER,
        first.saved if first.saved == second.saved else None,
        tuple(this if this == other else None for this, other in zip(first.loaded, second.loaded)),
        first.frame if same else None,
        first.ebx if first.ebx == second.ebx else None,
        first.eax if first.eax == second.eax else None,
    )


def changed(code: bytes, found: Instruction, place: StackPlace) -> StackPlace:
    """Returns the state behind an instruction that neither jumps nor calls.

    Args:
        code: bytes that hold the instruction, and the code before it if available
        found: the instruction, with positions in `code`
    """
    byte = code[found.modrm] if found.modrm < found.operand else None
    after = _stack_changed(code, found, place)
    if place.eax is not None or found.opcode == _MOVE_EAX:
        after = after._replace(eax=_size_in_eax(code, found, byte, place))
    if place.loaded == _NONE_LOADED and place.ebx is None:
        if found.opcode not in (0x8B, 0x89) or (byte not in _LOADS and byte not in (0xDC, 0xE3)):
            return after
    written = _kept_written(found.opcode, byte)
    loaded = tuple(None if number in written else pointer for number, pointer in zip(KEPT, after.loaded))
    ebx = None if _EBX in written else after.ebx
    if found.opcode == 0x8B and byte in _LOADS and not found.prefixed:
        slot = int.from_bytes(code[found.modrm + 1 : found.modrm + 5], "little")
        loaded = tuple(slot if number == byte >> 3 else pointer for number, pointer in zip(KEPT, loaded))
    elif (found.opcode, byte) in ((0x8B, 0xDC), (0x89, 0xE3)):
        ebx = place.depth
    return after._replace(loaded=loaded, ebx=ebx)


def operand(code: bytes, found: Instruction) -> int:
    """Returns an instruction's immediate or jump distance: signed, except for the operand of a return."""
    data = code[found.operand : found.end]
    return int.from_bytes(data, "little", signed=found.opcode != 0xC2)


def _stack_changed(code: bytes, decoded: Instruction, place: StackPlace) -> StackPlace:
    """Returns the state of Esp and Ebp behind an instruction."""
    opcode = decoded.opcode
    if decoded.prefixed and opcode not in (0x89, 0x8B, 0xFF, 0x8F, 0x8D) and opcode < 0xF00:
        # A segment or lock prefix changes nothing here; no compiler generates a 16-bit push.
        if 0x50 <= opcode <= 0x61 or opcode in (0x68, 0x6A, 0x9C, 0x9D):
            return _UNKNOWN
    if opcode == 0x55:
        if place.ebp == CALLERS and place.saved is None and place.depth is not None:
            return place._replace(depth=place.depth + 4, saved=place.depth + 4)
        return _moved(place, 4)
    if 0x50 <= opcode <= 0x57 or opcode in (0x68, 0x6A, 0x9C, 0x06, 0x0E, 0x16, 0x1E, 0xFA0, 0xFA8):
        return _moved(place, 4)
    if opcode == 0x5D:
        return _popped(place)
    if opcode == 0x5C:
        return place._replace(depth=None)
    if 0x58 <= opcode <= 0x5F or opcode in (0x9D, 0x07, 0x17, 0x1F, 0xFA1, 0xFA9):
        return _moved(place, -4)
    if opcode == 0xC9:
        return _popped(place._replace(depth=_pointed_at(place))) if place.ebp in _FRAMES else _UNKNOWN
    if opcode == 0x60:
        return _moved(place, 32)
    if opcode in (0x61, 0x94, 0x95):
        return _UNKNOWN
    if decoded.modrm == decoded.operand:
        # Without a ModRM byte the low bits of the opcode may name a register that is written.
        return _written_by_opcode(opcode, place)
    return _with_modrm(code, decoded, place)


def _popped(place: StackPlace) -> StackPlace:
    """Returns the state behind `pop ebp`."""
    if place.ebp == COPY:
        return place._replace(depth=None, ebp=CALLERS, saved=None)
    if place.ebp in (OURS, BASED) and place.depth is None and place.saved is not None:
        # In a function with a frame pointer this is the end, so Esp is at the saved Ebp, whatever calls have
        # popped.
        place = place._replace(depth=place.saved)
    back = place.saved is not None and place.depth == place.saved
    return _moved(place, -4)._replace(ebp=CALLERS if back else OTHER, saved=None, frame=None)


def _with_modrm(code: bytes, decoded: Instruction, place: StackPlace) -> StackPlace:
    """Returns the state behind an instruction with a ModRM byte, if it names Esp or Ebp."""
    opcode, byte = decoded.opcode, code[decoded.modrm]
    mode, register, base = byte >> 6, byte >> 3 & 7, byte & 7
    if opcode == 0xFF and register == 6:
        return _moved(place, 4)
    if opcode == 0x8F:
        return _moved(place, -4) if mode != 3 or base not in (_ESP, _EBP) else _UNKNOWN
    if opcode in (0x81, 0x83) and byte in (0xEC, 0xC4):
        size = operand(code, decoded)
        return _moved(place, size if byte == 0xEC else -size)
    if (opcode, byte) in _ESP_LESS_EAX and place.eax is not None:
        return _moved(place, place.eax)
    if opcode in (0x81, 0x83) and byte in (0xED, 0xC5):
        size = operand(code, decoded)
        frame = _pointed_at(place)
        return _framed(place, None if frame is None else frame + (size if byte == 0xED else -size))
    if (opcode, byte) in ((0x8B, 0xEC), (0x89, 0xE5)):
        if place.depth is None and _copies(code, decoded, place):
            return place._replace(ebp=COPY, frame=None)
        return _framed(place, place.depth)
    if (opcode, byte) in ((0x8B, 0xE5), (0x89, 0xEC)):
        return place._replace(depth=_pointed_at(place))
    if (opcode, byte) in ((0x8B, 0xE3), (0x89, 0xDC)):
        return place._replace(depth=place.ebx)
    if opcode == 0x8D and register in (_ESP, _EBP):
        depth = _leads(code, decoded, place)
        return place._replace(depth=depth) if register == _ESP else _framed(place, depth)
    written = registers_written(opcode, mode, register, base)
    if _ESP in written:
        place = place._replace(depth=None)
    if _EBP in written:
        place = place._replace(ebp=OTHER, frame=None)
    return place


def _size_in_eax(code: bytes, found: Instruction, byte: Optional[int], place: StackPlace) -> Optional[int]:
    """Returns the size in Eax behind an instruction. Only what compilers put before a probe keeps it."""
    if found.opcode == _MOVE_EAX:
        size = operand(code, found) & _MASK
        return size if size < _MOST_ROOM and not found.prefixed else None
    if byte is None:
        return place.eax if found.opcode in _KEEP_EAX else None
    written = registers_written(found.opcode, byte >> 6, byte >> 3 & 7, byte & 7)
    return place.eax if found.opcode in _KEEP_EAX_BY_MODRM and _EAX not in written else None


def _framed(place: StackPlace, frame: Optional[int]) -> StackPlace:
    """Returns the state once Ebp points at a depth; Ebp counts as a frame pointer only if it was pushed."""
    if frame is None or place.saved is None:
        return place._replace(ebp=OTHER, frame=None)
    if frame == place.saved == _FRAME:
        return place._replace(ebp=OURS, frame=None)
    return place._replace(ebp=BASED, frame=frame)


def _pointed_at(place: StackPlace) -> Optional[int]:
    """Returns the depth that Ebp points at, None if unknown."""
    return _FRAME if place.ebp == OURS else place.frame


def _copies(code: bytes, decoded: Instruction, place: StackPlace) -> bool:
    """Returns whether the last push was the caller's Ebp below a copy of the return address.

    Microsoft: push ebx; mov ebx, esp; (align Esp); push ebp; mov ebp, [ebx + 4]; mov [esp + 4], ebp.
    GNU, with any register: lea ecx, [esp + 4]; (align Esp); push [ecx - 4]; push ebp. The size for a stack
    probe may be put into Eax between.
    """
    before = code[max(decoded.modrm - 1 - _LONGEST_COPY, 0) : decoded.modrm - 1]
    if place.ebx == _FRAME and before.endswith(_STORE_RETURN):
        return True
    pushed = _PUSHED_RETURN.search(before)
    return pushed is not None and pushed[1][0] >> 3 & 7 == pushed[2][0] & 7


def _leads(code: bytes, decoded: Instruction, place: StackPlace) -> Optional[int]:
    """Returns the depth that the target register of `lea`, from Esp or Ebp, points at afterwards."""
    position, byte = decoded.modrm + 1, code[decoded.modrm]
    mode, base = byte >> 6, byte & 7
    sib = base == _ESP
    if mode == 3 or (sib and code[position] != 0x24) or (base not in (_ESP, _EBP)) or (mode == 0 and not sib):
        return None
    position += sib
    moved = int.from_bytes(code[position : position + (0, 1, 4)[mode]], "little", signed=True)
    depth = place.depth if sib else _pointed_at(place)
    return None if depth is None else depth - moved


def _moved(place: StackPlace, by: int) -> StackPlace:
    return place if place.depth is None else place._replace(depth=place.depth + by)


_NAMED_BY_OPCODE = (0x40, 0x48, 0xB8, 0x0FC8)
"""inc, dec, mov with an immediate, bswap: the first of the eight opcodes of each."""


def _written_by_opcode(opcode: int, place: StackPlace) -> StackPlace:
    """Returns the state behind an instruction without a ModRM byte."""
    if opcode & ~7 in _NAMED_BY_OPCODE:
        if opcode & 7 == _ESP:
            return place._replace(depth=None)
        if opcode & 7 == _EBP:
            return place._replace(ebp=OTHER, frame=None)
    return place


_FRAMES = (OURS, BASED, COPY)
_STORE_RETURN = b"\x55\x8b\x6b\x04\x89\x6c\x24\x04"
"""push ebp; mov ebp, [ebx + 4]; mov [esp + 4], ebp."""
_PUSHED_RETURN = re.compile(
    rb"\x8d([\x44\x4c\x54\x5c\x74\x7c])\x24[\x04\x08](?:\xb8.{4})?\x83\xe4[\x80-\xfc](?:\xb8.{4})?"
    rb"\xff([\x70-\x73\x76\x77])\xfc(?:\xb8.{4})?\x55(?:\xb8.{4})?\Z",
    re.DOTALL,
)
_LONGEST_COPY = 16

_EAX, _EBX, _ESP, _EBP = 0, 3, 4, 5
_MOVE_EAX, _MOST_ROOM = 0xB8, 1 << 26
"""mov eax, constant; the constants below the limit are taken for the size of a frame."""
_ESP_LESS_EAX = ((0x29, 0xC4), (0x2B, 0xE0))
"""sub esp, eax."""
_KEEP_EAX = frozenset((*range(0x50, 0x58), *range(0x59, 0x60), 0x68, 0x6A, 0x90, *range(0xB9, 0xC0)))
_KEEP_EAX_BY_MODRM = frozenset((0x29, 0x2B, 0x31, 0x33, 0x39, 0x3B, 0x81, 0x83, 0x85, 0x89, 0x8B, 0x8D, 0xC7))
"""Instructions that write no register that they do not name: without a ModRM byte, and with one."""
KEPT = (_EBX, 6, 7)
"""Ebx, Esi and Edi, by processor number: the registers that a function preserves for its caller."""
_NONE_LOADED = (None, None, None)
_LOADS = frozenset(number << 3 | 5 for number in KEPT)
"""ModRM bytes of `mov` into one of these registers from an address within the instruction."""
_STRINGS = {
    **dict.fromkeys((0x6C, 0x6D, 0xAA, 0xAB, 0xAE, 0xAF), (7,)),
    **dict.fromkeys((0x6E, 0x6F, 0xAC, 0xAD), (6,)),
    **dict.fromkeys((0xA4, 0xA5, 0xA6, 0xA7), (6, 7)),
}
"""String instructions, and which of Esi and Edi they move."""
_OF_8_BITS = frozenset(
    (*range(0, 0x40, 8), *range(2, 0x40, 8), 0x80, 0x82, *range(0x84, 0x8C, 2), 0xC0, 0xC6)
)
_OF_8_BITS |= frozenset((0xD0, 0xD2, 0xF6, 0xFE, 0x0FB0, 0x0FC0, *range(0x0F90, 0x0FA0)))
"""Instructions with a ModRM byte and 8-bit registers: numbers 3 and 7 are Bl and Bh."""


def _kept_written(opcode: int, byte: Optional[int]) -> Tuple[int, ...]:
    """Returns which of Ebx, Esi and Edi an instruction may write; it may list too many."""
    if byte is None:
        if opcode in (0xB3, 0xB7, 0x0FA2):
            return (3,)
        named = opcode & ~7 in (*_NAMED_BY_OPCODE, 0x58, 0x90)
        return (opcode & 7,) if named else _STRINGS.get(opcode, ())
    register, base = byte >> 3 & 7, byte & 7
    if opcode in _OF_8_BITS:
        return (3,) if 3 in (register, base) or 7 in (register, base) else ()
    return (base,) if opcode == 0x8F else registers_written(opcode, byte >> 6, register, base)


_READS_ONLY = frozenset((0x38, 0x39, 0x3A, 0x3B, 0x84, 0x85, 0x8E, 0xFA3))


_TO_BASE = frozenset(
    (
        0x81, 0x83, 0x8C, 0xC1, 0xC7, 0xD1, 0xD3, 0xFF, 0x89, 0x01, 0x09, 0x11, 0x19, 0x21, 0x29, 0x31,
        0x0F0D, 0x0F18, 0x0F1F, 0x0FA4, 0x0FA5, 0x0FAB, 0x0FAC, 0x0FAD, 0x0FAE, 0x0FB1, 0x0FB3, 0x0FBA,
        0x0FBB, 0x0FC7,
    )
)  # fmt: skip
"""Instructions that write the operand in the low bits of ModRM; the middle bits name a source or the
operation."""
_VECTORS = frozenset(
    0x0F00 | second
    for low, high in ((0x10, 0x17), (0x28, 0x2B), (0x2E, 0x2F), (0x51, 0x7D), (0xD0, 0xD6), (0xD8, 0xFF))
    for second in (*range(low, high + 1), 0x7F, 0xC2, 0xC4, 0xC6)
)
"""Two-byte instructions on MMX and SSE registers, or that only read a general register."""


def registers_written(opcode: int, mode: int, register: int, base: int) -> Tuple[int, ...]:
    """Returns the general registers that an instruction with a ModRM byte may write; it may list too many."""
    if opcode in _READS_ONLY or 0xD8 <= opcode <= 0xDF:
        return ()
    if opcode in (0x80, 0x82, 0xC0, 0xC6, 0xD0, 0xD2, 0xF6, 0xFE) or opcode in (0x00, 0x02, 0x88, 0x8A):
        # 8-bit registers: numbers 4 and 5 are Ah and Ch.
        return ()
    if opcode in (0x81, 0x83) and register == 7:
        return ()
    if opcode in _TO_BASE:
        return (base,) if mode == 3 else ()
    if opcode == 0xF7:
        return (base,) if mode == 3 and register in (2, 3) else ()
    if opcode in (0x8B, 0x8D, 0x03, 0x0B, 0x13, 0x1B, 0x23, 0x2B, 0x33, 0x69, 0x6B):
        return (register,)
    if opcode in _VECTORS or 0x0F90 <= opcode <= 0x0F9F:
        return ()
    return (register, base) if mode == 3 else (register,)
