# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Offsets of the members of heap structures: NT heaps, page heap and segment heaps.

Each member is looked up in the symbol tables once, here. Its meaning is explained in `ntheap` (heaps and
segments), `ntblocks` (blocks), `blockstack` (stacks of blocks), `lfh`, `pageheap` and `segmentheap`.

Source: the public symbols of ntoskrnl and ntdll, XP to 11. Differences between Windows versions are decided
by the members that a structure has, never by a version number. A new build is a new table.
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, Optional, Sequence, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, Field, MissingMemberError, Structure, Structures

_TELLING = ("Encoding", "PointerKey")
"""Members that separate the generations: Vista added both to `_HEAP`, Windows 8 removed PointerKey."""


class ExtendedHeader(NamedTuple):
    """The second header of an extended block: a plain `_HEAP_ENTRY` with other members.

    Attributes:
        members: reads FunctionIndex, ContextValue, UnusedBytesLength, EntryOffset, ExtendedBlockSignature
        start: offset of the first of these members
        back: EntryOffset
        signature: offset of the byte ExtendedBlockSignature
    """

    members: Callable[[Buffer, int], Tuple[int, ...]]
    start: int
    back: Field
    signature: int


class FrontEnd(NamedTuple):
    """`_HEAP_USERDATA_HEADER` and `_HEAP_SUBSEGMENT` of the low-fragmentation heap, a heap's front end.

    Attributes:
        header: the lowest offset at which a block may begin: after the header, or after its BitmapData
        bitmap: whether the header ends in a bitmap of busy blocks (8 and later): the first block then lies at
            an unknown distance behind the header
    """

    signature: int
    subsegment: Field
    header: int
    bitmap: bool
    user_blocks: Field
    block_size: Field
    block_count: Field


class HeapLayout:
    """The structures of one generation of NT heaps: heap, segment, block, second header, front end. `types`
    is a table, or the kernel's symbols with the table that complements them.

    Attributes:
        encoding, encode_mask, interceptor: None in 5.x, which lacks them
        force_flags: ForceFlags, None except in 5.x, where it decides whether blocks are traced
        header_limit: the most bytes before FirstEntry of a segment: the `_HEAP`, and at most 129 pseudo-tags
            behind it, which take less than a page
        segments: SegmentList, the head of a ring; in 5.x the array Segments
        segment_links: SegmentListEntry; None in 5.x
        ranges: UCRSegmentList, the head of a ring of `_HEAP_UCR_DESCRIPTOR`; in 5.x the pointer
            UnCommittedRanges to the first `_HEAP_UNCOMMMTTED_RANGE`
        range_link: offset of the member that links a range (SegmentEntry or Next)
        unit: size of a block's header in bytes: the unit of sizes and the alignment of blocks
        code: offset of Size: the part of a header that is read begins there
        previous, block_flags, tag, segment_offset, unused: offsets, counted from Size, of PreviousSize,
            Flags, SmallTagIndex, SegmentOffset (5.x: SegmentIndex) and UnusedBytes
        unused_bytes: UnusedBytes, counted from the start of the header
        index: AllocatorBackTraceIndex of `_HEAP_ENTRY_EXTRA`, the end of a block
        freed_index: FreeBackTraceIndex of `_HEAP_FREE_ENTRY_EXTRA`, the end of a free block; None except in
            5.x
        extended: the second header that an interceptor makes; None in 5.x
        front: structures of the low-fragmentation heap; None in 5.x

    Raises:
        MissingMemberError: when the tables lack one of the members
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        self.types = types
        self.pointer_size = pointer_size
        heap = types["_HEAP"]
        self.header_limit = heap.size + PAGE_SIZE
        self.signature = heap.field("Signature")
        self.flags = heap.field("Flags")
        self.encoding = heap.first_member("Encoding")
        self.encode_mask = heap.first_member("EncodeFlagMask")
        self.interceptor = heap.first_member("Interceptor")
        self.virtual_blocks = heap.field("VirtualAllocdBlocks")
        self.segments = heap.field("SegmentList", "Segments")
        self.creator = heap.field("AllocatorBackTraceIndex")
        self._segment(types)
        self._block(types)
        modern = self.interceptor is not None
        self.extended = _extended_header(types["_HEAP_ENTRY"]) if modern else None
        self.front = _front_end(types) if modern else None
        self.force_flags = None if modern else heap.first_member("ForceFlags")

    def _segment(self, types: Structures) -> None:
        segment = types["_HEAP_SEGMENT"]
        self.segment_size = segment.size
        self.segment_links = segment.first_member("SegmentListEntry")
        self.segment_signature = segment.field("SegmentSignature", "Signature")
        self.segment_heap = segment.field("Heap")
        self.segment_base = segment.field("BaseAddress")
        self.segment_pages = segment.field("NumberOfPages")
        self.segment_first = segment.field("FirstEntry")
        self.segment_last = segment.field("LastValidEntry")
        self.segment_creator = segment.field("SegmentAllocatorBackTraceIndex", "AllocatorBackTraceIndex")
        self.ranges = segment.field("UCRSegmentList", "UnCommittedRanges")
        uncommitted = types.need("_HEAP_UCR_DESCRIPTOR", "_HEAP_UNCOMMMTTED_RANGE")
        self.range_link = uncommitted.offset("SegmentEntry", "Next")
        self.range_address = uncommitted.field("Address")
        self.range_size = uncommitted.field("Size")

    def _block(self, types: Structures) -> None:
        entry = types["_HEAP_ENTRY"]
        self.unit = entry.size
        self.code = entry.offset("Size")
        self.previous = entry.offset("PreviousSize") - self.code
        self.block_flags = entry.offset("Flags") - self.code
        self.tag = entry.offset("SmallTagIndex") - self.code
        self.segment_offset = entry.offset("SegmentOffset", "SegmentIndex") - self.code
        self.unused_bytes = entry.field("UnusedBytes")
        self.unused = self.unused_bytes.offset - self.code
        extra = types["_HEAP_ENTRY_EXTRA"]
        self.index = _from_end(extra.field("AllocatorBackTraceIndex"), extra.size)
        freed = types.first_structure("_HEAP_FREE_ENTRY_EXTRA") if self.interceptor is None else None
        self.freed_index = _from_end(freed.field("FreeBackTraceIndex"), freed.size) if freed else None
        virtual = types["_HEAP_VIRTUAL_ALLOC_ENTRY"]
        self.virtual_links = virtual.offset("Entry")
        self.virtual_index = virtual.field("ExtraStuff.AllocatorBackTraceIndex")
        self.virtual_commit = virtual.field("CommitSize")
        self.virtual_block = virtual.offset("BusyBlock")


def _extended_header(entry: Structure) -> ExtendedHeader:
    members = ("FunctionIndex", "ContextValue", "UnusedBytesLength", "EntryOffset", "ExtendedBlockSignature")
    return ExtendedHeader(
        entry.reader(*members),
        entry.offset("FunctionIndex"),
        entry.field("EntryOffset"),
        entry.offset("ExtendedBlockSignature"),
    )


def _front_end(types: Structures) -> FrontEnd:
    user_data, subsegment = types["_HEAP_USERDATA_HEADER"], types["_HEAP_SUBSEGMENT"]
    bitmap = user_data.first_member("BitmapData")
    return FrontEnd(
        user_data.offset("Signature"),
        user_data.field("SubSegment"),
        user_data.size if bitmap is None else bitmap.offset,
        bitmap is not None,
        subsegment.field("UserBlocks"),
        subsegment.field("BlockSize"),
        subsegment.field("BlockCount"),
    )


class PageHeapLayout:
    """The structures of page heap for a bitness, with the members that are read often. Raises
    MissingMemberError when the table lacks one of them."""

    def __init__(self, types: Structures) -> None:
        root, links = types["_DPH_HEAP_ROOT"], types["_RTL_BALANCED_LINKS"]
        self.signature = root.field("Signature")
        self.tree = root.offset("BusyNodesTable") + types["_RTL_AVL_TABLE"].offset("BalancedRoot")
        self.busy = root.field("nBusyAllocations")
        self.freed = root.offset("pFreeAllocationListHead")
        self.freed_count = root.field("nFreeAllocations")
        self.next_heap = root.offset("NextHeap")
        self.normal_heap = root.field("NormalHeap")
        self.creator = root.field("CreateStackTrace")
        self.parent, self.left = links.field("Parent"), links.field("LeftChild")
        self.right = links.field("RightChild")
        node = types["_DPH_HEAP_BLOCK"]
        self.node_links = node.offset("TableLinks")
        self.node_next = node.field("pNextAlloc")
        self.node_user = node.field("pUserAllocation")
        self.node_size = node.field("nUserRequestedSize")
        self.node_actual = node.field("nVirtualBlockSize")
        self.node_trace = node.field("StackTrace")
        information = types["_DPH_BLOCK_INFORMATION"]
        self.information_size = information.size
        self.start_stamp = information.field("StartStamp")
        self.information = information.reader("Heap", "RequestedSize", "ActualSize", "StackTrace", "EndStamp")


class SegmentHeapLayout:
    """The structures of segment heaps for a bitness, with the members that are read often.

    Attributes:
        minimum: Min of the tree of large blocks; its lowest bit is set if the tree's links are encoded
        extra_units: offset of ExtraSizeInUnits in `_SEGMENT_HEAP_EXTRA`
        extra_size: size of that structure; the record's pointer lies behind it

    Raises:
        MissingMemberError: when the tables lack one of them
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        heap, context = types["_SEGMENT_HEAP"], types["_HEAP_SEG_CONTEXT"]
        large, extra = types["_HEAP_LARGE_ALLOC_DATA"], types["_SEGMENT_HEAP_EXTRA"]
        tree, node = types["_RTL_RB_TREE"], types["_RTL_BALANCED_NODE"]
        self.pointer_size = pointer_size
        self.signature = heap.field("Signature")
        self.flags = heap.field("GlobalFlags")
        self.interceptor = heap.field("Interceptor")
        self.large_root = heap.offset("LargeAllocMetadata") + tree.offset("Root")
        self.minimum = heap.offset("LargeAllocMetadata") + tree.offset("Min")
        contexts = heap.field("SegContexts")
        self.contexts = contexts.offset
        self.context_size = context.size
        self.context_count = contexts.size // context.size
        self.segment_mask = context.field("SegmentMask")
        self.segment_list = context.offset("SegmentListHead")
        self.segment_links = types["_HEAP_PAGE_SEGMENT"].offset("ListEntry")
        self.left, self.right = node.field("Left"), node.field("Right")
        self.large_node = large.offset("TreeNode")
        self.large_address = large.field("VirtualAddress")
        self.large_unused = large.field("UnusedBytes")
        self.large_pages = large.field("AllocatedPages")
        self.large_extra = large.field("ExtraPresent")
        self.extra_units = extra.offset("ExtraSizeInUnits")
        self.extra_size = extra.size


class HeapLayouts(NamedTuple):
    """The structures of all kinds of heaps for a bitness.

    Attributes:
        nt: NT heaps, one layout for each generation; a heap's signatures confirm the one that applies
        page: page heap, in the same way
        segment: segment heaps, in the same way; empty if the kernel's symbols describe them differently
    """

    nt: Tuple[HeapLayout, ...]
    page: Sequence[PageHeapLayout]
    segment: Sequence[SegmentHeapLayout]


def _from_end(field: Field, size: int) -> Field:
    """Returns a member whose offset counts from the end of its structure."""
    return field._replace(offset=field.offset - size)


def nt_layouts(
    kernel: Optional[Structures], ours: Sequence[Structures], pointer_size: int
) -> Tuple[HeapLayout, ...]:
    """Returns the layouts that are tried on NT heaps: the kernel's own first, then all of ours.

    Args:
        kernel: the kernel's symbols, None if the heaps have another bitness
        ours: our tables for the bitness, the newest first

    Raises:
        MissingMemberError: one of our tables lacks a member
    """
    layouts: List[HeapLayout] = []
    if kernel is not None and kernel.has("_HEAP"):
        with contextlib.suppress(MissingMemberError):
            layouts.append(HeapLayout(Structures.chain([kernel, generation(kernel, ours)]), pointer_size))
    return (*layouts, *(HeapLayout(types, pointer_size) for types in ours))


def segment_heap_layouts(
    kernel: Optional[Structures], ours: Sequence[Structures], pointer_size: int
) -> Tuple[SegmentHeapLayout, ...]:
    """Returns the structures of segment heaps; none if the kernel's symbols lack a member that is read.

    Args:
        kernel: the kernel's symbols, None if their bitness differs
        ours: our tables for the bitness, with the structures that the kernel's symbols lack
    """
    layouts: List[SegmentHeapLayout] = []
    for our_types in ours:
        with contextlib.suppress(MissingMemberError):
            types = Structures.chain([kernel, our_types]) if kernel else our_types
            layouts.append(SegmentHeapLayout(types, pointer_size))
    return tuple(layouts)


def generation(kernel: Structures, ours: Sequence[Structures]) -> Structures:
    """Returns the table that complements a kernel's symbols: it has the structures that they lack.

    The first choice is the newest table whose `_HEAP` has all members at the kernel's offsets; the second,
    the newest table with the members that separate the generations at these offsets; the last, the oldest
    table.

    Args:
        kernel: the kernel's symbols, with a `_HEAP`
        ours: our tables for its bitness, the newest first
    """
    heap = kernel["_HEAP"]
    alike = [types for types in ours if all(types["_HEAP"].has(name) == heap.has(name) for name in _TELLING)]
    same = [
        types for types in alike if _places(types["_HEAP"], types["_HEAP"]) == _places(types["_HEAP"], heap)
    ]
    return (same or alike or list(ours[-1:]))[0]


def _places(names: Structure, structure: Structure) -> List[Optional[int]]:
    """Returns the offset in `structure` of each member of `names`, None for a missing one."""
    fields = (structure.first_member(name) for name in names.names)
    return [None if field is None else field.offset for field in fields]
