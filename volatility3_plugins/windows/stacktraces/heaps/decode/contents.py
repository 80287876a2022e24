# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""All that the heaps of a process hold: who made them, and their blocks by trace."""

from __future__ import annotations

from typing import Collection, List, NamedTuple, Optional, Set

from .block import DAMAGED, UNKNOWN_SIZE, Block, sized
from .blocks import HeapWalker
from .entry import Lost
from .find import Found, Layouts
from .groups import Group, Groups
from .memory import PAGE, HeapMemory
from .nt import Heap
from .page import Root, Unread, nodes
from .pageinfo import PageInfoLayout
from .segmentheap import NOT_READ, SEGMENT, SegmentHeap, large_blocks, named_records
from .trace import UNREADABLE, Trace, Traces

HEAP = "heap"
HEAP_SEGMENT = "heap segment"
SEGMENT_HEAP = "segment heap"
PAGE_HEAP = "page heap"

PAGE_BLOCK = "page"

UNLISTED = "unlisted"


class Owner(NamedTuple):
    """A heap or a segment.

    Attributes:
        kind: `heap`, `heap segment`, `segment heap`, `page heap`
        heap: the heap's address
        address: its own
        size: bytes that it reserved, 0 when that is not known
        trace: who made it, None when it does not say
        status: empty, or some of `unreadable` (part of it is not present, or there is no heap to be told),
            `damaged` (it contradicts itself), `unlisted` (the PEB does not list it), `not-read` (its blocks'
            sizes are not known, nor which are freed)
    """

    kind: str
    heap: int
    address: int
    size: int
    trace: Optional[Trace]
    status: str


class Contents(NamedTuple):
    """Heaps and segments, the blocks by trace with those of most bytes first, the bytes of the heaps in which
    headers were lost, and why heaps may be missing (empty: they are all there)."""

    owners: List[Owner]
    groups: List[Group]
    lost: int
    status: str = ""


def read_contents(
    memory: HeapMemory,
    found: Found,
    layouts: Layouts,
    page_info: PageInfoLayout,
    traces: Traces,
    listed: Optional[Collection[int]],
    keep: bool = False,
) -> Contents:
    """Reads the heaps of a process.

    Args:
        memory: the process's
        found: its heaps
        layouts: of their structures
        page_info: of what light page heap puts into a block
        traces: what the traces are read with
        listed: the heaps that the PEB lists, None when that is not known
        keep: whether to keep the blocks of the groups
    """
    reading = _Reading(memory, layouts, HeapWalker(memory, traces, page_info), traces, listed, keep)
    for heap in found.nt:
        reading.nt_heap(heap)
    for segment_heap in found.segment:
        reading.segment_heap(segment_heap)
    for root in found.page:
        reading.page_heap(root)
    for address in found.unread:
        reading.owners.append(Owner(HEAP, address, address, 0, None, UNREADABLE))
    return Contents(reading.owners, reading.groups.groups(), reading.lost)


class _Reading:
    def __init__(
        self,
        memory: HeapMemory,
        layouts: Layouts,
        walker: HeapWalker,
        traces: Traces,
        listed: Optional[Collection[int]],
        keep: bool,
    ) -> None:
        self._memory = memory
        self._layouts = layouts
        self._walker = walker
        self._traces = traces
        self._listed = listed
        self._nodes: Set[int] = set()
        self.owners: List[Owner] = []
        self.groups = Groups(keep)
        self.lost = 0

    def nt_heap(self, heap: Heap) -> None:
        """Reads an NT heap; its first segment is the heap itself."""
        lost, damaged, gone = 0, heap.damaged, False
        for item in self._walker.blocks(heap):
            if isinstance(item, Block):
                self.groups.add(item)
            else:
                lost += item.end - item.start
                whole = self._is_present(item)
                damaged, gone = damaged or whole, gone or not whole
        self.lost += lost
        for number, segment in enumerate(heap.segments):
            creator = segment.creator if number else heap.creator or segment.creator
            self.owners.append(
                Owner(
                    HEAP_SEGMENT if number else HEAP,
                    heap.address,
                    segment.address if number else heap.address,
                    segment.pages * PAGE,
                    self._traces.index(creator) if creator else None,
                    _words(segment.damaged)
                    if number
                    else _words(damaged or segment.damaged, self._unlisted(heap.address), gone),
                )
            )

    def _is_present(self, lost: Lost) -> bool:
        present = sum(len(data) for _, data in self._memory.pages(lost.start, lost.end))
        return present == lost.end - lost.start

    def segment_heap(self, heap: SegmentHeap) -> None:
        """Reads a segment heap as far as its structures are known."""
        layout = self._layouts.segment
        if layout is None:
            return
        for block in large_blocks(self._memory, heap, layout, self._traces):
            self.groups.add(block)
        for trace in named_records(self._memory, heap, layout, self._traces):
            self.groups.add(Block(heap.address, 0, UNKNOWN_SIZE, 0, SEGMENT, False, trace, 0, NOT_READ))
        size = sum(end - start for start, end in heap.segments)
        words = _words(heap.damaged, self._unlisted(heap.address))
        status = ", ".join(filter(None, (words, NOT_READ)))
        self.owners.append(Owner(SEGMENT_HEAP, heap.address, heap.address, size, None, status))

    def page_heap(self, root: Root) -> None:
        """Reads a full page heap; the heap behind it is one of the others."""
        handle = root.address - PAGE
        busy = freed = 0
        gone = not root.whole
        for node in nodes(self._memory, root, self._layouts.page, self._nodes):
            if isinstance(node, Unread):
                gone = True
                continue
            busy += not node.freed
            freed += node.freed
            trace = self._traces.entry(node.trace) if node.trace else None
            size, overhead, status = sized(node.actual, node.actual - node.size, "")
            self.groups.add(
                Block(handle, node.user, size, overhead, PAGE_BLOCK, node.freed, trace, 0, status)
            )
        creator = self._traces.entry(root.creator) if root.creator else None
        # Where nodes cannot be read, how many there are says nothing more.
        fewer = not gone and (busy < (root.busy or 0) or freed < (root.freed or 0))
        self.owners.append(Owner(PAGE_HEAP, handle, handle, 0, creator, _words(fewer, unreadable=gone)))

    def _unlisted(self, address: int) -> bool:
        return self._listed is not None and address not in self._listed


def _words(damaged: bool, unlisted: bool = False, unreadable: bool = False) -> str:
    words = ((UNREADABLE, unreadable), (DAMAGED, damaged), (UNLISTED, unlisted))
    return ", ".join(word for word, says in words if says)
