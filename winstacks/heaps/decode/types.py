# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The structures of heaps, and which of our tables a process's heaps are read with.

Source of the structures' meaning: the public symbols of ntoskrnl and ntdll, XP to 11. What differs between
Windows versions is told by which members a structure has, never by a version. A new build is a new table.
"""

from __future__ import annotations

import contextlib
from typing import List, Optional, Sequence, Tuple

from ...memory.decode.structure import Field, MissingMemberError, Structure, Structures
from .extended import ExtendedTypes
from .lfh import LfhTypes

_TELLING = ("Encoding", "PointerKey")
"""Vista brought both members of `_HEAP`, Windows 8 did away with PointerKey."""


class NtTypes:
    """The structures of one generation of NT heaps, with what is read of them often.

    Args:
        types: a table, or the kernel's symbols with the table that goes with them
        pointer_size: of the processes whose heaps these are: 4 or 8

    Attributes:
        encoding, encode_mask, interceptor: None in 5.x, which has none of them
        force_flags: ForceFlags, None but in 5.x, where it decides whether blocks are traced
        segments: SegmentList, the head of a ring; in 5.x the array Segments
        segment_links: SegmentListEntry; None in 5.x
        ranges: UCRSegmentList, the head of a ring of `_HEAP_UCR_DESCRIPTOR`; in 5.x the pointer
            UnCommittedRanges to the first `_HEAP_UNCOMMMTTED_RANGE`
        range_link: what links a range (SegmentEntry or Next)
        unit: size of a block's header, which sizes are counted in and blocks aligned to
        code: offset of Size, with which the part of a header begins that holds everything
        previous, block_flags, tag, segment_offset, unused: offsets from there of PreviousSize, Flags,
            SmallTagIndex, SegmentOffset (5.x: SegmentIndex) and UnusedBytes
        index: AllocatorBackTraceIndex of `_HEAP_ENTRY_EXTRA`, the end of a block
        freed_index: FreeBackTraceIndex of `_HEAP_FREE_ENTRY_EXTRA`, the end of a free block; None but in 5.x
        extended: the structures of the second header that an interceptor makes; None in 5.x
        lfh: the structures of the low-fragmentation heap; None in 5.x

    Raises:
        MissingMemberError: when the tables lack what it takes
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        self.types = types
        self.pointer_size = pointer_size
        heap = types["_HEAP"]
        self.signature = heap.field("Signature")
        self.flags = heap.field("Flags")
        self.encoding = heap.find("Encoding")
        self.encode_mask = heap.find("EncodeFlagMask")
        self.interceptor = heap.find("Interceptor")
        self.virtual_blocks = heap.field("VirtualAllocdBlocks")
        self.segments = heap.field("SegmentList", "Segments")
        self.creator = heap.field("AllocatorBackTraceIndex")
        self._segment(types)
        self._block(types)
        modern = self.interceptor is not None
        self.extended = ExtendedTypes(types) if modern else None
        self.lfh = LfhTypes(types, pointer_size) if modern else None
        self.force_flags = None if modern else heap.find("ForceFlags")

    def _segment(self, types: Structures) -> None:
        segment = types["_HEAP_SEGMENT"]
        self.segment_size = segment.size
        self.segment_links = segment.find("SegmentListEntry")
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
        self.unused = entry.offset("UnusedBytes") - self.code
        extra = types["_HEAP_ENTRY_EXTRA"]
        self.index = from_end(extra.field("AllocatorBackTraceIndex"), extra.size)
        freed = types.find("_HEAP_FREE_ENTRY_EXTRA") if self.interceptor is None else None
        self.freed_index = from_end(freed.field("FreeBackTraceIndex"), freed.size) if freed else None
        virtual = types["_HEAP_VIRTUAL_ALLOC_ENTRY"]
        self.virtual_links = virtual.offset("Entry")
        self.virtual_index = virtual.field("ExtraStuff.AllocatorBackTraceIndex")
        self.virtual_commit = virtual.field("CommitSize")
        self.virtual_block = virtual.offset("BusyBlock")


def from_end(field: Field, size: int) -> Field:
    """Returns a member of a structure with its offset from the structure's end."""
    return field._replace(offset=field.offset - size)


def nt_types(
    kernel: Optional[Structures], ours: Sequence[Structures], pointer_size: int
) -> Tuple[NtTypes, ...]:
    """Returns the structures that NT heaps are tried with: the kernel's own first, then all of ours.

    Args:
        kernel: the kernel's symbols, None where they have not the bitness of the heaps
        ours: our tables of the bitness, the newest first
        pointer_size: of the bitness

    Raises:
        MissingMemberError: when one of our tables lacks what it takes
    """
    found: List[NtTypes] = []
    if kernel is not None and kernel.has("_HEAP"):
        with contextlib.suppress(MissingMemberError):
            found.append(NtTypes(Structures.chain([kernel, generation(kernel, ours)]), pointer_size))
    return (*found, *(NtTypes(each, pointer_size) for each in ours))


def generation(kernel: Structures, ours: Sequence[Structures]) -> Structures:
    """Returns the table that goes with a kernel's symbols, for the structures that these lack.

    It is the newest one whose `_HEAP` lies as the kernel's does; else the newest one that has the members by
    which the generations differ where the kernel has them; else the oldest.

    Args:
        kernel: the kernel's symbols, with a `_HEAP`
        ours: our tables of its bitness, the newest first
    """
    heap = kernel["_HEAP"]
    alike = [each for each in ours if all(each["_HEAP"].has(name) == heap.has(name) for name in _TELLING)]
    same = [each for each in alike if _places(each["_HEAP"], each["_HEAP"]) == _places(each["_HEAP"], heap)]
    return (same or alike or list(ours[-1:]))[0]


def _places(names: Structure, structure: Structure) -> List[Optional[int]]:
    """Returns where a structure has the members that are named as another one's, None for those it lacks."""
    found = (structure.find(name) for name in names.names)
    return [None if field is None else field.offset for field in found]
