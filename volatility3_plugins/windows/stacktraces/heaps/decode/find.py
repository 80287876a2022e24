# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which heaps a process has: those that its PEB lists, and those that prove themselves in its memory."""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .layout import HeapLayout
from .memory import PAGE, HeapMemory
from .nt import Heap, disjoint, lost_heap, read_heap
from .page import PageHeapLayout, Root, other_roots, read_root
from .segment import names_heap
from .segmentheap import SegmentHeap, SegmentHeapLayout, read_segment_heap

_MAX_ROOTS = 0x1000


class Layouts(NamedTuple):
    """The layouts of a bitness; of several NT heaps' the one applies that a heap's signatures confirm."""

    nt: Tuple[HeapLayout, ...]
    page: PageHeapLayout
    segment: Optional[SegmentHeapLayout]


class Found(NamedTuple):
    """The heaps of a process. `unread` are listed addresses at which no heap is to be told."""

    nt: Tuple[Heap, ...]
    segment: Tuple[SegmentHeap, ...]
    page: Tuple[Root, ...]
    unread: Tuple[int, ...]

    @property
    def traced(self) -> bool:
        """Whether one of them remembers who allocates."""
        return bool(
            self.page
            or any(heap.traced for heap in self.nt)
            or any(heap.interceptor for heap in self.segment)
        )

    @property
    def damaged(self) -> bool:
        """Whether there is a heap of which it cannot be told whether it remembers."""
        return bool(self.unread) or any(heap.damaged for heap in self.nt)


def find(
    memory: HeapMemory, layouts: Layouts, listed: Sequence[int], ranges: Sequence[Tuple[int, int]] = ()
) -> Found:
    """Finds the heaps of a process.

    Args:
        memory: the process's
        layouts: of its bitness
        listed: addresses of heaps as the PEB has them
        ranges: (start, end) of private memory, at whose beginning further heaps and segments may lie
    """
    named = _segments(memory, layouts, ranges)
    addresses = list(dict.fromkeys([*listed, *(start for start, _ in ranges)]))
    nt: List[Heap] = []
    segment: List[SegmentHeap] = []
    for address in addresses:
        heap = read_heap(memory, address, layouts.nt, named.get(address, ()))
        other = read_segment_heap(memory, address, layouts.segment) if layouts.segment and not heap else None
        if heap is not None:
            nt.append(heap)
        elif other is not None:
            segment.append(other)
    page = list(_roots(memory, layouts.page, addresses))
    known = {heap.address for heap in nt} | {heap.address for heap in segment}
    known |= {root.address - PAGE for root in page}
    nt += _lost(memory, layouts, {each: named[each] for each in named if each not in known}, ranges)
    known |= {heap.address for heap in nt}
    unread = tuple(address for address in dict.fromkeys(listed) if address not in known)
    return Found(tuple(disjoint(nt)), tuple(segment), tuple(page), unread)


def _segments(
    memory: HeapMemory, layouts: Layouts, ranges: Sequence[Tuple[int, int]]
) -> Dict[int, List[int]]:
    """Returns the segments at the beginning of memory ranges, by the heap that they name."""
    found: Dict[int, List[int]] = {}
    for start, _ in ranges:
        for layout in layouts.nt:
            heap = memory.pointer(start + layout.segment.heap)
            if heap and names_heap(memory, start, heap, layout):
                found.setdefault(heap, []).append(start)
                break
    return found


def _lost(
    memory: HeapMemory,
    layouts: Layouts,
    named: Dict[int, List[int]],
    ranges: Sequence[Tuple[int, int]],
) -> Iterator[Heap]:
    """Yields the heaps that segments name but whose own beginning is not present."""
    ends = dict(ranges)
    for address, segments in named.items():
        layout = next(
            each
            for each in layouts.nt
            if any(names_heap(memory, segment, address, each) for segment in segments)
        )
        if memory.number(address + layout.signature, 4) is None:
            yield lost_heap(memory, address, ends.get(address, address), layout, segments)


def _roots(memory: HeapMemory, layout: PageHeapLayout, handles: Sequence[int]) -> Iterator[Root]:
    """Yields the page heaps behind handles, and those that these lead to."""
    waiting = [handle + PAGE for handle in handles]
    seen = set()
    found = 0
    while waiting and found < _MAX_ROOTS:
        address = waiting.pop(0)
        if address in seen:
            continue
        seen.add(address)
        root = read_root(memory, address, layout)
        if root is not None:
            found += 1
            yield root
            waiting += other_roots(memory, root, layout)
