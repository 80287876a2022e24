# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handle tables: `_HANDLE_TABLE.TableCode` and the entries that it leads to.

A table is one page of entries, or a page of pointers to such pages, with up to two levels of pointer pages.
The low bits of TableCode are the number of these levels. The first entry of each page of entries is not a
handle.
"""

from __future__ import annotations

from typing import Iterator, Optional

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, Structures

LEVEL_MASK = 3
MAX_LEVEL = 2
HANDLE_STEP = 4
MAX_HANDLES = 1 << 24
"""The most handles of a process (Microsoft, "Pushing the limits of Windows: handles")."""


class Entry(NamedTuple):
    """A used entry: the handle, the address of its `_OBJECT_HEADER`, the creator's trace index or 0.

    `access` is the granted access; None if an index is in its place (32-bit XP and 2003 with +kst).
    """

    handle: int
    object_header: int
    creator: int
    access: Optional[int] = None


class EntryDecoder:
    """Decodes `_HANDLE_TABLE_ENTRY`.

    Until 7 an entry has Object, an address with flags in its low bits. Since 8 it has ObjectPointerBits, the
    address without its low and high bits. `creators` says whether the kernel stores granted access as an
    index, so that CreatorBackTraceIndex is valid (32-bit XP and 2003). `has_creators` says whether entries
    hold the trace indices of creators. Raises MissingMemberError if the symbols do not describe an entry.
    """

    def __init__(self, types: Structures, pointer_size: int, creators: bool) -> None:
        entry = types["_HANDLE_TABLE_ENTRY"]
        packed = entry.first_member("ObjectPointerBits")
        self._packed = packed is not None
        self._object = packed or entry.field("Object")
        self._creator = entry.first_member("CreatorBackTraceIndex") if creators else None
        # With creators, the lower half of the member is an index.
        self._access = None if creators else entry.first_member("GrantedAccessBits", "GrantedAccess")
        self.pointer_size = pointer_size
        self.size = entry.size
        self.has_creators = self._creator is not None
        self.per_page = PAGE_SIZE // entry.size
        self.per_directory = PAGE_SIZE // pointer_size

    def page_base(self, index: int) -> int:
        """Returns the first handle of the n-th page of entries."""
        return index * self.per_page * HANDLE_STEP

    def entry(self, data: Buffer, handle: int, start: int = 0) -> Optional[Entry]:
        """Decodes the entry of a handle, which begins at an offset in data; None if it is free. Raises
        ValueError if data is too short."""
        header = self._object_header(self._object.value_in(data, start))
        if not header:
            return None
        creator = self._creator.value_in(data, start) if self._creator else 0
        access = None if self._access is None else self._access.value_in(data, start)
        return Entry(handle, header, creator, access)

    def page(self, memory: Extents, address: int, base: int) -> Iterator[Entry]:
        """Yields the used entries of a page of entries."""
        whole = memory.read(address, self.per_page * self.size)
        for number in range(1, self.per_page):
            data, start = whole, number * self.size
            if data is None:
                data, start = memory.read(address + start, self.size), 0
            entry = self.entry(data, base + number * HANDLE_STEP, start) if data is not None else None
            if entry is not None:
                yield entry

    def _object_header(self, value: int) -> int:
        """Returns the address of the object header in an entry, 0 for a free entry."""
        if not self._packed:
            # A free entry has no object; the low bits are the lock and the handle's attributes.
            return value & ~7
        if not value or self.pointer_size == 4:
            return value << 3
        address = value << 4
        bits = self._object.mask.bit_length() + 4
        # The bits above are copies of the highest one: the address is the kernel's.
        return address | (1 << 64) - (1 << bits) if address >> bits - 1 & 1 else address


def level_of(table_code: int) -> int:
    return table_code & LEVEL_MASK


def address_of(table_code: int) -> int:
    return table_code & ~7


def decode_pointers(data: Buffer, pointer_size: int) -> Iterator[int]:
    """Yields the pointers of a page of the upper levels, including empty ones."""
    for offset in range(0, len(data) - pointer_size + 1, pointer_size):
        yield int.from_bytes(data[offset : offset + pointer_size], "little")
