# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Page heap (7 and later), which names the entries of a stack trace database.

Full page heap (`_DPH_HEAP_ROOT`) gives each block pages of its own and describes them in a tree of nodes
(`_DPH_HEAP_BLOCK`). Light page heap puts a `_DPH_BLOCK_INFORMATION` right before the caller's bytes within a
block of an ordinary heap; full page heap does so in the block's own pages.

Source: public symbols of ntdll 7 SP1 and 10.0.1904x; the root's signature, and its place one page above the
heap's handle, from public write-ups; the stamps from public documentation. Measured: busy blocks of full page
heap on 14393 (x86) only.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

from ...memory.decode.links import neighbour, walk
from ...memory.decode.memory import Memory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from .layout import PageHeapLayout

ROOT_SIGNATURE = 0xFFEEDDCC

_MAX_NODES = 0x1000000

# StartStamp: (EndStamp, full page heap, freed)
_STAMPS: Dict[int, Tuple[int, bool, bool]] = {
    0xABCDBBBB: (0xDCBABBBB, True, False),
    0xABCDBBBA: (0xDCBABBBA, True, True),
    0xABCDAAAA: (0xDCBAAAAA, False, False),
    0xABCDAAA9: (0xDCBAAAA9, False, True),
}


class PageHeapRoot(NamedTuple):
    """A page heap.

    Attributes:
        normal_heap: handle of the NT heap or segment heap behind it, which holds light blocks
        creator: address of the creator's database entry, 0 for none, None if it is not present
        busy, freed: numbers of busy and freed nodes that the root states, None if they are not present
    """

    address: int
    normal_heap: int
    creator: Optional[int]
    busy: Optional[int]
    freed: Optional[int]
    layout: PageHeapLayout

    @property
    def whole(self) -> bool:
        """Whether all of these members are present."""
        return None not in (self.creator, self.busy, self.freed)


class PageHeapNode(NamedTuple):
    """A block of full page heap.

    Attributes:
        actual: bytes that page heap reserved for them
        trace: address of a database entry, 0 for none; for a freed block, whether it is the trace of the
            allocation or of the free was not measured
        freed: whether the node is on the list of freed blocks
    """

    address: int
    user: int
    size: int
    actual: int
    trace: int
    freed: bool


class UnreadNode:
    """A node, or the pointer to the first node, that is not wholly present: nodes behind it may be missing.
    `address` is the address of the _DPH_HEAP_BLOCK, or of the pointer to the first one."""

    def __init__(self, address: int) -> None:
        self.address = address


class BlockInformation(NamedTuple):
    """A _DPH_BLOCK_INFORMATION whose stamps are right.

    Attributes:
        actual: bytes including all that page heap adds
        full: whether full page heap wrote the information, rather than light
        freed: whether the stamps are those for freed blocks
    """

    user: int
    heap: int
    size: int
    actual: int
    trace: int
    full: bool
    freed: bool


def read_root(memory: Memory, address: int, layout: PageHeapLayout) -> Optional[PageHeapRoot]:
    """Reads the root at an address; None if there is none."""
    if memory.member(address, layout.signature) != ROOT_SIGNATURE:
        return None
    normal_heap = memory.member(address, layout.normal_heap)
    if not normal_heap or normal_heap % PAGE_SIZE or not _proves_itself(memory, address, layout):
        return None
    return PageHeapRoot(
        address,
        normal_heap,
        memory.member(address, layout.creator),
        memory.member(address, layout.busy),
        memory.member(address, layout.freed_count),
        layout,
    )


def other_roots(memory: Memory, root: PageHeapRoot) -> List[int]:
    """Returns the addresses in NextHeap: each may be a root, or the list's head."""
    link = root.layout.next_heap
    return [node - link for node in walk(root.address + link, memory.links).nodes]


def nodes(memory: Memory, root: PageHeapRoot, seen: Set[int]) -> Iterator[Union[PageHeapNode, UnreadNode]]:
    """Yields a page heap's blocks, the busy ones of its tree, then the freed ones of its list, and an
    `UnreadNode` for each place at which nodes cannot be read. `seen` has the addresses of the nodes of other
    page heaps; the nodes of this one are added."""
    layout = root.layout
    yield from _tree(memory, root.address + layout.tree, layout, seen)
    yield from _list(memory, root.address + layout.freed, layout, seen)


def _proves_itself(memory: Memory, address: int, layout: PageHeapLayout) -> bool:
    """Returns whether a root of this bitness is at an address.

    Either the tree's anchor is its own parent, or the next element on the list of page heaps leads back.
    """
    anchor, link = address + layout.tree, address + layout.next_heap
    return memory.member(anchor, layout.parent) == anchor or neighbour(link, memory.links, 0) is not None


def _tree(
    memory: Memory, anchor: int, layout: PageHeapLayout, seen: Set[int]
) -> Iterator[Union[PageHeapNode, UnreadNode]]:
    """Yields the nodes of an _RTL_AVL_TABLE; the tree's root is the right child of BalancedRoot."""
    seen.add(anchor)
    pending = [memory.member(anchor, layout.right)]
    if pending[0] is None:
        yield UnreadNode(anchor + layout.right.offset)
    while pending and len(seen) < _MAX_NODES:
        address = pending.pop()
        if not address or address in seen:
            continue
        seen.add(address)
        node = _node(memory, address - layout.node_links, layout, False)
        children = [memory.member(address, layout.right), memory.member(address, layout.left)]
        if node is not None:
            yield node
        if node is None or None in children:
            yield UnreadNode(address - layout.node_links)
        pending += children


def _list(
    memory: Memory, head: int, layout: PageHeapLayout, seen: Set[int]
) -> Iterator[Union[PageHeapNode, UnreadNode]]:
    """Yields the nodes of a singly linked list, beginning at the pointer to the first node."""
    place = head
    address = memory.pointer(head)
    while address and address not in seen and len(seen) < _MAX_NODES:
        seen.add(address)
        place = address
        node = _node(memory, address, layout, True)
        if node is None:
            yield UnreadNode(address)
            return
        yield node
        address = memory.member(address, layout.node_next)
    if address is None:
        yield UnreadNode(place)


def _node(memory: Memory, address: int, layout: PageHeapLayout, freed: bool) -> Optional[PageHeapNode]:
    user = memory.member(address, layout.node_user)
    requested = memory.member(address, layout.node_size)
    actual = memory.member(address, layout.node_actual)
    trace = memory.member(address, layout.node_trace)
    if user is None or requested is None or actual is None or trace is None:
        return None
    return PageHeapNode(address, user, requested, actual, trace, freed)


def read_information(memory: Memory, address: int, layout: PageHeapLayout) -> Optional[BlockInformation]:
    """Reads the _DPH_BLOCK_INFORMATION at an address; None if its stamps are not there."""
    start = memory.number(address + layout.start_stamp.offset, layout.start_stamp.size)
    if start is None or start not in _STAMPS:
        return None
    end, full, freed = _STAMPS[start]
    data = memory.read(address, layout.information_size)
    if data is None:
        return None
    heap, requested, actual, trace, end_stamp = layout.information(data, 0)
    if end_stamp != end:
        return None
    return BlockInformation(address + layout.information_size, heap, requested, actual, trace, full, freed)
