# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The segments of an NT heap (`_HEAP_SEGMENT`) and their uncommitted ranges.

Source: public symbols of ntoskrnl and ntdll (XP to 11), and heaps that ntdll of 7601.24384 and 19044.1766
wrote. All addresses are canonical virtual addresses.
"""

from __future__ import annotations

from typing import FrozenSet, Iterator, List, NamedTuple, Optional, Set, Tuple

from ...base.decode.links import walk
from .layout import HeapLayout
from .memory import PAGE, HeapMemory

SIGNATURE = 0xFFEEFFEE

_MAX_RANGES = 0x10000


class Segment(NamedTuple):
    """A segment: the memory from `first` to `last` holds its blocks.

    Attributes:
        address: of its _HEAP_SEGMENT, which in 6.0 and later is the _HEAP itself for the first one
        base: BaseAddress
        pages: NumberOfPages
        creator: index of the trace that made it, 0 for none
        uncommitted: (start, end) of its uncommitted ranges, sorted
        descriptors: addresses of the structures that describe them, which lie in blocks of the heap
        damaged: its header or the list of its ranges contradicts itself
    """

    address: int
    base: int
    pages: int
    first: int
    last: int
    creator: int
    uncommitted: Tuple[Tuple[int, int], ...]
    descriptors: FrozenSet[int]
    damaged: bool

    def committed(self) -> Iterator[Tuple[int, int]]:
        """Yields the (start, end) between the uncommitted ranges, each of which begins with a block."""
        start = self.first
        for low, high in self.uncommitted:
            if start < min(low, self.last):
                yield start, min(low, self.last)
            start = max(start, high)
        if start < self.last:
            yield start, self.last


def names_heap(memory: HeapMemory, segment: int, heap: int, layout: HeapLayout) -> bool:
    """Tells whether a segment is at an address, and whether it names a heap as its own."""
    signature = memory.number(segment + layout.segment.signature, 4)
    return signature == SIGNATURE and memory.pointer(segment + layout.segment.heap) == heap


def read_segment(memory: HeapMemory, address: int, layout: HeapLayout) -> Optional[Segment]:
    """Reads the segment at an address, or returns None when its header is not present."""
    where = layout.segment
    base = memory.pointer(address + where.base)
    pages = memory.number(address + where.pages, 4)
    first = memory.pointer(address + where.first)
    last = memory.pointer(address + where.last)
    if base is None or pages is None or first is None or last is None:
        return None
    links, whole = _range_links(memory, address, layout)
    descriptors = [link - where.range_link for link in links]
    ranges = [_uncommitted(memory, each, layout) for each in descriptors]
    end = base + pages * PAGE
    sane = base <= address < first <= last <= end and not first % layout.entry.unit
    if not sane:
        first, last = address + where.size, max(end, address + where.size) if base <= address else address
    return Segment(
        address=address,
        base=base,
        pages=pages,
        first=first,
        last=last,
        creator=memory.number(address + where.creator, 2) or 0,
        uncommitted=tuple(sorted(each for each in ranges if first <= each[0] < each[1] <= end)),
        descriptors=frozenset(descriptors),
        damaged=not (sane and whole),
    )


def _range_links(memory: HeapMemory, segment: int, layout: HeapLayout) -> Tuple[List[int], bool]:
    where = layout.segment
    if where.links is None:
        return _chain(memory, memory.pointer(segment + where.ranges), where.range_link)
    listed = walk(segment + where.ranges, memory.links, _MAX_RANGES)
    return list(listed.nodes), listed.gap is None


def _uncommitted(memory: HeapMemory, descriptor: int, layout: HeapLayout) -> Tuple[int, int]:
    start = memory.pointer(descriptor + layout.segment.range_address) or 0
    length = memory.pointer(descriptor + layout.segment.range_size) or 0
    return start, start + length


def _chain(memory: HeapMemory, first: Optional[int], link: int) -> Tuple[List[int], bool]:
    """Follows a chain that ends with 0; returns the addresses of its links."""
    found: List[int] = []
    seen: Set[int] = set()
    at = first
    while at and at not in seen and len(found) < _MAX_RANGES:
        seen.add(at)
        found.append(at + link)
        at = memory.pointer(at + link)
    return found, at == 0
