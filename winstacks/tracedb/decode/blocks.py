# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the entries of a database, and walks from block to block through the used memory.

There are three ways to the entries: the index array and the hash chains, which `linked` follows, and this
walk.
"""

from __future__ import annotations

import bisect
import functools
from itertools import compress
from typing import Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, integers, unsigned
from .header import Header
from .layout import EntryLayout

ReadBytes = Callable[[int, int], Optional[Buffer]]
"""Takes an address and a length in bytes; returns None unless all of them are present."""

Frames = Tuple[Optional[int], ...]
"""Return addresses, innermost first; None for an address that is not present or was overwritten."""


class Heads(NamedTuple):
    """The heads of adjacent buckets. `addresses` has the address of the first entry of each bucket, 0 for an
    empty bucket."""

    first: int
    addresses: Tuple[int, ...]


class StdHead(NamedTuple):
    """The part of an entry before its frames. `chain` is HashChain, the address of the chain's next entry."""

    chain: int
    word: int
    number: int
    depth: int


class StdEntry(NamedTuple):
    """A complete entry: the members of `StdHead`, with the return addresses in place of Depth."""

    chain: int
    word: int
    number: int
    frames: Tuple[int, ...]


def read_entry(layout: EntryLayout, read: ReadBytes, address: int) -> Optional[StdEntry]:
    """Returns the entry at an address; None unless all of it is present and its Depth is possible."""
    head = read_head(layout, read, address)
    frames = layout.frames.get(head.depth) if head is not None else None
    data = read(address, frames.size) if frames is not None else None
    if head is None or frames is None or data is None:
        return None
    return StdEntry(*head[:3], frames.unpack_from(data))


def read_head(layout: EntryLayout, read: ReadBytes, address: int) -> Optional[StdHead]:
    """Returns the head of the entry at an address, before its frames; None unless all of it is present."""
    head = read(address, layout.head_size)
    if head is None:
        return None
    chain, word, depth = layout.scan(head, 0)
    return StdHead(chain, word, layout.stored_index(head), depth)


def read_frames(read: ReadBytes, address: int, depth: int, size: int) -> Frames:
    """Returns an array of `depth` return addresses of `size` bytes each, None for a missing one."""
    data = read(address, depth * size)
    if data is not None:
        return integers(data, size)
    slots = (read(address + number * size, size) for number in range(depth))
    return tuple(map(unsigned, slots))


def bucket_heads(header: Header, memory: Extents) -> Iterator[Heads]:
    """Yields the bucket heads that are present."""
    pointer, stride = header.layout.pointer_size, header.bucket_stride
    for low, high in memory.covered(header.buckets, header.buckets_end):
        first = -(-(low - header.buckets) // stride)
        last = (high - pointer - header.buckets) // stride
        if first > last:
            continue
        words = pointers(
            memory, header.buckets + first * stride, (last - first) * stride // pointer + 1, pointer
        )
        yield Heads(first, words[:: stride // pointer])


def first_entries(heads: Iterable[Heads]) -> Iterator[Tuple[int, int]]:
    """Yields (bucket, address of its first entry) for the buckets that are not empty."""
    for run in heads:
        buckets = range(run.first, run.first + len(run.addresses))
        yield from zip(compress(buckets, run.addresses), filter(None, run.addresses))


def pointers(memory: Extents, address: int, count: int, size: int) -> Tuple[int, ...]:
    """Returns an array of pointers, or an empty tuple if a part of it is missing."""
    data = memory.read(address, count * size)
    return integers(data, size) if data is not None else ()


_CONFIRMATIONS = 3
"""Number of valid blocks in a row that confirm an address as the start of a block."""
_SCAN = 0x1000
"""The most bytes of one present range that are searched for the start of a block."""


class Blocks(NamedTuple):
    """Entries as columns, one row for each: address, HashChain as stored, Depth as stored."""

    addresses: List[int]
    chains: List[int]
    depths: List[int]

    def append(self, address: int, chain: int, depth: int) -> None:
        self.addresses.append(address)
        self.chains.append(chain)
        self.depths.append(depth)


class BlockWalk:
    """Walks the blocks from the first entry to the lower watermark.

    If a block is invalid or missing, the walk continues at the next anchor: an address to which a bucket, an
    index slot or a chain leads. If several valid blocks in a row come before that anchor, it continues there.

    Args:
        end: the lower watermark, or an upper bound for it
        pointers: returns the addresses that buckets and index slots hold; called only when a block is invalid
    """

    def __init__(
        self,
        layout: EntryLayout,
        memory: Extents,
        first: int,
        end: int,
        pointers: Callable[[], Sequence[int]],
    ) -> None:
        self._layout = layout
        self._memory = memory
        self._first = first
        self._end = end
        self._pointers = pointers
        self._blocks = Blocks([], [], [])

    def walk(self) -> Blocks:
        """Returns the blocks, by address."""
        position: Optional[int] = self._first
        while position is not None and position < self._end:
            stopped = self._stride(position)
            position = None if stopped == self._end else self._resume(stopped)
        return self._blocks

    def _stride(self, position: int) -> int:
        """Appends the valid blocks from an address on; returns the address of the first invalid one."""
        run = self._memory.run_at(position)
        if run is None:
            return position
        start, data = run
        layout = self._layout
        shift, sizes, capacities = layout.shift, layout.sizes, layout.capacities
        unpack, most = layout.scan, layout.max_depth
        addresses, chains, depths = self._blocks
        offset = position - start
        last = min(len(data), self._end - start) - layout.head_size
        while offset <= last:
            chain, word, depth = unpack(data, offset)
            if not 0 < depth <= most:
                break
            size_class = word >> shift if shift else depth
            if depth > capacities[size_class]:
                break
            addresses.append(start + offset)
            chains.append(chain)
            depths.append(depth)
            offset += sizes[size_class]
        return start + offset

    def _resume(self, stopped: int) -> Optional[int]:
        """Returns the address at which valid blocks start again, None if there is none.

        If the last valid block has a wrong size, that address lies within the block. `stopped` is the address
        of the first invalid block.
        """
        layout, blocks = self._layout, self._blocks
        if blocks.addresses:
            # The BlockDepth of the last block may be wrong.
            address, depth = blocks.addresses[-1], blocks.depths[-1]
            for place in (address + layout.size_for(depth), *self._anchors_between(address + 1, stopped)):
                if place != stopped and self._confirmed(place):
                    return place
        head = self._memory.read(stopped, layout.head_size)
        if head is not None and stopped < self._end:
            chain, word, depth = layout.scan(head, 0)
            following = stopped + layout.sizes[word >> layout.shift] if layout.shift else stopped
            confirmed = following > stopped and self._confirmed(following)
            if confirmed or self._anchors_between(stopped, stopped + 1):
                blocks.append(stopped, chain, depth)
            if confirmed:
                return following
        return self._next(stopped + layout.alignment)

    def _next(self, position: int) -> Optional[int]:
        """Returns the next anchor or confirmed block, whichever comes first; None if there is none."""
        anchors, unit = self._anchors, self._layout.alignment
        nearest = bisect.bisect_left(anchors, position)
        limit = anchors[nearest] if nearest < len(anchors) else self._end
        for low, high in self._memory.covered(position, limit):
            low += -(low - self._first) % unit
            for place in range(low, min(high, low + _SCAN), unit):
                if self._confirmed(place):
                    return place
        return limit if limit < self._end else None

    def _confirmed(self, position: int) -> bool:
        """Returns whether several blocks in a row from an address are valid, or all blocks up to the end."""
        layout = self._layout
        for _ in range(_CONFIRMATIONS):
            if position == self._end:
                return True
            head = self._memory.read(position, layout.head_size)
            if head is None or position > self._end:
                return False
            chain, word, depth = layout.scan(head, 0)
            if not 0 < depth <= layout.max_depth or chain % layout.pointer_size:
                return False
            if chain and not self._first <= chain < self._end:
                return False
            size_class = word >> layout.shift if layout.shift else depth
            if depth > layout.capacities[size_class]:
                return False
            position += layout.sizes[size_class]
        return True

    def _anchors_between(self, low: int, high: int) -> List[int]:
        anchors = self._anchors
        return anchors[bisect.bisect_left(anchors, low) : bisect.bisect_left(anchors, high)]

    @functools.cached_property
    def _anchors(self) -> List[int]:
        """The addresses to which buckets, slots and chains lead, if a block may start there."""
        unit, addresses = self._layout.alignment, set(self._pointers()) | set(self._blocks.chains)
        return sorted(
            address
            for address in addresses
            if self._first <= address < self._end and not (address - self._first) % unit
        )
