# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The segment heap (Windows 10 and later), as far as its structures are known.

What follows a block's bytes when the heap has an interceptor is known: a `_SEGMENT_HEAP_EXTRA` and then the
pointer to a record of the heap's log. Where a block begins, how long it is and whether it is still allocated
is known for large blocks only. The traces of the others are found by these pointers alone: each is proved by
the record that it leads to.

Source: public symbols of ntoskrnl 10.0.17763 to 22000 and wntdll 10.0.17763; where the extra lies (x64) and
where the pointer is (x64) from disassembly of ntdll 10.0.17763.475, their x86 forms inferred. Not measured.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Set, Tuple

from ...base.decode.links import walk
from ...base.decode.types import Types, offset, size
from .block import UNKNOWN_SIZE, Block, sized
from .memory import HeapMemory
from .trace import UNREADABLE, Trace, Traces

SIGNATURE = 0xDDEEDDEE
TAIL_CHECKED = 0x10000000  # in GlobalFlags: a pattern precedes the extra

LARGE = "large"
SEGMENT = "segment"
NOT_READ = "not-read"

_CONTEXTS = 2
_MAX_NODES = 0x100000
_ALIGNMENT = 16
_TAIL = 16
_PAGE = 0x1000


class SegmentHeapLayout(NamedTuple):
    """Offsets in `_SEGMENT_HEAP` and what it holds; `extra_size` is where the record's pointer lies."""

    pointer_size: int
    signature: int
    flags: int
    interceptor: int
    large_root: int
    large_encoded: int
    contexts: int
    context_size: int
    segment_mask: int
    segment_list: int
    segment_links: int
    left: int
    right: int
    large_node: int
    large_address: int
    large_pages: int
    extra_units: int
    extra_size: int


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


def segment_heap_layout(types: Types, pointer_size: int) -> SegmentHeapLayout:
    """Builds the layout from a symbol table.

    Raises:
        symboltypes.MissingMemberError: when the table lacks one of the types
    """
    heap, context, large = "_SEGMENT_HEAP", "_HEAP_SEG_CONTEXT", "_HEAP_LARGE_ALLOC_DATA"
    tree = offset(types, heap, "LargeAllocMetadata")
    return SegmentHeapLayout(
        pointer_size=pointer_size,
        signature=offset(types, heap, "Signature"),
        flags=offset(types, heap, "GlobalFlags"),
        interceptor=offset(types, heap, "Interceptor"),
        large_root=tree + offset(types, "_RTL_RB_TREE", "Root"),
        large_encoded=tree + offset(types, "_RTL_RB_TREE", "Min"),
        contexts=offset(types, heap, "SegContexts"),
        context_size=size(types, context),
        segment_mask=offset(types, context, "SegmentMask"),
        segment_list=offset(types, context, "SegmentListHead"),
        segment_links=offset(types, "_HEAP_PAGE_SEGMENT", "ListEntry"),
        left=offset(types, "_RTL_BALANCED_NODE", "Left"),
        right=offset(types, "_RTL_BALANCED_NODE", "Right"),
        large_node=offset(types, large, "TreeNode"),
        large_address=offset(types, large, "VirtualAddress"),
        large_pages=offset(types, large, "AllocatedPages"),
        extra_units=offset(types, "_SEGMENT_HEAP_EXTRA", "ExtraSizeInUnits"),
        extra_size=size(types, "_SEGMENT_HEAP_EXTRA"),
    )


def read_segment_heap(memory: HeapMemory, address: int, layout: SegmentHeapLayout) -> Optional[SegmentHeap]:
    """Reads the segment heap at an address, or returns None when there is none."""
    if memory.number(address + layout.signature, 4) != SIGNATURE:
        return None
    segments: List[Tuple[int, int]] = []
    whole = True
    for number in range(_CONTEXTS):
        context = address + layout.contexts + number * layout.context_size
        found, closed = _segments(memory, context, layout)
        segments += found
        whole = whole and closed
    encoded = memory.number(address + layout.large_encoded, 1)
    return SegmentHeap(
        address,
        memory.number(address + layout.flags, 4) or 0,
        memory.number(address + layout.interceptor, 4) or 0,
        tuple(sorted(segments)),
        not whole or encoded is None or bool(encoded & 1),
    )


def large_blocks(
    memory: HeapMemory, heap: SegmentHeap, layout: SegmentHeapLayout, traces: Traces
) -> Iterator[Block]:
    """Yields the blocks that have a range of pages to themselves."""
    encoded = memory.number(heap.address + layout.large_encoded, 1)
    if encoded is None or encoded & 1:
        return
    pending = [memory.pointer(heap.address + layout.large_root)]
    seen: Set[int] = set()
    while pending and len(seen) < _MAX_NODES:
        node = pending.pop()
        if not node or node in seen:
            continue
        seen.add(node)
        yield _large(memory, heap, node - layout.large_node, layout, traces)
        pending.append(memory.pointer(node + layout.right))
        pending.append(memory.pointer(node + layout.left))


def named_records(
    memory: HeapMemory, heap: SegmentHeap, layout: SegmentHeapLayout, traces: Traces
) -> Iterator[Trace]:
    """Yields the record that each extra in the heap's segments names; a freed block may keep its extra."""
    step = 2 * layout.pointer_size
    for start, end in heap.segments if heap.interceptor else ():
        for low, data in memory.pages(start, end):
            for number, index in enumerate(data[layout.extra_units - 1 :: step]):
                if index & 0xF == heap.interceptor:
                    trace = _named(memory, low + number * step, layout, traces)
                    if trace is not None:
                        yield trace


def _segments(
    memory: HeapMemory, context: int, layout: SegmentHeapLayout
) -> Tuple[List[Tuple[int, int]], bool]:
    mask = memory.pointer(context + layout.segment_mask)
    top = 1 << 8 * layout.pointer_size
    length = 0 if mask is None else top - mask
    if mask is None or length & (length - 1) or not 0x10000 <= length <= 0x40000000:
        return [], False
    listed = walk(context + layout.segment_list, memory.links)
    starts = [node - layout.segment_links for node in listed.nodes]
    aligned = [start for start in starts if not start % length]
    whole = listed.gap is None and len(aligned) == len(starts)
    return [(start, start + length) for start in aligned], whole


def _large(
    memory: HeapMemory, heap: SegmentHeap, data: int, layout: SegmentHeapLayout, traces: Traces
) -> Block:
    """Returns a large block; the low bits of its address hold the bytes that it wastes, those of its page
    count flags, the first of which says that there is an extra."""
    address = memory.pointer(data + layout.large_address)
    pages = memory.pointer(data + layout.large_pages)
    if address is None or pages is None:
        return Block(heap.address, 0, UNKNOWN_SIZE, 0, LARGE, False, None, 0, UNREADABLE)
    user, unused = address & ~0xFFFF, address & 0xFFFF
    whole = pages & -_PAGE
    trace = None
    if pages & 1 and unused < whole:
        end = user + whole - unused + (_TAIL if heap.flags & TAIL_CHECKED else 0)
        trace = _named(memory, end + -end % _ALIGNMENT, layout, traces)
    size, overhead, status = sized(whole, unused, "")
    return Block(heap.address, user, size, overhead, LARGE, False, trace, 0, status)


def _named(memory: HeapMemory, extra: int, layout: SegmentHeapLayout, traces: Traces) -> Optional[Trace]:
    record = memory.pointer(extra + layout.extra_size)
    trace = traces.record(record) if record else None
    return None if trace is None or trace.status else trace
