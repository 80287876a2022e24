# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which heaps a process has: those that its PEB lists, and those that prove themselves in its memory."""

from __future__ import annotations

import collections
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ...base.decode.memory import Memory, Range
from ...base.decode.pagetable import PAGE_SIZE
from ...base.decode.record import Record
from .nt import Heap, disjoint, lost_heap, names_heap, read_heap
from .page import PageHeapTypes, Root, other_roots, read_root
from .segmentheap import SegmentHeap, SegmentHeapTypes, read_segment_heap
from .types import NtTypes

_MAX_ROOTS = 0x1000


class HeapTypes:
    """The structures of the heaps of a bitness.

    Attributes:
        nt: of several generations, of which that one applies that a heap's signatures confirm
        page: of page heap
        segment: of segment heaps, None where the kernel's symbols have them differently
    """

    def __init__(
        self, nt: Sequence[NtTypes], page: PageHeapTypes, segment: Optional[SegmentHeapTypes]
    ) -> None:
        self.nt, self.page, self.segment = nt, page, segment


class FoundHeaps(Record):
    """The heaps of a process. `unread` are listed addresses at which no heap was recognised."""

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


def find(memory: Memory, types: HeapTypes, listed: Sequence[int], ranges: Sequence[Range] = ()) -> FoundHeaps:
    """Finds the heaps of a process.

    Args:
        memory: the process's
        types: of its bitness
        listed: addresses of heaps as the PEB has them
        ranges: (start, end) of private memory, at whose beginning further heaps and segments may lie
    """
    named = _segments(memory, types, ranges)
    addresses = list(dict.fromkeys([*listed, *(start for start, _ in ranges)]))
    nt: List[Heap] = []
    segment: List[SegmentHeap] = []
    for address in addresses:
        heap = read_heap(memory, address, types.nt, named.get(address, ()))
        other = read_segment_heap(memory, address, types.segment) if types.segment and not heap else None
        if heap is not None:
            nt.append(heap)
        elif other is not None:
            segment.append(other)
    page = list(_roots(memory, types.page, addresses))
    known = {heap.address for heap in nt} | {heap.address for heap in segment}
    known |= {root.address - PAGE_SIZE for root in page}
    nt += _lost(memory, types, {each: named[each] for each in named if each not in known}, ranges)
    known |= {heap.address for heap in nt}
    unread = tuple(address for address in dict.fromkeys(listed) if address not in known)
    return FoundHeaps(tuple(disjoint(nt)), tuple(segment), tuple(page), unread)


def _segments(memory: Memory, types: HeapTypes, ranges: Sequence[Range]) -> Dict[int, List[int]]:
    """Returns the segments at the beginning of memory ranges, by the heap that they name."""
    found: Dict[int, List[int]] = {}
    for start, _ in ranges:
        for each in types.nt:
            heap = memory.member(start, each.segment_heap)
            if heap and names_heap(memory, start, heap, each):
                found.setdefault(heap, []).append(start)
                break
    return found


def _lost(
    memory: Memory,
    types: HeapTypes,
    named: Dict[int, List[int]],
    ranges: Sequence[Range],
) -> Iterator[Heap]:
    """Yields the heaps that segments name but whose own beginning is not present."""
    ends = dict(ranges)
    for address, segments in named.items():
        confirmed = next(
            each
            for each in types.nt
            if any(names_heap(memory, segment, address, each) for segment in segments)
        )
        if memory.member(address, confirmed.signature) is None:
            yield lost_heap(memory, address, ends.get(address, address), confirmed, segments)


def _roots(memory: Memory, types: PageHeapTypes, handles: Sequence[int]) -> Iterator[Root]:
    """Yields the page heaps behind handles, and those that these lead to."""
    waiting = collections.deque(handle + PAGE_SIZE for handle in handles)
    seen: Set[int] = set()
    listed: Set[int] = set()
    found = 0
    while waiting and found < _MAX_ROOTS:
        address = waiting.popleft()
        if address in seen:
            continue
        seen.add(address)
        root = read_root(memory, address, types)
        if root is not None:
            found += 1
            yield root
            # The list is the same from each of its members, so that it is walked once.
            if address not in listed:
                others = other_roots(memory, root, types)
                listed.update(others)
                waiting += others
