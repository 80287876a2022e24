# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the base relocations of an image: the places of the addresses that the loader adjusts when it moves
the image.

Source: Microsoft, "PE Format", "The .reloc Section".
"""

from __future__ import annotations

import struct
from typing import Callable, Iterator, List, Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from .pe import HeaderError, read_headers
from .unwindinfo import Bytes, ReadRva

DIRECTORY_RELOCATIONS = 5

MAX_BLOCKS = 1 << 16
"""Maximum number of relocation blocks that are read: each covers one page."""

END = -1
"""Value in place of a page's RVA that marks the end of the blocks."""

_BLOCK = struct.Struct("<II")
_SLOTS = {3: 4, 10: 8}
"""Bytes of the address that a relocation adjusts, by its type (IMAGE_REL_BASED_HIGHLOW,
IMAGE_REL_BASED_DIR64)."""
LONGEST = PAGE_SIZE
"""Maximum bytes of the blocks of a page: it has room for 1,024 addresses, with an entry of two bytes each."""

MAX_BYTES = 1 << 24
"""Maximum bytes of all blocks of an image. Those of a DLL of 200 MB have some 2 MB."""

Slot = Tuple[int, int]
"""Offset of an address in its page, and bytes of the address."""


def of_image(read: Callable[[int, int], Optional[Bytes]]) -> Iterator[Tuple[int, List[Slot]]]:
    """Yields (page RVA, relocations) of the readable blocks of an image. If the blocks can be followed to
    their end, the last page is END."""
    try:
        rva, size = read_headers(read).directory(DIRECTORY_RELOCATIONS)
    except HeaderError:
        return
    for block in blocks(read, rva, size):
        page_slots = [] if block.page == END else slots(read, block)
        if page_slots is not None:
            yield block.page, page_slots


class RelocationBlock(NamedTuple):
    """The place of the relocations of a page. `page` is the RVA of the page, END for the mark of the end."""

    page: int
    rva: int
    length: int


def blocks(read: ReadRva, rva: int, size: int) -> Iterator[RelocationBlock]:
    """Yields the blocks of relocations, then a block with the page END. Without that block, some are missing.
    `rva` and `size` are the directory of relocations; the size is 0 if there are none."""
    end = rva + min(size, MAX_BYTES)
    for _ in range(MAX_BLOCKS):
        if rva + _BLOCK.size > end and size <= MAX_BYTES:
            yield RelocationBlock(END, rva, 0)
            return
        head = read(rva, _BLOCK.size)
        page, length = (0, 0) if head is None else _BLOCK.unpack(head)
        if not _BLOCK.size <= length <= min(end - rva, LONGEST):
            return
        yield RelocationBlock(page, rva + _BLOCK.size, (length - _BLOCK.size) // 2 * 2)
        rva += length


def slots(read: ReadRva, block: RelocationBlock) -> Optional[List[Slot]]:
    """Returns the relocations of a block, None if it cannot be read. Types not in _SLOTS are left out."""
    data = read(block.rva, block.length)
    if data is None:
        return None
    entries = struct.unpack(f"<{len(data) // 2}H", data)
    return [(entry & 0xFFF, _SLOTS[entry >> 12]) for entry in entries if entry >> 12 in _SLOTS]
