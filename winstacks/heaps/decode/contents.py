# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The contents of a process's heaps: the creators of the heaps, and the blocks by trace.

The heaps of a process are the heaps in its PEB's list, and further heaps that their own structures in its
memory prove: `find_heaps` finds both.
"""

from __future__ import annotations

import collections
from typing import Collection, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ...columns.words import CONTAINER, HEAP, HEAP_SEGMENT, PAGE, PAGE_HEAP, SEGMENT, SEGMENT_HEAP
from ...memory.decode.memory import Memory, Range
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, StatusItem, status
from ...memory.decode.statuscodes import StatusCode
from ...tracedb.decode.recorded import RecordedStack
from .block import UNKNOWN_SIZE, UNPROVEN, Block, TraceGroup, TraceGroups, sized
from .blockstack import Traces
from .layout import HeapLayouts, PageHeapLayout, SegmentHeapLayout
from .ntblocks import LostBlocks, heap_blocks
from .ntheap import (
    Heap,
    claims_heap,
    disjoint,
    is_signed,
    logs_no_block,
    lost_heap,
    names_heap,
    read_heap,
)
from .pageheap import PageHeapRoot, UnreadNode, nodes, other_roots, read_root
from .segmentheap import (
    NOT_READ,
    SegmentHeap,
    large_blocks,
    named_records,
    read_segment_heap,
)

_MAX_ROOTS = 0x1000


class FoundHeaps(NamedTuple):
    """The heaps of a process. `unread` are listed addresses at which no heap was recognised, and segments
    that belong to no heap."""

    nt: Tuple[Heap, ...]
    segment: Tuple[SegmentHeap, ...]
    page: Tuple[PageHeapRoot, ...]
    unread: Tuple[int, ...]

    @property
    def traced(self) -> bool:
        """Whether one of the heaps records who allocates."""
        return bool(
            self.page
            or any(heap.traced for heap in self.nt)
            or any(heap.interceptor for heap in self.segment)
        )

    @property
    def damaged(self) -> bool:
        """Whether a heap is so damaged that its flags do not show whether it records who allocates."""
        return bool(self.unread) or any(heap.damaged for heap in self.nt)


def find_heaps(
    memory: Memory, layouts: HeapLayouts, listed: Sequence[int], ranges: Sequence[Range] = ()
) -> FoundHeaps:
    """Finds the heaps of a process. `ranges` are (start, end) of private memory, at whose beginning further
    heaps and segments may lie."""
    addresses = list(dict.fromkeys([*listed, *(start for start, _ in ranges)]))
    named = _segments(memory, layouts, ranges, set(addresses))
    nt: List[Heap] = []
    segment: List[SegmentHeap] = []
    for address in addresses:
        heap = read_heap(memory, address, layouts.nt, list(named.get(address, ())))
        other = None if heap else _segment_heap(memory, address, layouts.segment)
        if heap is not None:
            nt.append(heap)
        elif other is not None:
            segment.append(other)
    page = list(_roots(memory, layouts.page, addresses))
    heap_addresses = {heap.address for heap in nt} | {heap.address for heap in segment}
    heap_addresses |= {root.address - PAGE_SIZE for root in page}
    range_ends = dict(ranges)
    for address, segments in named.items():
        layout = layouts.nt[min(segments.values())]
        if address not in heap_addresses and memory.member(address, layout.signature) is None:
            # Segments name this heap, and the page with its _HEAP is not present.
            nt.append(lost_heap(memory, address, range_ends.get(address, address), layout, list(segments)))
    heap_addresses |= {heap.address for heap in nt}
    lost = [*listed, *_stray(memory, layouts, ranges, nt)]
    unread = tuple(address for address in dict.fromkeys(lost) if address not in heap_addresses)
    return FoundHeaps(tuple(disjoint(nt)), tuple(segment), tuple(page), unread)


def _segments(
    memory: Memory, layouts: HeapLayouts, ranges: Sequence[Range], known: Collection[int]
) -> Dict[int, Dict[int, int]]:
    """Returns the segments at the beginning of memory ranges, by the heap that they name.

    Each comes with the number of the first layout that reads it as a segment. A segment with a damaged
    signature counts if its BaseAddress is right and it names a heap at one of the known addresses.
    """
    segments: Dict[int, Dict[int, int]] = {}
    for start, _ in ranges:
        for number, layout in enumerate(layouts.nt):
            heap = memory.member(start, layout.segment_heap)
            claims = claims_heap if heap in known else names_heap
            if heap and claims(memory, start, heap, layout):
                segments.setdefault(heap, {})[start] = number
                break
    return segments


def _stray(
    memory: Memory, layouts: HeapLayouts, ranges: Sequence[Range], heaps: Sequence[Heap]
) -> Iterator[int]:
    """Yields the beginnings of memory ranges with the signature of a segment that belongs to no heap."""
    segments = {segment.address for heap in heaps for segment in heap.segments}
    for start, _ in ranges:
        if start not in segments and any(is_signed(memory, start, layout) for layout in layouts.nt):
            yield start


def _segment_heap(
    memory: Memory, address: int, layouts: Sequence[SegmentHeapLayout]
) -> Optional[SegmentHeap]:
    """Returns the segment heap at an address.

    The first layout with which the heap shows no damage is used; if there is none, the first layout whose
    signature is there.
    """
    read = [heap for heap in (read_segment_heap(memory, address, layout) for layout in layouts) if heap]
    return next((heap for heap in read if not heap.damaged), read[0] if read else None)


def _roots(
    memory: Memory, layouts: Sequence[PageHeapLayout], handles: Sequence[int]
) -> Iterator[PageHeapRoot]:
    """Yields the page heaps behind handles, and the page heaps to which their lists lead."""
    waiting = collections.deque(handle + PAGE_SIZE for handle in handles)
    visited: Set[int] = set()
    listed: Set[int] = set()
    count = 0
    while waiting and count < _MAX_ROOTS:
        address = waiting.popleft()
        if address in visited:
            continue
        visited.add(address)
        read = (read_root(memory, address, candidate) for candidate in layouts)
        root = next((candidate for candidate in read if candidate is not None), None)
        if root is not None:
            count += 1
            yield root
            # The list is the same from each of its members, so it is walked once.
            if address not in listed:
                others = other_roots(memory, root)
                listed.update(others)
                waiting += others


class HeapOwner(NamedTuple):
    """A heap, a segment, or a container: a block in which the low-fragmentation heap keeps its blocks.

    Attributes:
        kind: `heap`, `heap segment`, `segment heap`, `page heap`, `lfh container`
        address: address of the heap or segment; for a container, the address of its contents
        size: bytes reserved; for a container, bytes asked for; 0 if unknown
        trace: trace of the creator, None if the structure has none
        status: empty, or some of `unreadable` (a part is not present, or no heap was recognised there),
            `damaged` (its structures contradict each other), `unlisted` (the PEB does not list it),
            `not-read` (sizes of its blocks, and which are freed, are unknown), `bytes unread` (number of
            bytes in which no block was recognised), `+ust without +hpc` (see `logs_no_block`)
    """

    kind: str
    heap: int
    address: int
    size: int
    trace: Optional[RecordedStack]
    status: Status

    @property
    def joined_status(self) -> Status:
        """Status of the heap or segment, joined with the status of its creator's trace."""
        return self.status if self.trace is None else status(self.status, self.trace.status)


class HeapContents(NamedTuple):
    """The contents of a process's heaps.

    Attributes:
        groups: the blocks by trace, the trace with most bytes first
        lost: bytes of the heaps in which no block header was recognised
        status: reason why heaps may be missing; empty if all of them are here
    """

    owners: List[HeapOwner]
    groups: List[TraceGroup]
    lost: int
    status: Status = NOTHING


def read_contents(
    memory: Memory,
    found: FoundHeaps,
    layouts: HeapLayouts,
    traces: Traces,
    listed: Optional[Collection[int]],
    keep: bool = False,
) -> HeapContents:
    """Reads the heaps of a process. `listed` are addresses of heaps in the PEB's list, None if the list is
    unknown."""
    # Light page heap has the layout of the full page heaps beside it.
    page = list(dict.fromkeys(root.layout for root in found.page)) or layouts.page
    reading = _Reading(memory, page, traces, listed, keep)
    for heap in found.nt:
        reading.nt_heap(heap)
    for segment_heap in found.segment:
        reading.segment_heap(segment_heap)
    for root in found.page:
        reading.page_heap(root)
    for address in found.unread:
        reading.owners.append(HeapOwner(HEAP, address, address, 0, None, status(StatusCode.UNREADABLE)))
    return HeapContents(reading.owners, reading.groups.groups(), reading.lost)


class _Reading:
    def __init__(
        self,
        memory: Memory,
        page: Sequence[PageHeapLayout],
        traces: Traces,
        listed: Optional[Collection[int]],
        keep: bool,
    ) -> None:
        self._memory = memory
        self._page = page
        self._traces = traces
        self._listed = listed
        self._nodes: Set[int] = set()
        self.owners: List[HeapOwner] = []
        self.groups = TraceGroups(keep)
        self.lost = 0

    def nt_heap(self, heap: Heap) -> None:
        """Reads an NT heap; its first segment is the heap itself."""
        missing_bytes, absent = 0, False
        damaged = heap.damaged or any(segment.damaged for segment in heap.segments[:1])
        containers: List[HeapOwner] = []
        for item in heap_blocks(self._memory, heap, self._traces, self._page):
            if isinstance(item, Block):
                if item.form == CONTAINER:
                    containers.append(_container(item))
                else:
                    self.groups.add(item)
            else:
                missing_bytes += item.end - item.start
                present = self._is_present(item)
                damaged, absent = damaged or present, absent or not present
        self.lost += missing_bytes
        unread = StatusItem(StatusCode.BYTES_UNREAD, missing_bytes) if missing_bytes else None
        untraced = StatusCode.UST_WITHOUT_HPC if logs_no_block(self._memory, heap) else None
        heap_status = status(_words(damaged, self._unlisted(heap.address), absent), unread, untraced)
        for number, segment in enumerate(heap.segments):
            creator = segment.creator if number else heap.creator or segment.creator
            self.owners.append(
                HeapOwner(
                    HEAP_SEGMENT if number else HEAP,
                    heap.address,
                    segment.address if number else heap.address,
                    segment.pages * PAGE_SIZE,
                    self._traces.index(creator) if creator else None,
                    _words(segment.damaged) if number else heap_status,
                )
            )
        self.owners += containers

    def _is_present(self, gap: LostBlocks) -> bool:
        present = sum(len(data) for _, data in self._memory.pages(gap.start, gap.end))
        return present == gap.end - gap.start

    def segment_heap(self, heap: SegmentHeap) -> None:
        """Reads a segment heap as far as its structures are known."""
        for block in large_blocks(self._memory, heap, self._traces):
            self.groups.add(block)
        for trace in named_records(self._memory, heap, self._traces):
            self.groups.add(Block(heap.address, 0, UNKNOWN_SIZE, 0, SEGMENT, False, trace, 0, NOT_READ))
        size = sum(end - start for start, end in heap.segments)
        statuses = status(_words(heap.damaged, self._unlisted(heap.address)), NOT_READ)
        self.owners.append(HeapOwner(SEGMENT_HEAP, heap.address, heap.address, size, None, statuses))

    def page_heap(self, root: PageHeapRoot) -> None:
        """Reads a full page heap; the normal heap behind it is read as a heap of its own."""
        handle = root.address - PAGE_SIZE
        busy = freed = 0
        absent = not root.whole
        for node in nodes(self._memory, root, self._nodes):
            if isinstance(node, UnreadNode):
                absent = True
                continue
            busy += not node.freed
            freed += node.freed
            trace = self._traces.entry(node.trace) if node.trace else None
            size, overhead, statuses = sized(node.actual, node.actual - node.size, NOTHING)
            statuses = status(statuses, UNPROVEN if node.freed and trace else None)
            self.groups.add(Block(handle, node.user, size, overhead, PAGE, node.freed, trace, 0, statuses))
        creator = self._traces.entry(root.creator) if root.creator else None
        # If nodes are unreadable, the counts cannot be checked.
        fewer = not absent and (busy < (root.busy or 0) or freed < (root.freed or 0))
        self.owners.append(HeapOwner(PAGE_HEAP, handle, handle, 0, creator, _words(fewer, unreadable=absent)))

    def _unlisted(self, address: int) -> bool:
        return self._listed is not None and address not in self._listed


def _container(block: Block) -> HeapOwner:
    return HeapOwner(CONTAINER, block.heap, block.user, max(block.size, 0), block.trace, block.status)


def _words(damaged: bool, unlisted: bool = False, unreadable: bool = False) -> Status:
    return status(
        StatusCode.UNREADABLE if unreadable else None,
        StatusCode.DAMAGED if damaged else None,
        StatusCode.UNLISTED if unlisted else None,
    )
