# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames among the bytes of a kernel stack: the tests that tell one from anything else.

x64: the processor pushes the frame right below the interrupted stack pointer, so that a frame from kernel
mode holds its own address; that rule found every measured frame and no other place in a real crash.
x86: the entries store a mark and the return address and frame pointer twice.

Source: 318 emulated stacks of 5.2 x64 and 475 of x86, 40 million random positions, a crash of 10.0.19041.
A test on bytes cannot tell a frame in use from one that is left over.
"""

from __future__ import annotations

import re
from typing import FrozenSet, Iterator, List, NamedTuple, Tuple

from ...base.decode.extents import Extents
from . import kinds_x64, kinds_x86
from .members import CS_KERNEL, CS_USER, CS_USER_32, EFLAGS_IF, Layout, number

_ALIGNMENT = 16
# EFlags: bit 1 is always set; bits 3, 5, 15 and above 21 never are; NT and VM are not in 64-bit mode.
_EFLAGS_ONE = 0x2
_EFLAGS_NEVER_64 = 0xFFFFFFFFFFC2C028
_EFLAGS_NEVER_32 = 0xFFC08028
_EFLAGS_IOPL = 0x3000
_USER_LOWEST = 0x10000
_USER_SS = 0x2B
_KERNEL_CS_32 = 8
_USER_CS_32 = 0x1B
_MAX_EIP_SHIFT = 2

# SegCs as the processor pushed it (a quadword), but for the Logging byte of Vista and later. No match can
# begin within another, so that none is passed over.
_CODE_SEGMENT = re.compile(rb"[\x10\x23\x33]\x00\x00[\x00\x01]\x00\x00\x00\x00")
_MARK = re.compile(re.escape(kinds_x86.ARGUMENT_MARK.to_bytes(4, "little")))


class Bounds(NamedTuple):
    """What an address of this image may be.

    user_end: the first address beyond user mode
    kernel_start: the first address of kernel mode
    kernel_image: start and end of nt
    service_linkage: address of nt!KiServiceLinkage, 0 if unknown
    ist_tops: tops of the stacks that the TSS's IST names
    """

    user_end: int
    kernel_start: int
    kernel_image: Tuple[int, int] = (0, 0)
    service_linkage: int = 0
    ist_tops: FrozenSet[int] = frozenset()


def accepts(layout: Layout, address: int, data: bytes, bounds: Bounds) -> bool:
    """Tells whether bytes at an address are a trap frame.

    Args:
        layout: the image's _KTRAP_FRAME
        address: where the bytes are (canonical)
        data: layout.size bytes at least
        bounds: the image's address ranges
    """
    if len(data) < layout.size:
        return False
    if layout.arch == "x64":
        return _accepts_64(layout, address, data, bounds)
    return _accepts_32(layout, data, bounds)


def plausible(layout: Layout, address: int, data: bytes, bounds: Bounds) -> bool:
    """Tells whether bytes to which the thread itself points may be a trap frame.

    Weaker than `accepts`: an entry that nobody has measured may break its rules.
    """
    if len(data) < layout.size or not number(layout, data, "EFlags") & _EFLAGS_ONE:
        return False
    code_segment = number(layout, data, "SegCs")
    if layout.arch == "x64":
        known = code_segment in (CS_KERNEL, CS_USER, CS_USER_32) and number(layout, data, "Rip") != 0
        service = kinds_x64.shaped_like_service(layout, address, data)
        return known and (service or kinds_x64.active_kind(layout, data) != "")
    if kinds_x86.is_task_nmi(layout, data):
        return True
    if kinds_x86.from_v86(layout, data):
        return number(layout, data, "Eip") < _USER_LOWEST
    marked = number(layout, data, "DbgArgMark") == kinds_x86.ARGUMENT_MARK
    return marked and code_segment & 0xFFFF in (_KERNEL_CS_32, _USER_CS_32)


def _accepts_64(layout: Layout, address: int, data: bytes, bounds: Bounds) -> bool:
    if address % _ALIGNMENT:
        return False
    code_segment, flags = number(layout, data, "SegCs"), _quadword(layout, data, "EFlags")
    if not flags & _EFLAGS_ONE or flags & _EFLAGS_NEVER_64:
        return False
    rip, rsp = number(layout, data, "Rip"), number(layout, data, "Rsp")
    if code_segment == CS_KERNEL:
        if kinds_x64.shaped_like_service(layout, address, data) and _in_kernel_image(rip, bounds):
            return True
        placed = rsp & ~0xF == address + layout.size or address + layout.size in bounds.ist_tops
        return (
            placed
            and rip >= bounds.kernel_start
            and number(layout, data, "SegSs") in kinds_x64.KERNEL_SS
            and kinds_x64.active_kind(layout, data) != ""
        )
    end = min(bounds.user_end, 1 << 32) if code_segment == CS_USER_32 else bounds.user_end
    return (
        number(layout, data, "SegSs") == _USER_SS
        and bool(flags & EFLAGS_IF)
        and not flags & _EFLAGS_IOPL
        and _USER_LOWEST <= rip < end
        and _USER_LOWEST <= rsp < end
        and kinds_x64.active_kind(layout, data) != ""
    )


def _in_kernel_image(rip: int, bounds: Bounds) -> bool:
    if bounds.service_linkage:
        return rip == bounds.service_linkage
    start, end = bounds.kernel_image
    return start <= rip < end


def _quadword(layout: Layout, data: bytes, member: str) -> int:
    """Returns a member with what the processor pushed above it."""
    offset = layout.members[member].offset
    return int.from_bytes(data[offset : offset + 8], "little")


def _accepts_32(layout: Layout, data: bytes, bounds: Bounds) -> bool:
    flags = number(layout, data, "EFlags")
    if not flags & _EFLAGS_ONE or flags & _EFLAGS_NEVER_32:
        return False
    if number(layout, data, "DbgArgMark") != kinds_x86.ARGUMENT_MARK:
        return False
    eip = number(layout, data, "Eip")
    if abs(number(layout, data, "DbgEip") - eip) > _MAX_EIP_SHIFT:
        return False
    if number(layout, data, "DbgEbp") != number(layout, data, "Ebp"):
        return False
    if kinds_x86.from_v86(layout, data):
        return eip < _USER_LOWEST
    code_segment = number(layout, data, "SegCs") & 0xFFFF
    if code_segment == _KERNEL_CS_32:
        return eip >= bounds.kernel_start
    return code_segment == _USER_CS_32 and _USER_LOWEST <= eip < bounds.user_end and bool(flags & EFLAGS_IF)


def scan(layout: Layout, memory: Extents, start: int, end: int, bounds: Bounds) -> Iterator[int]:
    """Yields the addresses of the trap frames that lie wholly in a range, in order.

    Of two that overlap only the one that was found first, from low to high, is one.

    Args:
        layout: the image's _KTRAP_FRAME
        memory: the stack; frames are looked for in what is present
        start: first address of the range
        end: first address behind it
        bounds: the image's address ranges
    """
    free = start
    for address, data in _candidates(layout, memory, start, end):
        if address >= free and accepts(layout, address, data, bounds):
            yield address
            free = address + layout.size


def _candidates(layout: Layout, memory: Extents, start: int, end: int) -> Iterator[Tuple[int, bytes]]:
    """Yields where the one word that every frame holds is in its place, with the frame's bytes."""
    pattern, member, step = (
        (_CODE_SEGMENT, "SegCs", _ALIGNMENT) if layout.arch == "x64" else (_MARK, "DbgArgMark", 4)
    )
    offset = layout.members[member].offset
    for low, high in memory.covered(start, end):
        data = memory.read(low, high - low)
        if data is None:
            continue
        for found in pattern.finditer(data, offset):
            begin = found.start() - offset
            if (low + begin) % step == 0 and begin + layout.size <= high - low:
                yield low + begin, bytes(data[begin : begin + layout.size])


def overlaps(layout: Layout, address: int, taken: List[int]) -> bool:
    """Tells whether a frame at an address would share bytes with one that is known already."""
    return any(abs(address - other) < layout.size for other in taken)
