# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The headers of an NT heap's blocks (`_HEAP_ENTRY`), in order; reading goes on after damaged headers.

Source: public symbols of ntoskrnl (XP to 11). The encoding was measured on 7601.24384 and 19044.1766: 8 bytes
XORed with `_HEAP.Encoding`, SmallTagIndex being the XOR of the three bytes before it; INTERNAL on
7601.17514 and 19044.1766.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Union

from ...memory.decode.memory import Memory
from ...memory.decode.structure import Buffer
from .nt import HeapSegment
from .types import NtTypes

BUSY = 0x01
EXTRA_PRESENT = 0x02
INTERNAL = 0x08  # 6.0 and later: the heap allocated it for itself


class BlockHeader(NamedTuple):
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


class Lost:
    """A range within a segment in which no block could be told; the end is exclusive.

    It is empty where a header contradicts the one before it, and no block is lost.
    """

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class Coder:
    """Decodes headers.

    Args:
        types: the structures of the heap
        key: what a header is XORed with from its member Size on; 0 when headers are plain, and there is no
            checksum then

    Attributes:
        unit: size of a header, which sizes are counted in and blocks aligned to
        code: offset of what is decoded, which reaches to the header's end
    """

    def __init__(self, types: NtTypes, key: int) -> None:
        self.unit, self.code = types.unit, types.code
        self._length = types.unit - types.code
        self._key = key
        self._previous, self._flags, self._tag = types.previous, types.block_flags, types.tag
        self._segment, self._unused = types.segment_offset, types.unused

    def plain(self, code: Buffer) -> bytes:
        """Returns a header from its member Size on as it is before it is encoded."""
        return (int.from_bytes(code, "little") ^ self._key).to_bytes(self._length, "little")

    def decode(self, address: int, code: Buffer) -> Optional[BlockHeader]:
        """Returns a header, or None when its checksum fails or it has no size.

        Args:
            address: of the header
            code: its bytes from its member Size on
        """
        plain = (int.from_bytes(code, "little") ^ self._key).to_bytes(self._length, "little")
        if self._key and plain[0] ^ plain[1] ^ plain[2] != plain[self._tag]:
            return None
        units = plain[0] | plain[1] << 8
        if not units:
            return None
        previous, unit = self._previous, self.unit
        return BlockHeader(
            address,
            units * unit,
            (plain[previous] | plain[previous + 1] << 8) * unit,
            plain[self._flags],
            plain[self._segment],
            plain[self._unused],
        )

    def read(self, memory: Memory, address: int) -> Optional[BlockHeader]:
        """Returns the header at an address, or None when it is not present or not a header."""
        code = memory.read(address + self.code, self._length)
        return None if code is None else self.decode(address, code)

    def follows(self, memory: Memory, entry: BlockHeader, end: int) -> bool:
        """Tells whether the block after an entry, or the range's end, confirms its size."""
        following = entry.address + entry.size
        if following >= end:
            return following == end
        after = self.read(memory, following)
        return after is not None and after.previous == entry.size


def walk(memory: Memory, segment: HeapSegment, coder: Coder) -> Iterator[Union[BlockHeader, Lost]]:
    """Yields the headers of a segment's blocks in order, and the ranges in which there are none to be told.

    A header counts when its checksum holds and the block before or after it confirms it; past one that does
    not, the next two that confirm each other are looked for. Where a block reaches over others, these are
    found from its end back.
    """
    for start, end in segment.committed():
        yield from _walk_range(memory, coder, start, end)


def _walk_range(memory: Memory, coder: Coder, start: int, end: int) -> Iterator[Union[BlockHeader, Lost]]:
    at = start
    last: Optional[BlockHeader] = None
    while at < end:
        entry = coder.read(memory, at)
        linked = entry is not None and (at == start or (last is not None and entry.previous == last.size))
        if entry is not None and at + entry.size <= end and (linked or coder.follows(memory, entry, end)):
            if last is not None and not linked:
                yield from _reaching_over(memory, coder, last, entry)
            elif last is not None:
                yield last
            at, last = at + entry.size, entry
            continue
        if last is not None:
            yield last
        found = _resume(memory, coder, at + coder.unit, end)
        resumed = end if found is None else found
        yield Lost(at, resumed)
        at, last = resumed, None
    if last is not None:
        yield last


def _reaching_over(
    memory: Memory, coder: Coder, entry: BlockHeader, after: BlockHeader
) -> Iterator[Union[BlockHeader, Lost]]:
    """Yields a block that has not the size that the header behind it says, with the blocks that lie in it.

    From that header back each one says how long the block before it is, and that one must agree, up to the
    block itself. If they do not lead there, it stays as it is.
    """
    inner: List[BlockHeader] = []
    at, previous = after.address, after.previous
    while previous and at - previous > entry.address:
        at -= previous
        found = coder.read(memory, at)
        if found is None or found.size != previous:
            break
        inner.append(found)
        previous = found.previous
    if inner and at - previous == entry.address:
        yield entry._replace(size=previous)
        yield from reversed(inner)
    else:
        yield entry
    yield Lost(after.address, after.address)


def _resume(memory: Memory, coder: Coder, start: int, end: int) -> Optional[int]:
    """Returns the address of the first header that the one after it confirms."""
    unit, code = coder.unit, coder.code
    for low, data in memory.pages(start, end):
        for offset in range(-low % unit, len(data) - unit + 1, unit):
            entry = coder.decode(low + offset, data[offset + code : offset + unit])
            if entry is not None and coder.follows(memory, entry, end):
                return entry.address
    return None
