# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The segment heap (Windows 10 and later), as far as its structures are known.

If the heap has an interceptor, a `_SEGMENT_HEAP_EXTRA` follows a block's bytes, and then the pointer to a
record of the heap's log. Start, length and state (busy or freed) are known for large blocks only. The traces
of the other blocks are found by these pointers alone: the record behind a pointer proves it.

Source: public symbols of ntoskrnl 10.0.17763 to 22000 and wntdll 10.0.17763; the places of the extra and of
the pointer (x64) from disassembly of ntdll 10.0.17763.475, their x86 forms inferred. The start of the
caller's bytes in a large block was measured on 17763 (x64).
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Set, Tuple

from ...columns.words import LARGE
from ...memory.decode.links import walk
from ...memory.decode.memory import Memory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, status
from ...memory.decode.statuscodes import StatusCode
from ...tracedb.decode.recorded import RecordedStack
from .block import UNKNOWN_SIZE, UNREADABLE, Block, sized
from .blockstack import Traces
from .layout import SegmentHeapLayout

SIGNATURE = 0xDDEEDDEE
TAIL_CHECKED = 0x10000000  # in GlobalFlags: a pattern precedes the extra

NOT_READ = status(StatusCode.NOT_READ_YET)

_MAX_NODES = 0x100000
_UNIT = 16
"""Alignment of the extra of a large block, and length of the pattern before it, in bytes (x64: listing)."""


class SegmentHeap(NamedTuple):
    """A segment heap.

    Attributes:
        address: address of the _SEGMENT_HEAP, which is the heap's handle
        damaged: whether its lists of segments cannot be followed, or the links of its tree of large blocks
            are encoded or unreadable
    """

    address: int
    flags: int
    interceptor: int
    segments: Tuple[Tuple[int, int], ...]
    damaged: bool
    layout: SegmentHeapLayout


def read_segment_heap(memory: Memory, address: int, layout: SegmentHeapLayout) -> Optional[SegmentHeap]:
    """Reads the segment heap at an address; None if there is none."""
    if memory.member(address, layout.signature) != SIGNATURE:
        return None
    segments: List[Tuple[int, int]] = []
    complete = True
    for number in range(layout.context_count):
        context = address + layout.contexts + number * layout.context_size
        ranges, closed = _segments(memory, context, layout)
        segments += ranges
        complete = complete and closed
    encoded = memory.number(address + layout.minimum, 1)
    return SegmentHeap(
        address,
        memory.member(address, layout.flags) or 0,
        memory.member(address, layout.interceptor) or 0,
        tuple(sorted(segments)),
        not complete or encoded is None or bool(encoded & 1),
        layout,
    )


def large_blocks(memory: Memory, heap: SegmentHeap, traces: Traces) -> Iterator[Block]:
    """Yields the large blocks: each has a range of pages of its own."""
    layout = heap.layout
    encoded = memory.number(heap.address + layout.minimum, 1)
    if encoded is None or encoded & 1:
        return
    pending = [memory.pointer(heap.address + layout.large_root)]
    visited: Set[int] = set()
    while pending and len(visited) < _MAX_NODES:
        node = pending.pop()
        if not node or node in visited:
            continue
        visited.add(node)
        yield _large(memory, heap, node - layout.large_node, traces)
        pending.append(memory.member(node, layout.right))
        pending.append(memory.member(node, layout.left))


def named_records(memory: Memory, heap: SegmentHeap, traces: Traces) -> Iterator[RecordedStack]:
    """Yields the record of each extra in the heap's segments; a freed block may keep its extra."""
    layout = heap.layout
    step = 2 * layout.pointer_size
    for start, end in heap.segments if heap.interceptor else ():
        for low, data in memory.pages(start, end):
            for number, index in enumerate(data[layout.extra_units - 1 :: step]):
                if index & 0xF == heap.interceptor:
                    trace = _named(low + number * step, layout, traces)
                    if trace is not None:
                        yield trace


def _segments(memory: Memory, context: int, layout: SegmentHeapLayout) -> Tuple[List[Tuple[int, int]], bool]:
    mask = memory.member(context, layout.segment_mask)
    top = 1 << 8 * layout.pointer_size
    length = 0 if mask is None else top - mask
    if mask is None or length & (length - 1) or not 0x10000 <= length <= 0x40000000:
        return [], False
    listed = walk(context + layout.segment_list, memory.links)
    starts = [node - layout.segment_links for node in listed.nodes]
    aligned = [start for start in starts if not start % length]
    complete = listed.gap is None and len(aligned) == len(starts)
    return [(start, start + length) for start in aligned], complete


def _large(memory: Memory, heap: SegmentHeap, data: int, traces: Traces) -> Block:
    """Returns a large block: the low bits of its address are the number of unused bytes."""
    layout = heap.layout
    address = memory.member(data, layout.large_address)
    pages = memory.member(data, layout.large_pages)
    if address is None or pages is None:
        return Block(heap.address, 0, UNKNOWN_SIZE, 0, LARGE, False, None, 0, UNREADABLE)
    unused = memory.member(data, layout.large_unused) or 0
    start, length = address - unused, pages * PAGE_SIZE
    before = _before(memory, start, length - unused, layout)
    trace = None
    if memory.member(data, layout.large_extra) and unused < length:
        places = _extras(start + length - unused, heap)
        trace = next(filter(None, (_named(place, layout, traces) for place in places)), None)
    size, overhead, statuses = sized(length, unused + before, NOTHING)
    return Block(heap.address, start + before, size, overhead, LARGE, False, trace, 0, statuses)


def _extras(end: int, heap: SegmentHeap) -> Iterator[int]:
    """Yields the candidates for a block's extra: on x86 it may be aligned to 8 bytes, as blocks are."""
    for unit in dict.fromkeys((_UNIT, 2 * heap.layout.pointer_size)):
        after = end + (unit if heap.flags & TAIL_CHECKED else 0)
        yield after + -after % unit


def _before(memory: Memory, start: int, room: int, layout: SegmentHeapLayout) -> int:
    """Returns the number of bytes before the caller's in a large block.

    The block begins with this number, and repeats it right before the caller's bytes; 0 if it does not.
    """
    before = memory.pointer(start) or 0
    again = start + before - 2 * layout.pointer_size
    if before % (2 * layout.pointer_size) or not 0 < before <= room or memory.pointer(again) != before:
        return 0
    return before


def _named(extra: int, layout: SegmentHeapLayout, traces: Traces) -> Optional[RecordedStack]:
    trace = traces.pointed(extra + layout.extra_size)
    return None if trace is None or trace.status else trace
