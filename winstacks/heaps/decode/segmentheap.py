# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The segment heap (Windows 10 and later), as far as its structures are known.

What follows a block's bytes when the heap has an interceptor is known: a `_SEGMENT_HEAP_EXTRA` and then the
pointer to a record of the heap's log. Where a block begins, how long it is and whether it is still allocated
is known for large blocks only. The traces of the others are found by these pointers alone: each is proved by
the record that it leads to.

Source: public symbols of ntoskrnl 10.0.17763 to 22000 and wntdll 10.0.17763; where the extra lies (x64) and
where the pointer is (x64) from disassembly of ntdll 10.0.17763.475, their x86 forms inferred. Where
the caller's bytes begin in a large block was measured on 17763 (x64).
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Set, Tuple

from ...memory.decode.links import walk
from ...memory.decode.memory import Memory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.status import NOTHING, Word, status
from ...memory.decode.structure import Structures
from .block import LARGE, UNKNOWN_SIZE, Block, sized
from .trace import UNREADABLE, BlockTrace, Traces

SIGNATURE = 0xDDEEDDEE
TAIL_CHECKED = 0x10000000  # in GlobalFlags: a pattern precedes the extra

NOT_READ = status(Word.NOT_READ_YET)

_MAX_NODES = 0x100000
_ALIGNMENT = 16
_TAIL = 16


class SegmentHeapTypes:
    """The structures of segment heaps of a bitness, with what is read of them often.

    Attributes:
        minimum: Min of the tree of large blocks, whose lowest bit says that its links are encoded
        context_count, context_size: of the array SegContexts
        extra_units: offset of ExtraSizeInUnits in `_SEGMENT_HEAP_EXTRA`
        extra_size: size of that structure, behind which the record's pointer lies

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


class SegmentHeap(NamedTuple):
    """A segment heap.

    Attributes:
        address: of its _SEGMENT_HEAP, which is the heap's handle
        flags: GlobalFlags
        interceptor: index of the routine that extends each block, 0 for none
        segments: (start, end) of its segments
        damaged: its lists cannot be followed, or are kept in a way that is not known
    """

    address: int
    flags: int
    interceptor: int
    segments: Tuple[Tuple[int, int], ...]
    damaged: bool


def read_segment_heap(memory: Memory, address: int, types: SegmentHeapTypes) -> Optional[SegmentHeap]:
    """Reads the segment heap at an address, or returns None when there is none."""
    if memory.member(address, types.signature) != SIGNATURE:
        return None
    segments: List[Tuple[int, int]] = []
    whole = True
    for number in range(types.context_count):
        context = address + types.contexts + number * types.context_size
        found, closed = _segments(memory, context, types)
        segments += found
        whole = whole and closed
    encoded = memory.number(address + types.minimum, 1)
    return SegmentHeap(
        address,
        memory.member(address, types.flags) or 0,
        memory.member(address, types.interceptor) or 0,
        tuple(sorted(segments)),
        not whole or encoded is None or bool(encoded & 1),
    )


def large_blocks(
    memory: Memory, heap: SegmentHeap, types: SegmentHeapTypes, traces: Traces
) -> Iterator[Block]:
    """Yields the blocks that have a range of pages to themselves."""
    encoded = memory.number(heap.address + types.minimum, 1)
    if encoded is None or encoded & 1:
        return
    pending = [memory.pointer(heap.address + types.large_root)]
    seen: Set[int] = set()
    while pending and len(seen) < _MAX_NODES:
        node = pending.pop()
        if not node or node in seen:
            continue
        seen.add(node)
        yield _large(memory, heap, node - types.large_node, types, traces)
        pending.append(memory.member(node, types.right))
        pending.append(memory.member(node, types.left))


def named_records(
    memory: Memory, heap: SegmentHeap, types: SegmentHeapTypes, traces: Traces
) -> Iterator[BlockTrace]:
    """Yields the record that each extra in the heap's segments names; a freed block may keep its extra."""
    step = 2 * types.pointer_size
    for start, end in heap.segments if heap.interceptor else ():
        for low, data in memory.pages(start, end):
            for number, index in enumerate(data[types.extra_units - 1 :: step]):
                if index & 0xF == heap.interceptor:
                    trace = _named(memory, low + number * step, types, traces)
                    if trace is not None:
                        yield trace


def _segments(memory: Memory, context: int, types: SegmentHeapTypes) -> Tuple[List[Tuple[int, int]], bool]:
    mask = memory.member(context, types.segment_mask)
    top = 1 << 8 * types.pointer_size
    length = 0 if mask is None else top - mask
    if mask is None or length & (length - 1) or not 0x10000 <= length <= 0x40000000:
        return [], False
    listed = walk(context + types.segment_list, memory.links)
    starts = [node - types.segment_links for node in listed.nodes]
    aligned = [start for start in starts if not start % length]
    whole = listed.gap is None and len(aligned) == len(starts)
    return [(start, start + length) for start in aligned], whole


def _large(memory: Memory, heap: SegmentHeap, data: int, types: SegmentHeapTypes, traces: Traces) -> Block:
    """Returns a large block: the low bits of its address are the bytes that it wastes."""
    address = memory.member(data, types.large_address)
    pages = memory.member(data, types.large_pages)
    if address is None or pages is None:
        return Block(heap.address, 0, UNKNOWN_SIZE, 0, LARGE, False, None, 0, UNREADABLE)
    unused = memory.member(data, types.large_unused) or 0
    start, whole = address - unused, pages * PAGE_SIZE
    before = _before(memory, start, whole - unused, types)
    trace = None
    if memory.member(data, types.large_extra) and unused < whole:
        end = start + whole - unused + (_TAIL if heap.flags & TAIL_CHECKED else 0)
        trace = _named(memory, end + -end % _ALIGNMENT, types, traces)
    size, overhead, said = sized(whole, unused + before, NOTHING)
    return Block(heap.address, start + before, size, overhead, LARGE, False, trace, 0, said)


def _before(memory: Memory, start: int, room: int, types: SegmentHeapTypes) -> int:
    """Returns how many bytes lie before the caller's in a large block: it begins with their number, which is
    repeated right before the caller's bytes; 0 where that is not so."""
    before = memory.pointer(start) or 0
    again = start + before - 2 * types.pointer_size
    if before % (2 * types.pointer_size) or not 0 < before <= room or memory.pointer(again) != before:
        return 0
    return before


def _named(memory: Memory, extra: int, types: SegmentHeapTypes, traces: Traces) -> Optional[BlockTrace]:
    record = memory.pointer(extra + types.extra_size)
    trace = traces.record(record) if record else None
    return None if trace is None or trace.status else trace
