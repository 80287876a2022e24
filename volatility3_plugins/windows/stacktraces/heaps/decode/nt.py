# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The NT heap: `_HEAP`, which segments it has and which virtual-alloc blocks.

Source: public symbols of ntoskrnl and ntdll (XP to 11), and heaps that ntdll of 7601.24384 and
19044.1766 wrote. All addresses are canonical virtual addresses.
"""

from __future__ import annotations

import bisect
from typing import Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ...base.decode.links import walk
from .layout import HeapLayout
from .memory import HeapMemory
from .segment import Segment, names_heap, read_segment

HEAP_SIGNATURE = 0xEEFFEEFF
CAPTURES_STACKS = 0x08000000  # HEAP_CAPTURE_STACK_BACKTRACES in _HEAP.Flags

_MAX_SEGMENTS_5 = 64


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


def lost_heap(
    memory: HeapMemory, address: int, end: int, layout: HeapLayout, candidates: Sequence[int] = ()
) -> Heap:
    """Returns what can still be said of a heap whose _HEAP is not present.

    Its headers cannot be decoded, so its blocks are those that prove themselves otherwise.

    Args:
        memory: the process's
        address: of the heap
        end: of the memory that it began
        layout: of a heap of this bitness
        candidates: addresses that may be segments of it
    """
    first = Segment(address, address, 0, address + layout.entry.unit, end, 0, (), frozenset(), True)
    named = [each for each in candidates if names_heap(memory, each, address, layout)]
    others = [read_segment(memory, each, layout) for each in named if each != address]
    segments = (first, *(segment for segment in others if segment is not None))
    return Heap(address, layout, 0, 0, 0, 0, segments, (), True)


def disjoint(heaps: Sequence[Heap]) -> List[Heap]:
    """Returns heaps whose segments end where the next one begins, be it another heap's.

    A segment that claims another one's memory is cut and called damaged: no memory is walked twice.
    """
    starts = sorted({segment.address for heap in heaps for segment in heap.segments})
    taken: Set[int] = set()
    result: List[Heap] = []
    for heap in heaps:
        kept = []
        for segment in heap.segments:
            if segment.address in taken:
                continue
            taken.add(segment.address)
            position = bisect.bisect_right(starts, segment.address)
            limit = starts[position] if position < len(starts) else segment.last
            if limit < segment.last:
                segment = segment._replace(last=limit, damaged=True)
            kept.append(segment)
        result.append(heap._replace(segments=tuple(kept)))
    return result


def _is_heap(memory: HeapMemory, address: int, layout: HeapLayout) -> bool:
    if memory.number(address + layout.signature, 4) != HEAP_SIGNATURE:
        return False
    if layout.segment.links is not None:
        return names_heap(memory, address, address, layout)
    first = memory.pointer(address + layout.segments)
    return first is not None and names_heap(memory, first, address, layout)


def _heap(memory: HeapMemory, address: int, layout: HeapLayout, candidates: Sequence[int]) -> Heap:
    addresses, complete = _segment_addresses(memory, address, layout)
    virtual = walk(address + layout.virtual_blocks, memory.links)
    known = dict.fromkeys(addresses)
    known.update(dict.fromkeys(each for each in candidates if names_heap(memory, each, address, layout)))
    segments = [read_segment(memory, each, layout) for each in known]
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
        named = [each for each in found if each and names_heap(memory, each, heap, layout)]
        return named, len(named) == sum(each != 0 for each in found)
    listed = walk(heap + layout.segments, memory.links)
    named = [node - links for node in listed.nodes if names_heap(memory, node - links, heap, layout)]
    intact = listed.gap is None and len(named) == len(listed.nodes)
    return (named if heap in named else [heap, *named]), intact


def _key(memory: HeapMemory, heap: int, layout: HeapLayout) -> int:
    if not _member(memory, heap, layout.encode_mask, 4) or layout.encoding is None:
        return 0
    return _member(memory, heap, layout.encoding + layout.entry.code, 8)


def _member(memory: HeapMemory, address: int, offset: Optional[int], size: int) -> int:
    return 0 if offset is None else memory.number(address + offset, size) or 0
