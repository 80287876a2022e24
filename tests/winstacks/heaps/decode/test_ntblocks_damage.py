# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged NT heaps with damage: nothing is lost but what is gone."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import lfh
from tests.forge.heaps import PAGE, NtHeap
from tests.support import heaptypes
from tests.support.deep import rounds
from tests.support.heapforms import BASE, LOG, MODERN, OLD, Records, new_heap, read, traced, without
from tests.support.only import only
from winstacks.columns.words import CONTAINER
from winstacks.heaps.decode.block import UNKNOWN_SIZE
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.ntblocks import BUSY, INTERNAL, heap_blocks
from winstacks.heaps.decode.ntheap import read_heap
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING, text


@pytest.mark.parametrize("form", MODERN)
def test_what_is_left_in_free_memory(form: str) -> None:
    """A free block that was merged from several keeps the headers and pointers of those behind the first."""
    records, heap = Records(form), new_heap(form)
    record = records.add()
    users = [heap.extended(size, record) for size in (40, 50, 60)]
    unit = heap.layout.unit
    first = users[0] - 3 * unit
    whole = heap.segments[0].next - first
    heap.put(first + unit - 8, 8, heap.code(whole // unit, heap.layout.heap_size // unit, 0, 0))
    heap.put(first + unit, 2 * heap.layout.pointer, 0)
    heap.segments[0].before = whole
    busy = heap.extended(70, record)
    blocks, lost, _ = read(form, heap.regions() + records.runs())
    assert {block.user: (block.size, block.freed) for block in blocks} == {
        users[1]: (50, True),
        users[2]: (60, True),
        busy: (70, False),
    }
    assert not lost


@pytest.mark.parametrize("form", MODERN)
@pytest.mark.parametrize(
    "lie", ["signature", "back pointer", "block size", "block count", "too many", "marks"]
)
def test_a_subsegment_that_lies_takes_nothing_else_with_it(form: str, lie: str) -> None:
    """It is no subsegment then; what lies before and behind it is as it was."""
    records, heap = Records(form), new_heap(form)
    numbers, pointer, unit = lfh.FORMS[form], heap.layout.pointer, heap.layout.unit
    before = heap.extended(30, records.add())
    users = lfh.add(heap, form, 0x60, [lfh.Wanted(20, records.add()) for _ in range(20)])
    after = heap.extended(77, records.add())
    ((base, data), *_) = heap.regions()
    assert set(traced(read(form, [(base, data), *records.runs()])[0])) == {before, *users, after}
    signature = base + data.find(lfh.SIGNATURE.to_bytes(4, "little"))
    subsegment = int.from_bytes(data[signature - numbers.signature - base :][:pointer], "little")
    places = {
        "signature": (signature, 4, lfh.SIGNATURE ^ 1),
        "back pointer": (subsegment + numbers.user_blocks, pointer, BASE),
        "block size": (subsegment + numbers.block_size, 2, 0),
        "block count": (subsegment + numbers.block_count, 2, 0),
        "too many": (subsegment + numbers.block_count, 2, 0xFFFF),
        "marks": (users[0] - 3 * unit + unit - 1, 1, 0x40),
    }
    heap.put(*places[lie])
    found = traced(read(form, heap.regions() + records.runs())[0])
    assert found[before][2] == found[after][2] == "block"
    assert not [form for _, _, form in found.values() if form == "lfh"] or lie == "marks"


@pytest.mark.parametrize("form", MODERN)
def test_a_container_that_is_not_present_takes_its_blocks_with_it_and_says_so(form: str) -> None:
    """It is told by its header's flag; without that, the block is the caller's as any other."""
    records, heap = Records(form), new_heap(form)
    unit = heap.layout.unit
    before = heap.extended(30, records.add())
    heap.plain(PAGE)
    users = lfh.add(heap, form, 0x60, [lfh.Wanted(20, records.add()) for _ in range(80)])
    blocks, lost, _ = read(form, heap.regions() + records.runs())
    container = only(block for block in blocks if block.form == CONTAINER)
    assert (lost, container.status, container.trace) == ([], NOTHING, None)
    start, header = container.user, container.user - unit
    assert start % PAGE + unit < PAGE
    for flags, kind in ((BUSY | INTERNAL, CONTAINER), (BUSY, "block")):
        _reflag(heap, header, flags)
        end = -(-start // PAGE) * PAGE
        runs = without(heap.regions(), start, end)
        blocks, lost, _ = read(form, runs + records.runs())
        found = {block.user: block for block in blocks}
        assert before in found and found[start].form == kind
        if kind == CONTAINER:
            assert text(found[start].status) == "unreadable"
            assert [piece.start for piece in lost] == [start]
            # What lies in the pages that are there is known by the records that it names.
            there = {user for user in users if user - 4 * unit >= end}
            assert there and there <= found.keys()


@pytest.mark.parametrize("form", MODERN)
def test_blocks_of_the_low_fragmentation_heap_in_a_page_that_is_not_present(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    users = lfh.add(heap, form, 0x60, [lfh.Wanted(20, records.add()) for _ in range(200)])
    start = -(-users[0] // PAGE) * PAGE
    runs = without(heap.regions(), start, start + PAGE)
    blocks, lost, _ = read(form, runs + records.runs())
    gone = [user - 3 * heap.layout.unit for user in users]
    headers = [header for header in gone if start <= header + heap.layout.unit - 1 < start + PAGE]
    assert headers and [(piece.start, piece.end) for piece in lost] == [
        (header, header + 0x60) for header in headers
    ]
    assert {user for user, header in zip(users, gone) if header not in headers} <= {
        block.user for block in blocks
    }


def _reflag(heap: NtHeap, header: int, flags: int) -> None:
    """Writes a header of the first segment again, with other Flags."""
    segment, layout = heap.segments[0], heap.layout
    at = header + layout.unit - 8 - segment.base
    plain = bytearray((int.from_bytes(segment.data[at : at + 8], "little") ^ heap.key).to_bytes(8, "little"))
    plain[2] = flags
    plain[3] = plain[0] ^ plain[1] ^ plain[2]
    heap.put(header + layout.unit - 8, 8, int.from_bytes(plain, "little") ^ heap.key)


@pytest.mark.parametrize("form", MODERN)
def test_a_record_that_is_none(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    good, bad = records.add(), records.add()
    records.data[bad - LOG + records.pointer] ^= 1
    for size, named in enumerate((good, bad, 0x7000000, bad + 1)):
        heap.extended(size, named)
    blocks, _, _ = read(form, heap.regions() + records.runs())
    statuses = [(text(block.trace.status), len(block.trace.frames)) for block in blocks if block.trace]
    assert statuses == [("", 3), ("hash", 0), ("unreadable", 0), ("hash", 0)]


@pytest.mark.parametrize("form", MODERN)
def test_goes_on_behind_a_broken_header(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    users = [heap.extended(size, records.add()) for size in range(100, 120)]
    broken = users[7] - 3 * heap.layout.unit
    heap.put(broken + heap.layout.unit - 8, 8, 0x0123456789ABCDEF)
    blocks, lost, _ = read(form, heap.regions() + records.runs())
    found = traced(blocks)
    assert [found[user][0] for user in users if user != users[7]] == [*range(100, 107), *range(108, 120)]
    # The block itself is still known by the record that it names; its size is not.
    assert found[users[7]][0] == UNKNOWN_SIZE
    assert [text(block.status) for block in blocks].count("damaged") == 1
    assert [piece.start for piece in lost] == [broken]


@pytest.mark.parametrize("form", MODERN)
def test_a_header_whose_checksum_fails_is_not_believed(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    users = [heap.extended(100, records.add()) for _ in range(5)]
    unit = heap.layout.unit
    flags = users[2] - 3 * unit + unit - 8 + 2
    held = next(data for base, data in heap.held() if base == BASE)
    held[flags - BASE] ^= 1
    blocks, lost, _ = read(form, heap.regions() + records.runs())
    assert [(block.user, text(block.status)) for block in blocks] == [
        (user, "damaged" if user == users[2] else "") for user in users
    ]
    assert [(piece.start, piece.end) for piece in lost] == [(users[2] - 3 * unit, users[3] - 3 * unit)]


@pytest.mark.parametrize("form", MODERN)
@pytest.mark.parametrize("offset", [1, 2])
def test_a_second_header_that_is_none(form: str, offset: int) -> None:
    records, heap = Records(form), new_heap(form)
    record = records.add()
    user = heap.extended(100, record)
    heap.put(user - offset, 1, 9)
    blocks, _, _ = read(form, heap.regions() + records.runs())
    block = only(blocks)
    assert (block.user, block.size, block.trace, text(block.status)) == (
        user,
        UNKNOWN_SIZE,
        records.trace(record),
        "damaged",
    )


@pytest.mark.parametrize("form", MODERN)
def test_goes_on_behind_a_page_that_is_gone(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    users = [heap.extended(100, records.add(1)) for _ in range(150)]
    gone = (users[60] & -PAGE, (users[60] & -PAGE) + PAGE)
    blocks, lost, _ = read(form, without(heap.regions(), *gone) + records.runs())
    found = traced(blocks)
    unit = heap.layout.unit
    apart = [user for user in users if user + 100 <= gone[0] or user - 3 * unit >= gone[1]]
    assert len(apart) > 90
    assert all(found[user][0] == 100 for user in apart)
    assert any(gone[0] <= piece.start < gone[1] <= piece.end for piece in lost)


@pytest.mark.parametrize("form", MODERN)
def test_a_block_whose_second_header_is_gone(form: str) -> None:
    """It lies across a page's end: the record that it names is known, its size is not."""
    records, heap = Records(form), new_heap(form)
    unit, record = heap.layout.unit, records.add()
    end = (heap.segments[0].next & -PAGE) + 2 * PAGE
    heap.free(end - 2 * unit - heap.segments[0].next - 8)
    user = heap.extended(50, record)
    assert user - 3 * unit == end - 2 * unit
    blocks, _, _ = read(form, without(heap.regions(), end, end + PAGE) + records.runs())
    assert [(block.user, block.size, block.trace, text(block.status)) for block in blocks if block.trace] == [
        (user, UNKNOWN_SIZE, records.trace(record), "unreadable")
    ]


@pytest.mark.parametrize("form", MODERN)
def test_a_heap_without_its_key(form: str) -> None:
    """Blocks prove themselves by their records when no header can be read."""
    records, heap = Records(form), new_heap(form)
    users = [heap.extended(100, records.add()) for _ in range(20)]
    regions = heap.regions()
    encoding = heap.layout.encoding or 0
    start, data = regions[0]
    at = encoding + heap.layout.unit - 8
    regions[0] = (start, data[:at] + bytes(8) + data[at + 8 :])
    blocks, lost, _ = read(form, regions + records.runs())
    assert {block.user for block in blocks if block.trace} == set(users)
    assert lost


@pytest.mark.parametrize("form", MODERN)
def test_lists_that_run_in_circles(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    heap.segment(0x100000)
    record = records.add()
    user = heap.extended(10, record)
    pointer, places = heap.layout.pointer, (0x400000, 0x500000, 0x600000)
    for place in places:
        heap.virtual(place, 0x80000, record)
    regions = {address: bytearray(data) for address, data in heap.regions()}
    regions[places[0]][:pointer] = places[0].to_bytes(pointer, "little")
    regions[places[2]][pointer : 2 * pointer] = places[2].to_bytes(pointer, "little")
    memory = [(address, bytes(data)) for address, data in regions.items()]
    blocks, _, found = read(form, memory + records.runs())
    assert found.damaged
    assert traced(blocks)[user][0] == 10
    assert found.virtual_blocks == (places[0], places[2])


@pytest.mark.parametrize("form", MODERN)
def test_wild_numbers_cost_nothing(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    users = [heap.extended(30, records.add()) for _ in range(5)]
    heap.put(BASE + heap.layout.segment_pages, 4, 0xFFFFFFFF)
    heap.put(
        BASE + heap.layout.segment_last,
        heap.layout.pointer,
        (1 << 8 * heap.layout.pointer) - heap.layout.unit,
    )
    blocks, _, _ = read(form, heap.regions() + records.runs())
    assert list(traced(blocks)) == users


@pytest.mark.parametrize("form", OLD)
def test_old_heaps_go_on_behind_damage(form: str) -> None:
    heap = new_heap(form)
    users = [heap.plain(100, index=7) for _ in range(100)]
    broken = users[30] - heap.layout.unit
    heap.put(broken + heap.layout.unit - 8, 8, 0)
    blocks, lost, _ = read(form, heap.regions())
    assert [piece.start for piece in lost] == [broken]
    assert {block.user for block in blocks} >= set(users) - {users[30]}


@settings(max_examples=rounds(60), deadline=None)
@given(
    st.sampled_from([*MODERN, *OLD]),
    st.lists(st.tuples(st.integers(0, 0x2FFF), st.integers(0, 255)), max_size=60),
)
def test_any_damage_is_survived(form: str, damage: List[Tuple[int, int]]) -> None:
    records, heap = Records(form), new_heap(form)
    for size in range(1, 90):
        if form in OLD:
            heap.plain(size, index=7)
        else:
            heap.extended(size, records.add(1))
    (start, data), *rest = heap.regions()
    memory = bytearray(data)
    for at, value in damage:
        memory[at % len(memory)] = value
    arch = form[-3:]
    held = Memory.over(
        Extents([(start, bytes(memory)), *rest, *records.runs()]), heaptypes.pointer_size(form)
    )
    found = read_heap(held, BASE, [heaptypes.heap(form)])
    if found is not None:
        traces = Traces(held, heaptypes.LOG[arch], heaptypes.ENTRY[arch])
        items = list(heap_blocks(held, found, traces))
        assert len(items) < 4 * len(memory)


def _resize(heap: NtHeap, header: int, size: int, form: str) -> None:
    """Writes a header of the first segment again, with another Size and a checksum that holds."""
    segment, layout = heap.segments[0], heap.layout
    at = header + layout.unit - 8 - segment.base
    plain = bytearray((int.from_bytes(segment.data[at : at + 8], "little") ^ heap.key).to_bytes(8, "little"))
    plain[:2] = (size // layout.unit).to_bytes(2, "little")
    if form in MODERN:
        plain[3] = plain[0] ^ plain[1] ^ plain[2]
    heap.put(header + layout.unit - 8, 8, int.from_bytes(plain, "little") ^ heap.key)


@pytest.mark.parametrize("form", [*MODERN, *OLD])
def test_a_block_that_reaches_over_its_neighbours_hides_none(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    old = form in OLD
    users = [heap.plain(100, index=7) if old else heap.extended(100, records.add()) for _ in range(6)]
    clean, lost, _ = read(form, heap.regions() + records.runs())
    assert not lost
    first = users[1] - (1 if old else 3) * heap.layout.unit
    _resize(heap, first, 3 * (users[2] - users[1]), form)
    blocks, lost, _ = read(form, heap.regions() + records.runs())
    # A second call of `regions` adds a block for the heap itself.
    assert {block[:4] for block in clean} <= {block[:4] for block in blocks}
    # An empty range makes the heap say that it is damaged.
    assert [(piece.start, piece.end) for piece in lost] == [(first + 3 * (users[2] - users[1]),) * 2]
