# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The headers of an NT heap's blocks (`_HEAP_ENTRY`), one after the other, also past damage.

Source: public symbols of ntoskrnl (XP to 11). The encoding was measured on 7601.24384 and 19044.1766: 8 bytes
XORed with `_HEAP.Encoding`, SmallTagIndex being the XOR of the three bytes before it.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Union

from ...base.decode.field import Buffer
from .layout import EntryLayout
from .memory import HeapMemory
from .segment import Segment

BUSY = 0x01
EXTRA_PRESENT = 0x02


class Entry(NamedTuple):
    """A block's header, decoded. Sizes are bytes and count the header.

    Attributes:
        previous: size of the block before it
        segment: SegmentOffset (5.x: SegmentIndex), which a virtual-alloc block uses as EntryOffset
        unused: UnusedBytes, with its flags
    """

    address: int
    size: int
    previous: int
    flags: int
    segment: int
    unused: int

    @property
    def busy(self) -> bool:
        return bool(self.flags & BUSY)


class Lost(NamedTuple):
    """A range within a segment in which no block could be told; the end is exclusive."""

    start: int
    end: int


class Coder:
    """Decodes headers.

    Args:
        layout: of the header
        key: what its 8 bytes are XORed with; 0 when they are plain, and there is no checksum then
    """

    def __init__(self, layout: EntryLayout, key: int) -> None:
        self.unit = layout.unit
        self._layout = layout
        self._key = key

    def decode(self, address: int, code: Buffer) -> Optional[Entry]:
        """Returns the header whose 8 bytes are given, or None when its checksum fails or it has no size."""
        plain = (int.from_bytes(code, "little") ^ self._key).to_bytes(8, "little")
        where = self._layout
        if self._key and plain[0] ^ plain[1] ^ plain[2] != plain[3]:
            return None
        units = plain[where.size] | plain[where.size + 1] << 8
        if not units:
            return None
        return Entry(
            address,
            units * self.unit,
            (plain[where.previous] | plain[where.previous + 1] << 8) * self.unit,
            plain[where.flags],
            plain[where.segment],
            plain[where.unused],
        )

    def read(self, memory: HeapMemory, address: int) -> Optional[Entry]:
        """Returns the header at an address, or None when it is not present or not a header."""
        code = memory.read(address + self._layout.code, 8)
        return None if code is None else self.decode(address, code)

    def follows(self, memory: HeapMemory, entry: Entry, end: int) -> bool:
        """Tells whether the block after an entry, or the range's end, confirms its size."""
        following = entry.address + entry.size
        if following >= end:
            return following == end
        after = self.read(memory, following)
        return after is not None and after.previous == entry.size


def walk(memory: HeapMemory, segment: Segment, coder: Coder) -> Iterator[Union[Entry, Lost]]:
    """Yields the headers of a segment's blocks in order, and the ranges in which there are none to be told.

    A header counts when its checksum holds and the block before or after it confirms it; past one that does
    not, the next two that confirm each other are looked for.
    """
    for start, end in segment.committed():
        yield from _walk_range(memory, coder, start, end)


def _walk_range(memory: HeapMemory, coder: Coder, start: int, end: int) -> Iterator[Union[Entry, Lost]]:
    at, before = start, 0
    while at < end:
        entry = coder.read(memory, at)
        linked = entry is not None and (at == start or entry.previous == before)
        if entry is not None and at + entry.size <= end and (linked or coder.follows(memory, entry, end)):
            yield entry
            at, before = at + entry.size, entry.size
            continue
        found = _resume(memory, coder, at + coder.unit, end)
        resumed = end if found is None else found
        yield Lost(at, resumed)
        at, before = resumed, 0


def _resume(memory: HeapMemory, coder: Coder, start: int, end: int) -> Optional[int]:
    """Returns the address of the first header that the one after it confirms."""
    unit = coder.unit
    for low, data in memory.pages(start, end):
        for offset in range(-low % unit, len(data) - unit + 1, unit):
            entry = coder.decode(low + offset, data[offset + unit - 8 : offset + unit])
            if entry is not None and coder.follows(memory, entry, end):
                return entry.address
    return None
