# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handle tables: `_HANDLE_TABLE.TableCode` and the entries behind it.

A table is one page of entries or a page of pointers to such pages, up to two levels of them; the low bits of
TableCode are the number of those levels. The first entry of each page of entries is no handle.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional

from ...base.decode.extents import Extents
from ...base.decode.field import Buffer, Field

PAGE_SIZE = 0x1000
LEVEL_MASK = 3
MAX_LEVEL = 2
HANDLE_STEP = 4
MAX_HANDLES = 1 << 24
"""Windows gives a process no more (Microsoft, "Pushing the limits of Windows: handles")."""


class EntryLayout(NamedTuple):
    """`_HANDLE_TABLE_ENTRY`.

    `object` is Object up to 7 (an address with flags in its low bits) and ObjectPointerBits since 8
    (`packed`: the address without its low and high bits). `creator` is CreatorBackTraceIndex, which means
    something only where the kernel keeps granted access as an index (XP and 2003), else None.
    """

    pointer_size: int
    size: int
    object: Field
    packed: bool
    creator: Optional[Field]

    @property
    def per_page(self) -> int:
        return PAGE_SIZE // self.size

    @property
    def per_directory(self) -> int:
        return PAGE_SIZE // self.pointer_size


class Entry(NamedTuple):
    """A used entry: the handle, the address of its `_OBJECT_HEADER`, the creator's trace index or 0."""

    handle: int
    object_header: int
    creator: int


def level_of(table_code: int) -> int:
    return table_code & LEVEL_MASK


def address_of(table_code: int) -> int:
    return table_code & ~7


def page_base(index: int, layout: EntryLayout) -> int:
    """Returns the first handle of the page of entries with a number."""
    return index * layout.per_page * HANDLE_STEP


def decode_pointers(data: Buffer, pointer_size: int) -> Iterator[int]:
    """Yields the pointers of a page of the upper levels, empty ones too."""
    for offset in range(0, len(data) - pointer_size + 1, pointer_size):
        yield int.from_bytes(data[offset : offset + pointer_size], "little")


def decode_entry(data: Buffer, handle: int, layout: EntryLayout) -> Optional[Entry]:
    """Decodes the entry of a handle, None if it is free.

    Args:
        data: `layout.size` bytes
        handle: whose entry it is
        layout: where the members lie

    Raises:
        ValueError: when data is too short
    """
    header = _object_header(layout.object.of(data), layout)
    if not header:
        return None
    return Entry(handle, header, layout.creator.of(data) if layout.creator else 0)


def decode_page(memory: Extents, address: int, base: int, layout: EntryLayout) -> Iterator[Entry]:
    """Yields the used entries of a page of entries.

    Args:
        memory: what is there of the page
        address: of the page
        base: the handle that its first entry would be
        layout: where the members lie
    """
    for number in range(1, layout.per_page):
        data = memory.read(address + number * layout.size, layout.size)
        entry = decode_entry(data, base + number * HANDLE_STEP, layout) if data is not None else None
        if entry is not None:
            yield entry


def _object_header(value: int, layout: EntryLayout) -> int:
    """Returns the address that an entry names, 0 for a free one."""
    if not layout.packed:
        # A free entry has no object; the low bits are the lock and the handle's attributes.
        return value & ~7
    if not value or layout.pointer_size == 4:
        return value << 3
    address = value << 4
    bits = layout.object.mask.bit_length() + 4
    # The bits above are copies of the highest one: the address is the kernel's.
    return address | (1 << 64) - (1 << bits) if address >> bits - 1 & 1 else address
