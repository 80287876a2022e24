# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether a call can have led to code without unwind data, or with too little: to a leaf function, or to
assembly that hides its frame.

The value on top of the stack is the return address of a true leaf. In other code it may be a return address
that an earlier call left there: then the call before it goes somewhere else. Source of the forms of jumps:
Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, JMP and Jcc.
"""

from __future__ import annotations

import bisect
import re
from typing import Dict, Iterator, Optional, Tuple

from ...memory.decode.memory import ReadMemory
from ...memory.decode.pagetable import PAGE_SIZE
from ...names.decode.functiontable import FunctionTable
from ...names.decode.unwindinfo import Bytes
from .frames import LONG_NOP, CodeImage, FindImage, direct_target

_LONGEST = 0x4000
"""Bytes of a function that are searched for a jump."""
_SHORT = 0x100
"""Bytes that are searched where no unwind data bounds the function."""

_NEAR = 5
_MOST_FUNCTIONS = 16
"""Functions that are searched for a jump to the leaf: a function may end with a jump to another one."""
_DIRECT = re.compile(rb"(?:\xe9|\x0f[\x80-\x8f])(?=(.{4}))", re.DOTALL)
"""Jumps with a displacement of four bytes."""
_INDIRECT = re.compile(rb"\xff[\x20-\x27\x60-\x67\xa0-\xa7\xe0-\xe7]")
"""Jumps through memory or a register (FF /4): their targets are unknown."""

_PADDED = rb"(?:[\xcc\x90]|\x66\x90|\x66*\x2e?\x0f\x1f)"
_CHANGES = re.compile(
    rb"(\x48(?:\x83(?:\xec[\0-\x7f]|[\xc4\xe4][\x80-\xff])|\x81(?:\xec...\0|\xe4...\xff)"
    rb"|\x8d\x64\x24[\x80-\xff]|\x8d\xa4\x24...\xff))"
    rb"|\x48(?:\x83\xc4.|\x81\xc4....)(?:\x41?[\x58-\x5f])*\xc3(?!" + _PADDED + rb")"
    rb"|(\x48(?:\x83[\xec\xc4]|\x81\xc4...\0|\x8d\x64\x24|\x8d\xa4\x24...\0)"
    rb"|\xc3" + _PADDED + rb")",
    re.DOTALL,
)
"""Changes of the stack pointer by a constant, with sub, add, lea or and.

They lower it in the first group. In the second group they raise it, or padding behind a return ends the
function.
Without a group they raise it for a return behind which the function goes on.
"""

_LOWERED = 1

MOST_CODE = 1 << 16
"""So many bytes of a function are looked at; V8 has one entry for all code that it compiles."""
_RETURN = 0xC3
_BEHIND_RETURN = re.compile(
    rb".?(?:\x41?[\x58-\x5f])*\xc3(?:[\xcc\x90]|\x66\x90|" + LONG_NOP + rb")*", re.DOTALL
)
"""The operand of a change, pops, a return, and padding."""
_FORWARD = re.compile(rb"[\x70-\x7f\xeb](?=([\0-\x7f]))|(?:\x0f[\x80-\x8f]|\xe9)(?=(...\0))", re.DOTALL)
"""Jumps forward with a displacement of one byte, or of four."""

_LEAVES = re.compile(rb"[\x5d\xc9]|\x48\x8b\x6d\x00")
"""pop rbp; leave; mov rbp, [rbp]."""
_MAY_MOVE_SP = re.compile(
    rb"[\x50-\x5f\x68\x6a\x87\x8f\x94\x9c\xc8\xc9\xe8]|[\x81\x83][\xc4\xe4\xec]"
    rb"|\xff[\x10-\x17\x30-\x37\x50-\x57\x70-\x77\x90-\x97\xb0-\xb7\xd0-\xd7\xf0-\xf7]"
    rb"|[\x03\x23\x2b\x33\x8b\x8d][\x20-\x27\x60-\x67\xa0-\xa7\xe0-\xe7]"
    rb"|[\x01\x21\x29\x31\x89][\xc4\xcc\xd4\xdc\xe4\xec\xf4\xfc]"
)
"""push, pop, enter, leave, call and xchg; add, and, sub, xor, mov and lea of rsp."""


def code_at(find_image: FindImage, read: ReadMemory, address: int, length: int) -> Optional[Bytes]:
    """Returns code by address, from the module there if one is; None unless all of it can be read."""
    image = find_image(address)
    return read(address, length) if image is None else image.read_rva(address - image.base, length)


def call_target(find_image: FindImage, read: ReadMemory, to: int) -> Optional[int]:
    """Returns where the direct call before a return address leads, None if no direct call is there.

    A call of the next instruction, which only reads Rip, is none.
    """
    code = code_at(find_image, read, to - _NEAR, _NEAR)
    target = None if code is None else direct_target(code, to)
    return None if target == to else target


def jump_target(find_image: FindImage, read: ReadMemory, address: int) -> Optional[int]:
    """Returns where a jump with a displacement at an address leads, None if no such jump is there."""
    code = code_at(find_image, read, address, _NEAR)
    if code is None or code[0] != 0xE9:
        return None
    return address + _NEAR + int.from_bytes(bytes(code[1:]), "little", signed=True)


def was_called(
    find_image: FindImage, read: ReadMemory, ip: int, begin: int, to: int, interrupted: bool
) -> bool:
    """Returns whether a function that only a handler describes has its return address on top of the stack.

    It has if it was about to begin, if it nowhere moves the stack pointer, or if the call before that address
    goes to the function, at once or through one jump.

    Args:
        begin: RVA of the function
        to: the value on top of the stack
    """
    image = find_image(ip - (not interrupted))
    if image is None:
        return False
    if interrupted and (ip == image.base + begin or _stands_still(image, begin)):
        return True
    target = call_target(find_image, read, to)
    return target is not None and image.base + begin in (target, jump_target(find_image, read, target))


def calls_without_data(find_image: FindImage, read: ReadMemory, address: int) -> bool:
    """Returns whether a direct call of a function of the same module ends at an address, in code that no
    unwind data covers.

    Compilers describe every function that calls. Assembly may not, as in the runtime of Go.
    """
    image = find_image(address - 1)
    if image is None or not image.executable(address - 1) or not image.has_no_entry(address - 1):
        return False
    target = call_target(find_image, read, address)
    return target is not None and image.entry_begins(target)


def _stands_still(image: CodeImage, begin: int) -> bool:
    """Returns whether the function that begins at an RVA has no code that may move the stack pointer.

    Bytes that only look like such code count. Methods of .NET all have a handler, and some are such leaves.
    """
    piece = image.find_entry(image.base + begin)
    size = 0 if piece is None else piece.end - begin
    code = image.read_rva(begin, size) if 0 < size <= PAGE_SIZE else None
    return code is not None and _MAY_MOVE_SP.search(bytes(code)) is None


def may_have_left(image: CodeImage, ip: int) -> bool:
    """Returns whether code before an address may have undone a frame that Rbp leads to, in the same piece."""
    piece, rva = image.find_entry(ip), ip - image.base
    size = MOST_CODE if piece is None else rva - piece.begin
    code = image.read_rva(rva - size, size) if size < MOST_CODE else None
    return code is None or _LEAVES.search(bytes(code)) is not None


def may_have_called(find_image: FindImage, read: ReadMemory, to: int, leaf: int) -> bool:
    """Returns whether the call before a return address can have led to a place that no unwind data covers.

    A direct call leads there if its target lies in the same gap between the functions of the table, or if the
    function that it calls has a jump that may lead there. `to` is the return address, behind a call.
    """
    image, target = find_image(leaf), call_target(find_image, read, to)
    if image is None or image.table is None or target is None:
        return True
    low, high = _gap(image.table, leaf - image.base, image.size)
    low, high = low + image.base, high + image.base
    targets, place = [target], 0
    while place < len(targets):
        target = targets[place]
        if low <= target < high:
            return True
        start, end = _extent(find_image(target), target)
        code = code_at(find_image, read, start, end - start)
        if end == low or code is None or _INDIRECT.search(bytes(code)):
            return True
        for further in _jumps(bytes(code), start):
            beyond = find_image(further) is not None and not start <= further < end
            if beyond and further not in targets and len(targets) < _MOST_FUNCTIONS:
                targets.append(further)
        place += 1
    return False


def has_made_room(image: CodeImage, ip: int) -> bool:
    """Returns whether code without unwind data has lowered the stack pointer by a constant before an address.

    A return address on top of the stack is an old one then. The last change before the address decides.
    """
    if image.table is None:
        return False
    rva = ip - image.base
    low = max(_gap(image.table, rva, image.size)[0], rva - _LONGEST)
    code = image.read_rva(low, rva - low)
    if code is None:
        # The page of the address may be there without the ones before.
        low = max(low, rva - rva % PAGE_SIZE)
        code = image.read_rva(low, rva - low)
    return code is not None and makes_room(code)


def makes_room(code: Bytes) -> bool:
    """Returns whether the last change of the stack pointer by a constant in code lowers it.

    A return does not end a function that jumps over it.
    """
    code, lowered = bytes(code), False
    targets: Optional[Dict[int, int]] = None
    for change in _CHANGES.finditer(code):
        if change.lastindex == _LOWERED:
            lowered = True
        elif change.lastindex and lowered:
            start = change.start()
            returned = _BEHIND_RETURN.match(code, start if code[start] == _RETURN else change.end())
            if targets is None:
                targets = _targets(code)
            lowered = returned is not None and targets.get(returned.end(), start) < start
    return lowered


def _targets(code: bytes) -> Dict[int, int]:
    """Returns the first place from which a jump leads forward to each place in code."""
    found: Dict[int, int] = {}
    for jump in _FORWARD.finditer(code):
        operand = jump[1] or jump[2]
        found.setdefault(jump.end() + len(operand) + int.from_bytes(operand, "little"), jump.start())
    return found


def _gap(table: FunctionTable, rva: int, size: int) -> Tuple[int, int]:
    """Returns the range of RVAs around an RVA that no entry covers."""
    begins, ends = table.ranges
    place = bisect.bisect_right(begins, rva)
    return (ends[place - 1] if place else 0), (begins[place] if place < len(begins) else size)


def _jumps(code: bytes, start: int) -> Iterator[int]:
    """Yields where the jumps in code may lead; bytes that only look like a jump count."""
    for jump in _DIRECT.finditer(code):
        yield start + jump.end() + 4 + int.from_bytes(jump[1], "little", signed=True)


def _extent(image: Optional[CodeImage], target: int) -> Tuple[int, int]:
    """Returns the range of addresses that is searched for a function's jumps."""
    piece = None if image is None else image.find_entry(target)
    if image is None or piece is None:
        return target, target + _SHORT
    return image.base + piece.begin, image.base + min(piece.end, piece.begin + _LONGEST)
