# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How the entries of a database are laid out in bulk: sizes, alignment, one precompiled struct per depth."""

from __future__ import annotations

import functools
import struct
from typing import Dict, Iterator, NamedTuple, Tuple

from ...base.decode.extents import Extents
from .header import Header
from .layout import Member, StdLayout, packer

POINTER_CODES = {4: "I", 8: "Q"}


class Heads(NamedTuple):
    """Bucket heads in a row: the number of the first, and the address of each one's first entry or 0."""

    first: int
    addresses: Tuple[int, ...]


class Codec(NamedTuple):
    """What it takes to decode entries of one layout.

    Attributes:
        pointer_size: 4 or 8
        head_size: bytes before BackTrace
        max_depth: 32
        alignment: of an entry, relative to the first one
        head: unpacks (HashChain, TraceCount, [IndexHigh,] Index, Depth)
        scan: unpacks (HashChain, the word that holds BlockDepth, Depth)
        shift: position of BlockDepth in that word; 0 where blocks have none and Depth gives the size
        sizes: bytes of a block, by BlockDepth (or by Depth)
        capacities: frames that fit in a block, by the same
        marks: unpacks (TraceCount, [IndexHigh,] Index)
        frames: by depth, unpacks BackTrace of an entry
        count_mask: for TraceCount's word
        saturation: the TraceCount that means "or more"; 0 where the count is 32 bits wide
        wide: IndexHigh is there, the stored index has 32 bits instead of 16
        overwritten: frames of a freed block that the free list's link lies over; -1: nothing is ever freed
    """

    pointer_size: int
    head_size: int
    max_depth: int
    alignment: int
    head: struct.Struct
    scan: struct.Struct
    shift: int
    sizes: Tuple[int, ...]
    capacities: Tuple[int, ...]
    marks: struct.Struct
    frames: Dict[int, struct.Struct]
    count_mask: int
    saturation: int
    wide: bool
    overwritten: int

    def size_for(self, depth: int) -> int:
        """Returns the size of a block that is made for a trace of this depth."""
        return -(-(self.head_size + depth * self.pointer_size) // self.alignment) * self.alignment

    def count_word(self, head: memoryview) -> int:
        """Returns TraceCount as stored, with BlockDepth where they share a word."""
        return int(self.head.unpack_from(head)[1])

    def stored_index(self, head: memoryview) -> int:
        """Returns the number that an entry holds."""
        values = self.head.unpack_from(head)
        return int(values[2] << 16 | values[3] if self.wide else values[2])


@functools.lru_cache(maxsize=None)
def codec(layout: StdLayout) -> Codec:
    """Returns the codec of a layout (made once)."""
    entry, pointer = layout.entry, layout.pointer_size
    members = {member.name: member for member in entry.members}
    # Since 6.1 blocks are multiples of two pointers (code of 7601.17514 and later); before they are packed.
    unit = 2 * pointer if layout.has("LowerMemoryStart") else pointer
    shift = entry.block_depth_shift
    depths = range(1, entry.max_depth + 1) if shift else range(entry.max_depth + 1)
    sizes = tuple(-(-(entry.back_trace + depth * pointer) // unit) * unit for depth in depths)
    word = Member("word", members["TraceCount"].offset, 2)
    overwritten = -1
    if entry.free_chain is not None:
        overwritten = max(entry.free_chain + entry.free_chain_size - entry.back_trace, 0) // pointer
    return Codec(
        pointer_size=pointer,
        head_size=entry.back_trace,
        max_depth=entry.max_depth,
        alignment=unit,
        head=packer(entry.members),
        scan=packer((members["HashChain"], word, members["Depth"])),
        shift=shift,
        sizes=sizes,
        capacities=tuple((size - entry.back_trace) // pointer for size in sizes),
        marks=packer(tuple(member for name, member in members.items() if name not in ("HashChain", "Depth"))),
        frames={
            depth: packer((), f"{depth}{POINTER_CODES[pointer]}", entry.back_trace)
            for depth in range(1, entry.max_depth + 1)
        },
        count_mask=(1 << entry.count_bits) - 1,
        saturation=(1 << entry.count_bits) - 1 if shift else 0,
        wide="IndexHigh" in members,
        overwritten=overwritten,
    )


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


def pointers(memory: Extents, address: int, count: int, size: int) -> Tuple[int, ...]:
    """Returns an array of pointers that is wholly present."""
    data = memory.read(address, count * size)
    return struct.unpack(f"<{count}{POINTER_CODES[size]}", data) if data is not None else ()
