# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The NT heap: `_HEAP`, its segments and their uncommitted ranges, its virtual-alloc blocks.

Source: public symbols of ntoskrnl and ntdll (XP to 11), and heaps that ntdll of 7601.24384 and
19044.1766 wrote. All addresses are canonical virtual addresses.
"""

from __future__ import annotations

from typing import FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .heaplayout import HeapLayout
from .heapmemory import HeapMemory
from .links import walk

HEAP_SIGNATURE = 0xEEFFEEFF
SEGMENT_SIGNATURE = 0xFFEEFFEE
PAGE = 0x1000

CAPTURES_STACKS = 0x08000000  # HEAP_CAPTURE_STACK_BACKTRACES in _HEAP.Flags

_MAX_SEGMENTS_5 = 64
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


class Heap(NamedTuple):
    """An NT heap.

    Attributes:
        address: of its _HEAP, which is the heap's handle
        flags: HEAP.Flags
        key: what the 8 bytes of a block's header are XORed with; 0 when headers are plain
        interceptor: index of the routine that extends each block, 0 for none
        creator: index of the trace that made the heap, 0 for none
        virtual_blocks: addresses of its _HEAP_VIRTUAL_ALLOC_ENTRY structures
        damaged: one of its lists is broken
    """

    address: int
    layout: HeapLayout
    flags: int
    key: int
    interceptor: int
    creator: int
    segments: Tuple[Segment, ...]
    virtual_blocks: Tuple[int, ...]
    damaged: bool

    @property
    def traced(self) -> bool:
        """Whether the heap was told to remember who allocates."""
        return bool(self.flags & CAPTURES_STACKS or self.interceptor or self.creator) or any(
            segment.creator for segment in self.segments
        )


def read_heap(
    memory: HeapMemory, address: int, layouts: Iterable[HeapLayout], candidates: Sequence[int] = ()
) -> Optional[Heap]:
    """Reads the heap at an address, or returns None when there is none.

    Args:
        memory: the process's
        address: of the _HEAP
        layouts: those that may apply; the one that the signatures confirm is taken
        candidates: addresses that may be segments, such as those of the process's VADs: the ones that
            name this heap are added to those on its list
    """
    for layout in layouts:
        if _is_heap(memory, address, layout):
            return _heap(memory, address, layout, candidates)
    return None


def _is_heap(memory: HeapMemory, address: int, layout: HeapLayout) -> bool:
    if memory.number(address + layout.signature, 4) != HEAP_SIGNATURE:
        return False
    if layout.segment.links is not None:
        return _names_heap(memory, address, address, layout)
    first = memory.pointer(address + layout.segments)
    return first is not None and _names_heap(memory, first, address, layout)


def _names_heap(memory: HeapMemory, segment: int, heap: int, layout: HeapLayout) -> bool:
    signature = memory.number(segment + layout.segment.signature, 4)
    return signature == SEGMENT_SIGNATURE and memory.pointer(segment + layout.segment.heap) == heap


def _heap(memory: HeapMemory, address: int, layout: HeapLayout, candidates: Sequence[int]) -> Heap:
    addresses, complete = _segment_addresses(memory, address, layout)
    virtual = walk(address + layout.virtual_blocks, memory.links)
    known = dict.fromkeys(addresses)
    known.update(dict.fromkeys(each for each in candidates if _names_heap(memory, each, address, layout)))
    segments = [_segment(memory, each, layout) for each in known]
    return Heap(
        address=address,
        layout=layout,
        flags=memory.number(address + layout.flags, 4) or 0,
        key=_key(memory, address, layout),
        interceptor=_member(memory, address, layout.interceptor, 4),
        creator=memory.number(address + layout.creator, 2) or 0,
        segments=tuple(segment for segment in segments if segment is not None),
        virtual_blocks=tuple(link - layout.virtual.links for link in virtual.nodes),
        damaged=not complete or virtual.gap is not None or None in segments,
    )


def _segment_addresses(memory: HeapMemory, heap: int, layout: HeapLayout) -> Tuple[List[int], bool]:
    links = layout.segment.links
    if links is None:
        found = [
            memory.pointer(heap + layout.segments + index * layout.pointer_size)
            for index in range(_MAX_SEGMENTS_5)
        ]
        named = [each for each in found if each and _names_heap(memory, each, heap, layout)]
        return named, len(named) == sum(each != 0 for each in found)
    listed = walk(heap + layout.segments, memory.links)
    named = [node - links for node in listed.nodes if _names_heap(memory, node - links, heap, layout)]
    intact = listed.gap is None and len(named) == len(listed.nodes)
    return (named if heap in named else [heap, *named]), intact


def _segment(memory: HeapMemory, address: int, layout: HeapLayout) -> Optional[Segment]:
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
    seen = set()
    at = first
    while at and at not in seen and len(found) < _MAX_RANGES:
        seen.add(at)
        found.append(at + link)
        at = memory.pointer(at + link)
    return found, at == 0


def _key(memory: HeapMemory, heap: int, layout: HeapLayout) -> int:
    if not _member(memory, heap, layout.encode_mask, 4) or layout.encoding is None:
        return 0
    return _member(memory, heap, layout.encoding + layout.entry.code, 8)


def _member(memory: HeapMemory, address: int, offset: Optional[int], size: int) -> int:
    return 0 if offset is None else memory.number(address + offset, size) or 0
