# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which heaps are found, and what all that they hold is made into."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import pytest

from tests.forge import pageheaps, segmentheaps
from tests.support import heaptypes
from tests.support.heapforms import BASE, Records, Runs, new_heap, without
from tests.support.only import only, rows_of
from winstacks.heaps.decode.block import DAMAGED, UNKNOWN_SIZE, Block, TraceGroup, TraceGroups
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.contents import FoundHeaps, HeapContents, HeapOwner, find_heaps, read_contents
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING, Status, status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.tracedb.decode.recorded import RecordedStack

ARCHES = ["x64", "x86"]


def search(arch: str, runs: Runs, listed: Sequence[int], ranges: bool = True) -> FoundHeaps:
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(arch))
    places = [(address, address + len(data)) for address, data in runs] if ranges else []
    return find_heaps(memory, heaptypes.layouts(arch), listed, places)


def contents(arch: str, runs: Runs, listed: Optional[Sequence[int]], keep: bool = True) -> HeapContents:
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(arch))
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch])
    found = search(arch, runs, listed or [])
    return read_contents(memory, found, heaptypes.layouts(arch), traces, listed, keep)


@pytest.mark.parametrize("arch", ARCHES)
def test_every_kind_is_told_apart(arch: str) -> None:
    nt, segment = new_heap(f"6.2-{arch}"), segmentheaps.SegmentHeap(0x700000, arch)
    old = new_heap("5.2-x64" if arch == "x64" else "5.1-x86", 0x200000, flags=2, segment_creator=0)
    page = pageheaps.PageHeap(0x300000, arch, BASE)
    runs = nt.regions() + segment.regions() + old.regions() + page.regions()
    listed = search(arch, runs, [BASE, 0x700000, 0x200000, 0x300000, 0x123000], ranges=False)
    unlisted = search(arch, runs, [])
    for found in (listed, unlisted):
        assert {heap.address for heap in found.nt} == {BASE, 0x200000}
        assert [heap.address for heap in found.segment] == [0x700000]
        assert [root.address for root in found.page] == [0x300000 + PAGE_SIZE]
        assert found.traced
    assert (listed.unread, unlisted.unread) == ((0x123000,), ())


@pytest.mark.parametrize("arch", ARCHES)
def test_heaps_that_remember_nothing(arch: str) -> None:
    heap = new_heap(f"6.2-{arch}", flags=2, interceptor=0, segment_creator=0)
    segment = segmentheaps.SegmentHeap(0x700000, arch, interceptor=0, flags=0)
    found = search(arch, heap.regions() + segment.regions(), [BASE, 0x700000])
    assert (found.traced, found.damaged) == (False, False)
    assert search(arch, heap.regions(), [BASE, 0x123000]).damaged


@pytest.mark.parametrize("arch", ARCHES)
def test_no_memory_belongs_to_two_heaps(arch: str) -> None:
    records, first = Records(arch), new_heap(f"6.2-{arch}", pages=64)
    second = new_heap(f"6.2-{arch}", BASE + 0x8000, pages=8)
    user = second.extended(50, records.add())
    # The first claims the memory up to its end, in which the second one lies.
    runs = [(address, data[:0x8000]) for address, data in first.regions()] + second.regions()
    found = search(arch, runs + records.runs(), [BASE, BASE + 0x8000])
    cut, whole = rows_of(2, found.nt)
    assert (cut.segments[0].last, cut.segments[0].damaged) == (BASE + 0x8000, True)
    assert not whole.segments[0].damaged
    read = contents(arch, runs + records.runs(), [BASE, BASE + 0x8000])
    assert [block.user for group in read.groups for block in group.blocks] == [user]


@pytest.mark.parametrize("arch", ARCHES)
def test_what_is_left_of_a_heap_without_its_beginning(arch: str) -> None:
    records, heap = Records(arch), new_heap(f"6.2-{arch}")
    heap.segment(0x100000)
    user = heap.extended(50, records.add())
    runs = without(heap.regions(), BASE, BASE + PAGE_SIZE) + records.runs()
    read = contents(arch, runs, [BASE])
    assert [(owner.kind, owner.address, text(owner.status)) for owner in read.owners] == [
        ("heap", BASE, f"damaged, {read.lost} bytes unread"),
        ("heap segment", 0x100000, ""),
    ]
    group = only(read.groups)
    assert (group.blocks[0].user, group.unsized, text(group.status)) == (user, 1, "damaged")
    assert read.lost >= 50


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("member", ["segment_signature", "segment_heap"])
def test_a_segment_off_its_list_whose_header_is_damaged(arch: str, member: str) -> None:
    """What is left of its header leads to its blocks, or at least to a row."""
    records, heap = Records(arch), new_heap(f"6.2-{arch}")
    heap.segment(0x100000)
    user = heap.extended(50, records.add())
    heap.regions()
    heap.ring(BASE + heap.layout.segments, [BASE + (heap.layout.segment_links or 0)])
    place = getattr(heaptypes.layouts(arch).nt[0], member)
    runs = []
    for address, data in heap.held():
        held = bytearray(data)
        if address == 0x100000:
            held[place.offset : place.offset + place.size] = bytes(place.size)
        runs.append((address, bytes(held)))
    read = contents(arch, runs + records.runs(), [BASE])
    owners = [(owner.kind, owner.address, text(owner.status)) for owner in read.owners]
    if member == "segment_signature":
        assert owners == [("heap", BASE, ""), ("heap segment", 0x100000, "damaged")]
        assert [block.user for group in read.groups for block in group.blocks] == [user]
    else:
        assert owners == [("heap", BASE, ""), ("heap", 0x100000, "unreadable")]


@pytest.mark.parametrize("arch", ARCHES)
def test_owners_say_what_they_are(arch: str) -> None:
    heap = new_heap(f"6.2-{arch}", creator=0, segment_creator=3)
    heap.segment(0x100000, creator=4)
    page = pageheaps.PageHeap(0x300000, arch, BASE, creator=0x900000)
    page.block(0x500000, 10, 0)
    segment = segmentheaps.SegmentHeap(0x700000, arch)
    segment.segment(0x800000)
    read = contents(arch, heap.regions() + page.regions() + segment.regions(), [BASE, 0x300000, 0x66000])
    assert [(owner.kind, owner.heap, owner.address, text(owner.status)) for owner in read.owners] == [
        ("heap", BASE, BASE, ""),
        ("heap segment", BASE, 0x100000, ""),
        ("segment heap", 0x700000, 0x700000, "unlisted, not-read"),
        ("page heap", 0x300000, 0x300000, ""),
        ("heap", 0x66000, 0x66000, "unreadable"),
    ]
    assert [owner.trace.trace_index for owner in read.owners[:2] if owner.trace] == [3, 4]
    assert [owner.size for owner in read.owners] == [0x10000, 0x10000, 0x100000, 0, 0]
    assert [(group.trace, group.size) for group in read.groups] == [(None, 10)]


def test_a_page_heap_that_lost_nodes_says_so() -> None:
    page = pageheaps.PageHeap(0x300000, "x64", BASE)
    for number in range(9):
        page.block(0x500000 + 0x2000 * number, 5, 0, mapped=False)
    page.regions()
    root = 0x300000 + PAGE_SIZE + 0x38
    page.put(root + 0x10, 8, 0)
    read = contents("x64", [(0x300000, bytes(page.data))], [0x300000])
    assert [text(owner.status) for owner in read.owners] == ["damaged"]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("freed", [False, True])
def test_nodes_of_a_page_heap_that_are_not_present_are_no_damage(arch: str, freed: bool) -> None:
    page = pageheaps.PageHeap(0x300000, arch, BASE)
    count = 3 * PAGE_SIZE // page.form.node_size
    for number in range(count):
        page.block(0x500000 + 0x2000 * number, 5, 0, freed=freed, mapped=False)
    regions = page.regions()
    whole = contents(arch, regions, [0x300000])
    assert [text(owner.status) for owner in whole.owners] == [""]
    read = contents(arch, without(regions, 0x300000 + 4 * PAGE_SIZE, 0x300000 + 5 * PAGE_SIZE), [0x300000])
    assert [text(owner.status) for owner in read.owners] == ["unreadable"]
    assert 0 < sum(group.allocations for group in read.groups) < count


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("member", ["busy", "freed_count", "freed", "made"])
def test_members_of_a_page_heap_that_are_not_present_are_told(arch: str, member: str) -> None:
    page = pageheaps.PageHeap(0x300000, arch, BASE)
    page.block(0x500000, 5, 0, mapped=False)
    at = page.root + page.form.root[member]
    read = contents(arch, without(page.regions(), at, at + 4), [0x300000])
    assert [text(owner.status) for owner in read.owners] == ["unreadable"]
    assert [group.allocations for group in read.groups] == [1]


def block(
    user: int, size: int, trace: Optional[RecordedStack], freed: bool = False, row_status: Status = NOTHING
) -> Block:
    return Block(BASE + user % 2, user, size, 1, "block", freed, trace, 0, row_status)


def grouped(blocks: Sequence[Block], keep: bool = False) -> List[TraceGroup]:
    groups = TraceGroups(keep)
    for block in blocks:
        groups.add(block)
    return groups.groups()


LOGGED = RecordedStack("log", 0x1000, 0, (1, 2))
INLINE = [RecordedStack("inline", at, 0, (7, 8)) for at in (0x2000, 0x3000)]
STORED = RecordedStack("std", 0, 5, (), status(StatusCode.NO_DATABASE))


def test_groups_are_sorted_and_add_up() -> None:
    blocks = [
        block(2, 10, LOGGED),
        block(1, 30, INLINE[0]),
        block(4, 15, LOGGED),
        block(6, 40, INLINE[1]),
        block(8, 99, LOGGED, freed=True),
        block(10, 20, None),
        block(12, UNKNOWN_SIZE, LOGGED, row_status=DAMAGED),
        block(14, 1, STORED),
    ]
    groups = grouped(blocks, keep=True)
    found: List[Tuple[object, ...]] = [
        (
            group.trace and group.trace.kind,
            group.freed,
            text(group.status),
            group.allocations,
            group.size,
            group.unsized,
        )
        for group in groups
    ]
    assert found == [
        ("log", True, "", 1, 99, 0),
        ("inline", False, "", 2, 70, 0),
        ("log", False, "", 2, 25, 0),
        (None, False, "", 1, 20, 0),
        ("std", False, "", 1, 1, 0),
        ("log", False, "damaged", 1, 0, 1),
    ]
    assert [block.user for block in groups[1].blocks] == [1, 6]
    assert (groups[1].heaps, groups[2].heaps) == ((BASE, BASE + 1), (BASE,))
    assert sorted(block.user for group in groups for block in group.blocks) == sorted(
        block.user for block in blocks
    )
    assert all(group.blocks == () for group in grouped(blocks))


def test_what_may_be_compared() -> None:
    partly = RecordedStack("std", 0x5000, 6, (None, 2), status(StatusCode.FREED))
    unsized = block(10, UNKNOWN_SIZE, LOGGED, row_status=DAMAGED)
    groups = grouped(
        [
            block(2, 10, LOGGED),
            block(4, 9, LOGGED, freed=True),
            block(6, 8, partly),
            block(8, 7, None),
            unsized,
        ]
    )
    assert [group.comparable for group in groups] == [True, False, False, False, True]
    assert [group.stack for group in groups] == [(1, 2), (1, 2), (), (), (1, 2)]


def test_a_word_of_a_block_and_its_trace_stands_once() -> None:
    damaged = status(StatusCode.DAMAGED)
    trace = RecordedStack("heaplog", 0, 1, (0x401000,), status(StatusCode.FREED, StatusCode.DAMAGED))
    group = TraceGroup(trace, True, damaged, 1, 16, 0, (BASE,), ())
    assert text(group.joined_status) == "freed, damaged"
    owner = HeapOwner("heap", BASE, BASE, 16, trace, damaged)
    assert text(owner.joined_status) == "damaged, freed"
