# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Full page heap (7 and later): `_DPH_HEAP_ROOT` and its `_DPH_HEAP_BLOCK`s.

It gives each block pages of its own and keeps a tree of nodes that describe them; each node names the entry
of a stack trace database.

Source: public symbols of ntdll 7 SP1 and 10.0.1904x; the root's signature and that the root lies one page
above the heap's handle from public write-ups. None of it was measured.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Set, Union

from ...base.decode.links import walk
from ...base.decode.types import Types, offset, size
from .memory import PAGE, HeapMemory

ROOT_SIGNATURE = 0xFFEEDDCC


_MAX_NODES = 0x1000000


class PageHeapLayout(NamedTuple):
    """Offsets in _DPH_HEAP_ROOT, in _RTL_BALANCED_LINKS, and (`node_`) in _DPH_HEAP_BLOCK."""

    pointer_size: int
    root_size: int
    signature: int
    tree: int
    busy: int
    freed: int
    freed_count: int
    next_heap: int
    normal_heap: int
    creator: int
    parent: int
    left: int
    right: int
    elements: int
    node_links: int
    node_next: int
    node_user: int
    node_size: int
    node_actual: int
    node_trace: int


class Root(NamedTuple):
    """A page heap.

    Attributes:
        address: of its _DPH_HEAP_ROOT
        normal_heap: the NT heap or segment heap behind it, where light blocks go
        creator: address of the database entry of who made it, 0 for none, None when it is not present
        busy, freed: how many nodes it claims to have of either kind, None when that is not present
    """

    address: int
    normal_heap: int
    creator: Optional[int]
    busy: Optional[int]
    freed: Optional[int]

    @property
    def whole(self) -> bool:
        """Whether all of these members are present."""
        return None not in (self.creator, self.busy, self.freed)


class Node(NamedTuple):
    """A block of full page heap.

    Attributes:
        address: of its _DPH_HEAP_BLOCK
        user: address of the caller's bytes
        size: bytes that the caller asked for
        actual: bytes given
        trace: address of a database entry, 0 for none; a freed block's is the one that freed it
        freed: it is on the list of freed blocks
    """

    address: int
    user: int
    size: int
    actual: int
    trace: int
    freed: bool


class Unread(NamedTuple):
    """A node, or the head of them, that is not wholly present: what it leads to may be missing.

    Attributes:
        address: of its _DPH_HEAP_BLOCK, or of the pointer to the first one
    """

    address: int


def page_heap_layout(types: Types, pointer_size: int) -> PageHeapLayout:
    """Builds the layout from a symbol table.

    Raises:
        symboltypes.MissingMemberError: when the table lacks one of the types
    """
    root, node = "_DPH_HEAP_ROOT", "_DPH_HEAP_BLOCK"
    tree = offset(types, root, "BusyNodesTable")
    return PageHeapLayout(
        pointer_size=pointer_size,
        root_size=size(types, root),
        signature=offset(types, root, "Signature"),
        tree=tree + offset(types, "_RTL_AVL_TABLE", "BalancedRoot"),
        busy=offset(types, root, "nBusyAllocations"),
        freed=offset(types, root, "pFreeAllocationListHead"),
        freed_count=offset(types, root, "nFreeAllocations"),
        next_heap=offset(types, root, "NextHeap"),
        normal_heap=offset(types, root, "NormalHeap"),
        creator=offset(types, root, "CreateStackTrace"),
        parent=offset(types, "_RTL_BALANCED_LINKS", "Parent"),
        left=offset(types, "_RTL_BALANCED_LINKS", "LeftChild"),
        right=offset(types, "_RTL_BALANCED_LINKS", "RightChild"),
        elements=tree + offset(types, "_RTL_AVL_TABLE", "NumberGenericTableElements"),
        node_links=offset(types, node, "TableLinks"),
        node_next=offset(types, node, "pNextAlloc"),
        node_user=offset(types, node, "pUserAllocation"),
        node_size=offset(types, node, "nUserRequestedSize"),
        node_actual=offset(types, node, "nVirtualBlockSize"),
        node_trace=offset(types, node, "StackTrace"),
    )


def read_root(memory: HeapMemory, address: int, layout: PageHeapLayout) -> Optional[Root]:
    """Reads the root at an address, or returns None when there is none."""
    if memory.number(address + layout.signature, 4) != ROOT_SIGNATURE:
        return None
    normal_heap = memory.pointer(address + layout.normal_heap)
    if not normal_heap or normal_heap % PAGE or not _proves_itself(memory, address, layout):
        return None
    return Root(
        address,
        normal_heap,
        memory.pointer(address + layout.creator),
        memory.number(address + layout.busy, 4),
        memory.number(address + layout.freed_count, 4),
    )


def other_roots(memory: HeapMemory, root: Root, layout: PageHeapLayout) -> List[int]:
    """Returns what NextHeap leads to: addresses that may be roots, or the list's head."""
    nodes_on_list = walk(root.address + layout.next_heap, memory.links).nodes
    return [node - layout.next_heap for node in nodes_on_list]


def nodes(
    memory: HeapMemory, root: Root, layout: PageHeapLayout, seen: Set[int]
) -> Iterator[Union[Node, Unread]]:
    """Yields a page heap's blocks: the busy ones of its tree, then the freed ones of its list.

    Args:
        memory: the process's
        root: of the page heap
        layout: of its structures
        seen: addresses of nodes that are another page heap's already; those of this one are added

    Yields:
        The nodes, and where some cannot be read.
    """
    yield from _tree(memory, root.address + layout.tree, layout, seen)
    yield from _list(memory, root.address + layout.freed, layout, seen)


def _proves_itself(memory: HeapMemory, address: int, layout: PageHeapLayout) -> bool:
    """Tells whether a root of this bitness is there: its tree's anchor is its own parent, or what follows it
    on the list of page heaps leads back."""
    anchor, link = address + layout.tree, address + layout.next_heap
    following = memory.pointer(link)
    back = memory.links(following) if following else None
    return memory.pointer(anchor + layout.parent) == anchor or (back is not None and back[1] == link)


def _tree(
    memory: HeapMemory, anchor: int, layout: PageHeapLayout, seen: Set[int]
) -> Iterator[Union[Node, Unread]]:
    """Yields the nodes of an _RTL_AVL_TABLE; the tree hangs on its BalancedRoot's right side."""
    seen.add(anchor)
    pending = [memory.pointer(anchor + layout.right)]
    if pending[0] is None:
        yield Unread(anchor + layout.right)
    while pending and len(seen) < _MAX_NODES:
        at = pending.pop()
        if not at or at in seen:
            continue
        seen.add(at)
        node = _node(memory, at - layout.node_links, layout, False)
        children = [memory.pointer(at + layout.right), memory.pointer(at + layout.left)]
        if node is not None:
            yield node
        if node is None or None in children:
            yield Unread(at - layout.node_links)
        pending += children


def _list(
    memory: HeapMemory, head: int, layout: PageHeapLayout, seen: Set[int]
) -> Iterator[Union[Node, Unread]]:
    """Yields the nodes of a list that a pointer leads to, and each node to the next one."""
    place = head
    at = memory.pointer(head)
    while at and at not in seen and len(seen) < _MAX_NODES:
        seen.add(at)
        place = at
        node = _node(memory, at, layout, True)
        if node is None:
            yield Unread(at)
            return
        yield node
        at = memory.pointer(at + layout.node_next)
    if at is None:
        yield Unread(place)


def _node(memory: HeapMemory, address: int, layout: PageHeapLayout, freed: bool) -> Optional[Node]:
    user = memory.pointer(address + layout.node_user)
    requested = memory.pointer(address + layout.node_size)
    actual = memory.pointer(address + layout.node_actual)
    trace = memory.pointer(address + layout.node_trace)
    if user is None or requested is None or actual is None or trace is None:
        return None
    return Node(address, user, requested, actual, trace, freed)
