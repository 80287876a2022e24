# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Page tables of x86 and x64: which of the pages that one table maps are present, and where.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3, "Paging". For entries that are
not present: Windows' public symbols (_MMPTE_SOFTWARE, _MMPTE_TRANSITION, _MMPTE_PROTOTYPE); for the bits
Write and CopyOnWrite of a present entry: _MMPTE_HARDWARE. Windows Internals, "Prototype PTEs", describes that
an entry whose ProtoAddress is all ones means the VAD.
"""

from __future__ import annotations

from typing import Iterator, Optional, Tuple

from .structure import integers

PAGE_SHIFT = 12
PAGE_SIZE = 1 << PAGE_SHIFT
PRESENT = 0x01
LARGE = 0x80
TRANSITION = 1 << 11
PROTOTYPE = 1 << 10


def round_to_pages(size: int) -> int:
    """Returns a size in bytes, rounded up to whole pages."""
    return -(-size // PAGE_SIZE) * PAGE_SIZE


_NO_EXECUTE = 63
_WRITABLE = 1 << 1 | 1 << 11
"""Write in a present entry: bit 1, or bit 11 on systems that may have several processors."""
_COPY_ON_WRITE = 1 << 9
"""CopyOnWrite of a present entry."""
_READONLY, _EXECUTE_READ, _READWRITE, _WRITECOPY, _EXECUTE_READWRITE, _EXECUTE_WRITECOPY = 1, 3, 4, 5, 6, 7
"""MM_READONLY and others: VadFlags.Protection, and Protection of an entry that is not present."""
_PROTECTION_SHIFT = 5
_SOFT_WRITABLE = (4, 6)
"""MM_READWRITE and MM_EXECUTE_READWRITE: the low bits of Protection in an entry that is not present."""
_SOFT_EXECUTE = 0x40
"""MM_EXECUTE in the member Protection of an entry that is not present."""
_FRAMES = {4: 0xFFFFF000, 8: 0x000FFFFFFFFFF000}
_INVALID_FRAMES = {4: 0xFFFFF000, 8: 0x00001FFFFFFFF000}
"""In an entry that is not present, Windows 10 sets bits above every valid frame (against L1TF)."""


def target(entry: int, size: int) -> int:
    """Returns the physical address to which an entry of a table leads. `size` is the size of an entry: 8
    bytes, or 4 on x86 without PAE."""
    return entry & _FRAMES[size]


def leads(entry: int) -> bool:
    """Returns whether an entry leads to a page in memory: the entry is present, or in transition."""
    return bool(entry & PRESENT) or entry & (TRANSITION | PROTOTYPE) == TRANSITION


def entries(table: bytes, size: int, first: int = 0, count: Optional[int] = None) -> Tuple[int, ...]:
    """Returns entries of a table, of `size` bytes each: all, or `count` of them from number `first` on."""
    return integers(table, size, first * size, count)


def in_section(entry: int, size: int) -> Optional[int]:
    """Returns the physical address of a section's page by its prototype PTE, None if the page is not in
    memory. `entry`, the prototype PTE, leads to a page that is in use or on its way out (transition), to the
    page file, or by way of the subsection to the file."""
    if not leads(entry):
        return None
    if not entry & PRESENT:
        return entry & _INVALID_FRAMES[size]
    return None if entry & LARGE else target(entry, size)


def leads_to_section(entry: int, size: int, pointer_size: int, prototype: int) -> bool:
    """Returns whether a process has no page of its own at an address, so that the section's page is there.

    This is so if the process never touched the page, or if the page was removed from its working set. An
    entry that leads to the page file, or to a page combined with equal ones, is a page of the process's own.
    """
    if not entry or entry & PRESENT or not entry & PROTOTYPE:
        return not entry
    if size == 4:
        return True
    # ProtoAddress has 48 bits on x64, 32 with PAE; if its upper 32 bits are all ones, it means the VAD.
    proto_address, bits = (entry >> 16, 48) if pointer_size == 8 else (entry >> 32, 32)
    return proto_address >> bits - 32 == 0xFFFFFFFF or proto_address == prototype & (1 << bits) - 1


def executable(entry: int, size: int) -> bool:
    """Returns whether the entry of a page allows execution. `size` is the size of the entry: an entry of 4
    bytes has no bit that forbids execution."""
    if entry & PRESENT:
        return size == 4 or not entry >> _NO_EXECUTE
    return bool(entry & _SOFT_EXECUTE)


def protection(entry: int) -> Optional[int]:
    """Returns the protection of a page in memory, as VadFlags.Protection; None if its entry leads to none.
    `entry` is an entry of 8 bytes: shorter ones have no bit that forbids execution."""
    if not leads(entry):
        return None
    if not entry & PRESENT:
        return entry >> _PROTECTION_SHIFT & 0x1F
    if entry & _COPY_ON_WRITE:
        return _WRITECOPY if entry >> _NO_EXECUTE else _EXECUTE_WRITECOPY
    if entry & _WRITABLE:
        return _READWRITE if entry >> _NO_EXECUTE else _EXECUTE_READWRITE
    return _READONLY if entry >> _NO_EXECUTE else _EXECUTE_READ


def writable(entry: int) -> bool:
    """Returns whether each process that maps a section's page may write the page itself, not only a copy.
    `entry` is the prototype PTE, which leads to a page in memory."""
    if entry & PRESENT:
        return bool(entry & _WRITABLE)
    return entry >> _PROTECTION_SHIFT & 7 in _SOFT_WRITABLE


def runs(table: bytes, size: int, first: int, count: int) -> Iterator[Tuple[int, Optional[int]]]:
    """Yields the pages of a table, grouped into runs whose pages are adjacent in physical memory: (number of
    pages, physical address of the first one, or None for pages that are not present)."""
    mask = _FRAMES[size]
    length, start = 0, None
    following: Optional[int] = None
    for entry in entries(table, size, first, count):
        frame = entry & mask if entry & PRESENT else None
        if length and frame == following:
            length += 1
        else:
            if length:
                yield length, start
            length, start = 1, frame
        following = None if frame is None else frame + PAGE_SIZE
    if length:
        yield length, start
