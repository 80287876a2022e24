# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The NT heap (`_HEAP`): its segments (`_HEAP_SEGMENT`), their uncommitted ranges, its virtual-alloc blocks.

Source: public symbols of ntoskrnl and ntdll (XP to 11), and heaps that ntdll of 7601.24384 and 19044.1766
wrote. All addresses are canonical virtual addresses.
"""

from __future__ import annotations

import bisect
from typing import FrozenSet, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ...memory.decode.links import walk
from ...memory.decode.memory import Memory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from .layout import HeapLayout

HEAP_SIGNATURE = 0xEEFFEEFF
SEGMENT_SIGNATURE = 0xFFEEFFEE
CAPTURES_STACKS = 0x08000000  # HEAP_CAPTURE_STACK_BACKTRACES in _HEAP.Flags

# Bits of _HEAP.ForceFlags: XP and 2003 log who allocates a block only if one of them is set.
_LOGS_BLOCKS = 0x69020000

_MAX_RANGES = 0x10000


class HeapSegment(NamedTuple):
    """A segment: the memory from `first` to `last` holds its blocks.

    Attributes:
        address: address of the _HEAP_SEGMENT; in 6.0 and later the first segment's is the _HEAP itself
        creator: index of the creator's trace, 0 for none
        uncommitted: (start, end) of the uncommitted ranges, sorted
        descriptors: addresses of the structures that describe these ranges, which lie in blocks of the heap
        damaged: whether the header or the list of ranges contradicts itself
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
        """Yields the (start, end) of the committed ranges; each begins with a block."""
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
        address: address of the _HEAP, which is the heap's handle
        layout: structures that the signatures, and whole lists, confirm
        key: XOR key of block headers from their member Size on; 0 if headers are plain
        interceptor: index of the routine that extends each block, 0 for none
    """

    address: int
    layout: HeapLayout
    flags: int
    key: int
    interceptor: int
    creator: int
    segments: Tuple[HeapSegment, ...]
    virtual_blocks: Tuple[int, ...]
    damaged: bool

    @property
    def traced(self) -> bool:
        """Whether the heap's flags ask it to record who allocates."""
        return bool(self.flags & CAPTURES_STACKS or self.interceptor or self.creator) or any(
            segment.creator for segment in self.segments
        )


def read_heap(
    memory: Memory, address: int, generations: Iterable[HeapLayout], candidates: Sequence[int] = ()
) -> Optional[Heap]:
    """Reads the heap at an address; None if there is none.

    Args:
        generations: layouts that may apply. The heap gets the first layout that its signatures confirm and
            with which its lists and segments agree; without such a layout, the first that its signatures
            confirm
        candidates: addresses that may be segments, such as the starts of the process's VADs: segments that
            name this heap are added to those on its list, also if their signature is damaged
    """
    damaged: Optional[Heap] = None
    for layout in generations:
        if _is_heap(memory, address, layout):
            heap = _heap(memory, address, layout, candidates)
            if not (heap.damaged or any(segment.damaged for segment in heap.segments)):
                return heap
            damaged = damaged or heap
    return damaged


def logs_no_block(memory: Memory, heap: Heap) -> bool:
    """Returns whether the flags ask for traces although none of the heap's busy blocks can name one.

    Heaps of 5.x log blocks only if they also check themselves (a debugger, or `gflags +hpc`).
    Source: listing of ntdll 2600.5512, where RtlAllocateHeap logs if ForceFlags has a bit of 69020000h.
    Measured on XP and 2003: NtGlobalFlag 1000h logs nothing, 1040h and 1070h log every block.
    """
    layout = heap.layout
    if layout.force_flags is None or not heap.flags & CAPTURES_STACKS:
        return False
    forced = memory.member(heap.address, layout.force_flags)
    return forced is not None and not forced & _LOGS_BLOCKS


def lost_heap(
    memory: Memory, address: int, end: int, layout: HeapLayout, candidates: Sequence[int] = ()
) -> Heap:
    """Returns a heap whose _HEAP is not present, with the segments that name it.

    Its block headers cannot be decoded: its blocks are those that records of the log prove.
    """
    first = HeapSegment(address, address, 0, address + layout.unit, end, 0, (), frozenset(), True)
    named = [candidate for candidate in candidates if names_heap(memory, candidate, address, layout)]
    others = [read_segment(memory, candidate, layout) for candidate in named if candidate != address]
    segments = (first, *(segment for segment in others if segment is not None))
    return Heap(address, layout, 0, 0, 0, 0, segments, (), True)


def disjoint(heaps: Sequence[Heap]) -> List[Heap]:
    """Returns the heaps with their segments cut where the next segment begins, even another heap's.

    A segment that claims another segment's memory is marked damaged: no memory is walked twice.
    """
    starts = sorted({segment.address for heap in heaps for segment in heap.segments})
    covered: Set[int] = set()
    result: List[Heap] = []
    for heap in heaps:
        segments = []
        for segment in heap.segments:
            if segment.address in covered:
                continue
            covered.add(segment.address)
            position = bisect.bisect_right(starts, segment.address)
            limit = starts[position] if position < len(starts) else segment.last
            if limit < segment.last:
                segment = segment._replace(last=limit, damaged=True)
            segments.append(segment)
        result.append(heap._replace(segments=tuple(segments)))
    return result


def names_heap(memory: Memory, segment: int, heap: int, layout: HeapLayout) -> bool:
    """Returns whether a segment is at an address and names a heap as its own."""
    return is_signed(memory, segment, layout) and memory.member(segment, layout.segment_heap) == heap


def claims_heap(memory: Memory, segment: int, heap: int, layout: HeapLayout) -> bool:
    """Returns whether a segment names a heap as its own, and its signature or its BaseAddress is right."""
    if memory.member(segment, layout.segment_heap) != heap:
        return False
    return is_signed(memory, segment, layout) or memory.member(segment, layout.segment_base) == segment


def is_signed(memory: Memory, segment: int, layout: HeapLayout) -> bool:
    """Returns whether an address has the signature of a segment."""
    return memory.member(segment, layout.segment_signature) == SEGMENT_SIGNATURE


def read_segment(memory: Memory, address: int, layout: HeapLayout) -> Optional[HeapSegment]:
    """Reads the segment at an address; None if its header is not present."""
    base = memory.member(address, layout.segment_base)
    pages = memory.member(address, layout.segment_pages)
    first = memory.member(address, layout.segment_first)
    last = memory.member(address, layout.segment_last)
    if base is None or pages is None or first is None or last is None:
        return None
    links, complete = _range_links(memory, address, layout)
    descriptors = [link - layout.range_link for link in links]
    ranges = [_uncommitted(memory, item, layout) for item in descriptors]
    end = base + pages * PAGE_SIZE
    sane = base <= address < first <= min(last, address + layout.header_limit) and last <= end
    sane = sane and not first % layout.unit
    if not sane:
        first = address + layout.segment_size
        last = max(end, first) if base <= address else address
    return HeapSegment(
        address=address,
        base=base,
        pages=pages,
        first=first,
        last=last,
        creator=memory.member(address, layout.segment_creator) or 0,
        uncommitted=tuple(sorted(item for item in ranges if first <= item[0] < item[1] <= end)),
        descriptors=frozenset(descriptors),
        damaged=not (sane and complete and is_signed(memory, address, layout)),
    )


def _is_heap(memory: Memory, address: int, layout: HeapLayout) -> bool:
    if memory.member(address, layout.signature) != HEAP_SIGNATURE:
        return False
    if layout.segment_links is not None:
        return names_heap(memory, address, address, layout)
    first = memory.pointer(address + layout.segments.offset)
    return first is not None and names_heap(memory, first, address, layout)


def _heap(memory: Memory, address: int, layout: HeapLayout, candidates: Sequence[int]) -> Heap:
    addresses, complete = _segment_addresses(memory, address, layout)
    virtual = walk(address + layout.virtual_blocks.offset, memory.links)
    segment_addresses = dict.fromkeys(addresses)
    claiming = (candidate for candidate in candidates if claims_heap(memory, candidate, address, layout))
    segment_addresses.update(dict.fromkeys(claiming))
    segments = [read_segment(memory, candidate, layout) for candidate in segment_addresses]
    return Heap(
        address=address,
        layout=layout,
        flags=memory.member(address, layout.flags) or 0,
        key=_key(memory, address, layout),
        interceptor=memory.member(address, layout.interceptor) or 0,
        creator=memory.member(address, layout.creator) or 0,
        segments=tuple(segment for segment in segments if segment is not None),
        virtual_blocks=tuple(link - layout.virtual_links for link in virtual.nodes),
        damaged=not complete or virtual.gap is not None or None in segments,
    )


def _segment_addresses(memory: Memory, heap: int, layout: HeapLayout) -> Tuple[List[int], bool]:
    if layout.segment_links is None:
        count = layout.segments.size // layout.pointer_size
        places = (heap + layout.segments.offset + index * layout.pointer_size for index in range(count))
        pointers = [memory.pointer(place) for place in places]
        named = [pointer for pointer in pointers if pointer and names_heap(memory, pointer, heap, layout)]
        return named, len(named) == sum(pointer != 0 for pointer in pointers)
    listed = walk(heap + layout.segments.offset, memory.links)
    starts = (node - layout.segment_links.offset for node in listed.nodes)
    named = [start for start in starts if names_heap(memory, start, heap, layout)]
    intact = listed.gap is None and len(named) == len(listed.nodes)
    return (named if heap in named else [heap, *named]), intact


def _range_links(memory: Memory, segment: int, layout: HeapLayout) -> Tuple[List[int], bool]:
    ranges = segment + layout.ranges.offset
    if layout.segment_links is None:
        return _chain(memory, memory.pointer(ranges), layout.range_link)
    listed = walk(ranges, memory.links, _MAX_RANGES)
    return list(listed.nodes), listed.gap is None


def _uncommitted(memory: Memory, descriptor: int, layout: HeapLayout) -> Tuple[int, int]:
    start = memory.member(descriptor, layout.range_address) or 0
    return start, start + (memory.member(descriptor, layout.range_size) or 0)


def _chain(memory: Memory, first: Optional[int], link: int) -> Tuple[List[int], bool]:
    """Follows a chain that ends with 0; returns the addresses of its links."""
    addresses: List[int] = []
    visited: Set[int] = set()
    address = first
    while address and address not in visited and len(addresses) < _MAX_RANGES:
        visited.add(address)
        addresses.append(address + link)
        address = memory.pointer(address + link)
    return addresses, address == 0


def _key(memory: Memory, heap: int, layout: HeapLayout) -> int:
    if not memory.member(heap, layout.encode_mask) or layout.encoding is None:
        return 0
    return memory.number(heap + layout.encoding.offset + layout.code, layout.unit - layout.code) or 0
