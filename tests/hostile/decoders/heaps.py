# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Heaps of every generation: NT heaps with what fronts them, page heaps, segment heaps."""

from __future__ import annotations

import functools
from typing import Callable, Iterator, List, Set, Tuple

from tests.forge import lfh, pageheaps, segmentheaps
from tests.support import heapforms, heaptypes
from tests.support.heapforms import BASE, MODERN, OLD, Records
from winstacks.heaps.decode import contents, pageheap, segmentheap
from winstacks.heaps.decode.around import around
from winstacks.heaps.decode.block import UNKNOWN_SIZE
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.ntblocks import heap_blocks
from winstacks.heaps.decode.totals import ProcessTotal
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.status import text
from winstacks.tracedb.decode.recorded import RecordedStack

from .target import Target, Template

_PAGE_HEAP, _SEGMENT_HEAP = 0x300000, 0x700000
_STORED = [RecordedStack("std", 0x900000, 7, (1, 2)), RecordedStack("std", 0x900100, 9, (3, 4))]


@functools.lru_cache(maxsize=None)
def _nt(form: str) -> Template:
    heap, records = heapforms.new_heap(form), Records(form)
    if form in OLD:
        for size in (16, 24, 100, 0x400):
            heap.plain(size, index=7)
            heap.free(2 * size)
        return Template(heap.regions())
    for size in (1, 8, 0x21, 0x400):
        heap.extended(size, records.add(size % 32 + 1))
        heap.plain(size)
        heap.free(2 * size)
    heap.segment(0x100000, creator=5)
    heap.extended(5, records.add())
    lfh.add(heap, form, 0x60, [lfh.Wanted(10, records.add()), lfh.Wanted(9, records.add(), freed=True)])
    heap.virtual(0x400000, 0x100123, records.add(), index=7)
    return Template([*heap.regions(), *records.runs()])


@functools.lru_cache(maxsize=None)
def _pages(arch: str) -> Template:
    heap = pageheaps.PageHeap(_PAGE_HEAP, arch, BASE, creator=0x900000)
    for number in range(9):
        heap.block(0x500000 + 0x2000 * number, 10 * number + 1, 0x900000 + 0x100 * (number % 2))
    heap.block(0x600000, 5, 0x900000, freed=True, mapped=False)
    return Template(heap.regions())


@functools.lru_cache(maxsize=None)
def _segments(arch: str) -> Template:
    heap, records = segmentheaps.SegmentHeap(_SEGMENT_HEAP, arch), Records(arch)
    heap.segment(0x800000)
    for address in (0x801230, 0x802000, 0x80FF80):
        heap.extra(address, records.add())
    heap.large(0x1000000, 0x54321, records.add())
    heap.large(0x2000000, 0x20000)
    regions = [(address, data[:0x10000]) for address, data in heap.regions()]
    return Template([*regions, *records.runs()])


def _read(arch: str, template: Template, listed: List[int], data: bytes) -> None:
    pointer = 8 if arch == "x64" else 4
    extents = template.extents(data)
    memory = Memory.over(extents, pointer)
    types = heaptypes.layouts(arch)
    ranges: List[Tuple[int, int]] = [(start, start + len(run)) for start, run in extents.runs]
    found = contents.find_heaps(memory, types, listed, ranges)
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch], lambda: _STORED)
    limit = 4 * len(data)
    for heap in found.nt:
        assert sum(1 for _ in heap_blocks(memory, heap, traces, types.page)) <= limit
    seen: Set[int] = set()
    for root in found.page:
        assert sum(1 for _ in pageheap.nodes(memory, root, seen)) <= limit
    for segment in found.segment:
        assert sum(1 for _ in segmentheap.large_blocks(memory, segment, traces)) <= limit
        assert sum(1 for _ in segmentheap.named_records(memory, segment, traces)) <= limit

    _whole(contents.read_contents(memory, found, types, traces, listed, keep=True), listed, limit)


def _whole(held: contents.HeapContents, listed: List[int], limit: int) -> None:
    """Contents of heaps: each block counts once, and the blocks around an address are around it."""
    total = ProcessTotal()
    for group in held.groups:
        total.add(group, None)
        assert len(group.blocks) == group.allocations
        assert text(group.joined_status).isprintable()
        assert group.size == sum(block.size for block in group.blocks if block.size != UNKNOWN_SIZE)
    blocks = [block for group in held.groups for block in group.blocks]
    assert len(blocks) + len(held.owners) <= limit + len(listed)
    busy = [block for block in blocks if not block.freed]
    assert (total.count, total.size, total.unsized) == (
        len(busy),
        sum(max(block.size, 0) for block in busy),
        sum(block.size == UNKNOWN_SIZE for block in busy),
    )
    assert held.lost >= 0 and all(text(owner.joined_status).isprintable() for owner in held.owners)
    for address in [block.user + 1 for block in blocks[:8]] + listed:
        near = [group.blocks[0] for group in around(held.groups, address, None)]
        assert len(near) <= 3 and len({id(block) for block in near}) == len(near)
        holds = [block for block in blocks if block.user <= address < block.user + max(block.size, 1)]
        assert bool(holds) == any(block.user <= address < block.user + max(block.size, 1) for block in near)


def _target(name: str, arch: str, make: Callable[[str], Template], key: str, base: int) -> Target:
    def decode(data: bytes, whole: bytes) -> None:
        _read(arch, make(key), [base], data)

    return Target(name, lambda: [make(key).bytes], decode)


def targets() -> Iterator[Target]:
    for form in (*MODERN, *OLD):
        yield _target(f"ntheap-{form}", form[-3:], _nt, form, BASE)
    for arch in ("x64", "x86"):
        yield _target(f"pageheap-{arch}", arch, _pages, arch, _PAGE_HEAP)
        yield _target(f"segmentheap-{arch}", arch, _segments, arch, _SEGMENT_HEAP)
