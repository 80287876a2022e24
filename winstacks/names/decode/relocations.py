# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The base relocations of an image: which numbers in it the loader adds to when it moves the image.

Source: Microsoft, "PE Format", "The .reloc Section".
"""

from __future__ import annotations

import struct
from typing import Callable, Iterator, List, Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from .pe import HeaderError, read_headers
from .unwindinfo import Bytes, ReadRva

DIRECTORY_RELOCATIONS = 5

MAX_BLOCKS = 1 << 16
"""The most blocks of relocations of a file that are read: each is of one page."""

END = -1
"""Stands in the place of a page's RVA behind the last block."""

_BLOCK = struct.Struct("<II")
_SLOTS = {3: 4, 10: 8}
"""IMAGE_REL_BASED_HIGHLOW and IMAGE_REL_BASED_DIR64: bytes of what they relocate."""
_LONGEST = 4 * PAGE_SIZE
"""More bytes than the block of a page has."""

Slot = Tuple[int, int]
"""Offset in the page, and bytes of the number there."""


def of_image(read: Callable[[int, int], Optional[Bytes]]) -> Iterator[Tuple[int, List[Slot]]]:
    """Yields the relocations of each page of an image; see `blocks`. None if its headers cannot be read."""
    try:
        rva, size = read_headers(read).directory(DIRECTORY_RELOCATIONS)
    except HeaderError:
        return
    yield from blocks(read, rva, size)


def blocks(read: ReadRva, rva: int, size: int) -> Iterator[Tuple[int, List[Slot]]]:
    """Yields the relocations of each page behind its RVA; at last END, and nothing, if these are all.

    Args:
        read: reads the image by RVA
        rva, size: the directory of relocations; a size of 0 is one without any
    """
    end = rva + size
    for _ in range(MAX_BLOCKS):
        if rva + _BLOCK.size > end:
            yield END, []
            return
        head = read(rva, _BLOCK.size)
        page, length = (0, 0) if head is None else _BLOCK.unpack(head)
        if not _BLOCK.size <= length <= min(end - rva, _LONGEST):
            return
        data = read(rva + _BLOCK.size, (length - _BLOCK.size) // 2 * 2)
        if data is not None:
            entries = struct.unpack(f"<{len(data) // 2}H", data)
            yield page, [(each & 0xFFF, _SLOTS[each >> 12]) for each in entries if each >> 12 in _SLOTS]
        rva += length
