# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where the members of the NT heap's structures lie. The numbers come from symbol tables, never from here.

Source of the structures' meaning: the public symbols of ntoskrnl and ntdll, XP to 11; what differs between
Windows versions is told by which members a table has.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from ...base.decode.types import Types, offset, size
from .lfh import LfhLayout, lfh_layout


class EntryLayout(NamedTuple):
    """`_HEAP_ENTRY`: the header of a block.

    Attributes:
        unit: size of the header, which sizes are counted in and blocks aligned to
        code: offset of the 8 bytes that hold everything else
        size, previous, flags, tag, segment, unused: offsets within these 8 bytes of Size, PreviousSize,
            Flags, SmallTagIndex, SegmentOffset (5.x: SegmentIndex) and UnusedBytes
    """

    unit: int
    code: int
    size: int
    previous: int
    flags: int
    tag: int
    segment: int
    unused: int


class SegmentLayout(NamedTuple):
    """`_HEAP_SEGMENT`.

    Attributes:
        links: SegmentListEntry; None in 5.x, where the heap has an array of its segments
        ranges: UCRSegmentList, the head of a ring of `_HEAP_UCR_DESCRIPTOR`; in 5.x the pointer
            UnCommittedRanges to the first `_HEAP_UNCOMMMTTED_RANGE`
        range_link: offset of what links a range (SegmentEntry or Next)
        range_address, range_size: Address and Size of a range
    """

    size: int
    links: Optional[int]
    signature: int
    heap: int
    base: int
    pages: int
    first: int
    last: int
    creator: int
    ranges: int
    range_link: int
    range_address: int
    range_size: int


class VirtualLayout(NamedTuple):
    """`_HEAP_VIRTUAL_ALLOC_ENTRY`: a block with a range of pages to itself."""

    links: int
    extra: int
    commit: int
    block: int


class HeapLayout(NamedTuple):
    """`_HEAP` of one Windows generation and bitness.

    Attributes:
        encoding, encode_mask, interceptor: None in 5.x, which has none of them
        segments: SegmentList, the head of a ring; in 5.x the array Segments
        creator: AllocatorBackTraceIndex
        extra_size: size of `_HEAP_ENTRY_EXTRA`
        free_extra_size: size of `_HEAP_FREE_ENTRY_EXTRA`
        free_trace: offset of FreeBackTraceIndex in it
        lfh: of its low-fragmentation heap; None in 5.x
    """

    pointer_size: int
    size: int
    signature: int
    flags: int
    encoding: Optional[int]
    encode_mask: Optional[int]
    interceptor: Optional[int]
    virtual_blocks: int
    segments: int
    creator: int
    entry: EntryLayout
    segment: SegmentLayout
    virtual: VirtualLayout
    extra_size: int
    free_extra_size: int
    free_trace: int
    lfh: Optional[LfhLayout]


def heap_layout(types: Types, pointer_size: int) -> HeapLayout:
    """Builds the layout of the NT heap from a symbol table.

    Raises:
        symboltypes.MissingMemberError: when the table does not have what it takes
    """
    return HeapLayout(
        pointer_size=pointer_size,
        size=size(types, "_HEAP"),
        signature=offset(types, "_HEAP", "Signature"),
        flags=offset(types, "_HEAP", "Flags"),
        encoding=types.offset("_HEAP", "Encoding"),
        encode_mask=types.offset("_HEAP", "EncodeFlagMask"),
        interceptor=types.offset("_HEAP", "Interceptor"),
        virtual_blocks=offset(types, "_HEAP", "VirtualAllocdBlocks"),
        segments=offset(types, "_HEAP", "SegmentList", "Segments"),
        creator=offset(types, "_HEAP", "AllocatorBackTraceIndex"),
        entry=_entry(types),
        segment=_segment(types),
        virtual=VirtualLayout(
            links=offset(types, "_HEAP_VIRTUAL_ALLOC_ENTRY", "Entry"),
            extra=offset(types, "_HEAP_VIRTUAL_ALLOC_ENTRY", "ExtraStuff"),
            commit=offset(types, "_HEAP_VIRTUAL_ALLOC_ENTRY", "CommitSize"),
            block=offset(types, "_HEAP_VIRTUAL_ALLOC_ENTRY", "BusyBlock"),
        ),
        extra_size=size(types, "_HEAP_ENTRY_EXTRA"),
        free_extra_size=types.size("_HEAP_FREE_ENTRY_EXTRA") or 4,
        free_trace=types.offset("_HEAP_FREE_ENTRY_EXTRA", "FreeBackTraceIndex") or 2,
        lfh=None if types.offset("_HEAP", "Interceptor") is None else lfh_layout(types, pointer_size),
    )


def _entry(types: Types) -> EntryLayout:
    unit = size(types, "_HEAP_ENTRY")
    code = unit - 8
    return EntryLayout(
        unit=unit,
        code=code,
        size=offset(types, "_HEAP_ENTRY", "Size") - code,
        previous=offset(types, "_HEAP_ENTRY", "PreviousSize") - code,
        flags=offset(types, "_HEAP_ENTRY", "Flags") - code,
        tag=offset(types, "_HEAP_ENTRY", "SmallTagIndex") - code,
        segment=offset(types, "_HEAP_ENTRY", "SegmentOffset", "SegmentIndex") - code,
        unused=offset(types, "_HEAP_ENTRY", "UnusedBytes") - code,
    )


def _segment(types: Types) -> SegmentLayout:
    ranges = "_HEAP_UCR_DESCRIPTOR"
    if types.size(ranges) is None:
        ranges = "_HEAP_UNCOMMMTTED_RANGE"
    segment = "_HEAP_SEGMENT"
    return SegmentLayout(
        size=size(types, segment),
        links=types.offset(segment, "SegmentListEntry"),
        signature=offset(types, segment, "SegmentSignature", "Signature"),
        heap=offset(types, segment, "Heap"),
        base=offset(types, segment, "BaseAddress"),
        pages=offset(types, segment, "NumberOfPages"),
        first=offset(types, segment, "FirstEntry"),
        last=offset(types, segment, "LastValidEntry"),
        creator=offset(types, segment, "SegmentAllocatorBackTraceIndex", "AllocatorBackTraceIndex"),
        ranges=offset(types, segment, "UCRSegmentList", "UnCommittedRanges"),
        range_link=offset(types, ranges, "SegmentEntry", "Next"),
        range_address=offset(types, ranges, "Address"),
        range_size=offset(types, ranges, "Size"),
    )
