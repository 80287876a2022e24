# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The base relocations of an image: the numbers to which the loader adds when it moves the image.

Source: Microsoft, "PE Format", "The .reloc Section".
"""

from __future__ import annotations

import struct
from typing import Callable, Iterator, List, NamedTuple, Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from .pe import HeaderError, read_headers
from .unwindinfo import Bytes, ReadRva

DIRECTORY_RELOCATIONS = 5

MAX_BLOCKS = 1 << 16
"""Maximum number of relocation blocks of a file that are read: each covers one page."""

END = -1
"""Value in place of a page's RVA behind the last block."""

_BLOCK = struct.Struct("<II")
_SLOTS = {3: 4, 10: 8}
"""IMAGE_REL_BASED_HIGHLOW and IMAGE_REL_BASED_DIR64: bytes of the number that they relocate."""
_LONGEST = 4 * PAGE_SIZE
"""More bytes than the block of a page has."""

Slot = Tuple[int, int]
"""Offset in the page, and bytes of the number there."""


def of_image(read: Callable[[int, int], Optional[Bytes]]) -> Iterator[Tuple[int, List[Slot]]]:
    """Yields (page RVA, relocations) of the readable pages of an image; last END, if all could be read."""
    try:
        rva, size = read_headers(read).directory(DIRECTORY_RELOCATIONS)
    except HeaderError:
        return
    for block in blocks(read, rva, size):
        page_slots = [] if block.page == END else slots(read, block)
        if page_slots is not None:
            yield block.page, page_slots


class RelocationBlock(NamedTuple):
    """The relocations of a page: the page's RVA, and where the entries lie; `page` is END behind the last
    block."""

    page: int
    rva: int
    length: int


def blocks(read: ReadRva, rva: int, size: int) -> Iterator[RelocationBlock]:
    """Yields the blocks of relocations; the last one has the page END, if these are all.

    Args:
        read: reads the image by RVA
        rva, size: the directory of relocations; its size is 0 if there are none
    """
    end = rva + size
    for _ in range(MAX_BLOCKS):
        if rva + _BLOCK.size > end:
            yield RelocationBlock(END, rva, 0)
            return
        head = read(rva, _BLOCK.size)
        page, length = (0, 0) if head is None else _BLOCK.unpack(head)
        if not _BLOCK.size <= length <= min(end - rva, _LONGEST):
            return
        yield RelocationBlock(page, rva + _BLOCK.size, (length - _BLOCK.size) // 2 * 2)
        rva += length


def slots(read: ReadRva, block: RelocationBlock) -> Optional[List[Slot]]:
    """Returns the relocations of a block; None if it cannot be read."""
    data = read(block.rva, block.length)
    if data is None:
        return None
    entries = struct.unpack(f"<{len(data) // 2}H", data)
    return [(entry & 0xFFF, _SLOTS[entry >> 12]) for entry in entries if entry >> 12 in _SLOTS]
