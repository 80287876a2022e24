# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged NT heaps of every generation and bitness: their blocks."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import lfh
from tests.forge.heaps import PAGE, prefix
from tests.support import heaptypes
from tests.support.deep import rounds
from tests.support.heapforms import BASE, MODERN, OLD, Records, new_heap, read, traced
from tests.support.only import only
from winstacks.heaps.decode.block import UNKNOWN_SIZE
from winstacks.heaps.decode.ntheap import read_heap
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING, status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.tracedb.decode.recorded import RecordedStack


@pytest.mark.parametrize("form", MODERN)
def test_blocks_of_one_heap(form: str) -> None:
    records, heap = Records(form), new_heap(form, creator=9, segment_creator=7)
    truth = {}
    for size in (1, 7, 8, 0x21, 0x1000, 0x5DC):
        record = records.add(size % 32 + 1)
        truth[heap.extended(size, record)] = (size, records.trace(record), "block")
        heap.plain(size)
        heap.free(2 * size)
    record = records.add()
    user = heap.virtual(0x400000, 0x100123, record, index=7)
    truth[user] = (0x100123, records.trace(record), "virtual")
    blocks, lost, found = read(form, heap.regions() + records.runs())
    assert traced(blocks) == truth
    assert (found.creator, [segment.creator for segment in found.segments]) == (9, [7])
    assert [block.std_index for block in blocks if block.form == "virtual"] == [7]
    assert [block.size for block in blocks if block.trace is None] == [1, 7, 8, 0x21, 0x1000, 0x5DC]
    assert not lost
    assert not any(block.freed or block.status for block in blocks)


@pytest.mark.parametrize("form", MODERN)
def test_a_block_tells_what_it_costs(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    heap.extended(100, records.add())
    blocks, _, _ = read(form, heap.regions() + records.runs())
    block = only(blocks)
    unit = heap.layout.unit
    assert (block.size + block.overhead) % unit == 0
    assert 2 * unit < block.overhead < 4 * unit


@pytest.mark.parametrize("form", MODERN)
def test_segments_come_from_the_list_and_from_candidates(form: str) -> None:
    records, heap = Records(form), new_heap(form)
    heap.segment(0x100000, creator=5)
    listed = heap.extended(5, records.add())
    blocks, _, found = read(form, heap.regions() + records.runs())
    assert list(traced(blocks)) == [listed]
    assert [segment.creator for segment in found.segments] == [1, 5]
    # The list loses its second segment: it is found by what is known to be somewhere in memory.
    head = BASE + heap.layout.segments
    broken = heap.regions()
    links = heap.layout.segment_links or 0
    heap.ring(head, [BASE + links])
    broken = [(address, bytes(data)) for address, data in heap.held()]
    assert not traced(read(form, broken + records.runs())[0])
    assert list(traced(read(form, broken + records.runs(), 0x100000)[0])) == [listed]
    assert not traced(read(form, broken + records.runs(), 0x101000)[0])


@pytest.mark.parametrize("form", MODERN)
@pytest.mark.parametrize("padding", [0, 0x40])
def test_low_fragmentation_heap(form: str, padding: int) -> None:
    if padding and form.startswith("6.0"):
        pytest.skip("blocks follow the header at once")
    records, heap = Records(form), new_heap(form)
    held = [records.add() for _ in range(40)]
    expected = [lfh.Wanted(number % 24, record) for number, record in enumerate(held)]
    expected += [lfh.Wanted(9, held[0], freed=True), lfh.Wanted(3), lfh.Wanted(3, freed=True)]
    users = lfh.add(heap, form, 0x60, expected, padding)
    after = heap.extended(77, held[1])
    blocks, lost, _ = read(form, heap.regions() + records.runs())
    truth = {
        user: (reported_block.size, records.trace(reported_block.record), "lfh")
        for user, reported_block in zip(users, expected)
        if reported_block.record
    }
    truth[after] = (77, records.trace(held[1]), "block")
    assert traced(blocks) == truth
    assert [block.user for block in blocks if block.freed] == [users[40]]
    # A freed block that names nothing is not told of, a busy one is.
    assert users[41] in [block.user for block in blocks if block.trace is None]
    assert users[42] not in [block.user for block in blocks]
    assert not lost


@pytest.mark.parametrize("form", MODERN)
def test_traces_within_the_block(form: str) -> None:
    """7 to 8.1: interceptor 1 keeps the trace itself behind the header."""
    heap = new_heap(form, interceptor=1)
    frames = (0x1111, 0x2222, 0x3333)
    user = heap.extended(50, 0, prefix([*frames, 0], heap.layout.pointer), len(frames) + 1)
    blocks, _, _ = read(form, heap.regions())
    (size, trace, _) = traced(blocks)[user]
    assert (size, trace.kind, trace.frames, trace.status) == (50, "inline", frames, NOTHING)


def test_a_trace_within_the_block_that_nothing_confirms() -> None:
    heap = new_heap("6.0-x64", interceptor=1)
    data = bytearray(prefix([0x1111, 0x2222], 8))
    data[8] ^= 1
    heap.extended(50, 0, bytes(data), 2)
    blocks, _, _ = read("6.0-x64", heap.regions())
    block = only(blocks)
    assert block.trace is not None
    assert (block.trace.kind, block.trace.frames, text(block.trace.status)) == (
        "inline",
        (0x1111, 0x2222),
        "unsure",
    )


@pytest.mark.parametrize("form", OLD)
def test_old_blocks_name_an_index(form: str) -> None:
    heap = new_heap(form, creator=7, segment_creator=9)
    indexed = heap.plain(100, index=7)
    plain = heap.plain(20)
    freed = heap.free(40, index=9)
    heap.free(24)
    unknown = heap.plain(33, index=0x1234)
    virtual = heap.virtual(0x400000, 0x90000, index=9)
    blocks, lost, found = read(form, heap.regions())
    assert not lost
    by_user = {block.user: block for block in blocks}
    assert [(by_user[user].size, by_user[user].trace) for user in (indexed, plain)] == [
        (100, RecordedStack("std", 0x900000, 7, (1, 2))),
        (20, None),
    ]
    assert by_user[unknown].trace == RecordedStack("std", 0, 0x1234, (), status(StatusCode.NO_SUCH_INDEX))
    assert (by_user[virtual].size, by_user[virtual].form) == (0x90000, "virtual")
    assert [(block.user, block.trace and block.trace.trace_index) for block in blocks if block.freed] == [
        (freed + heap.layout.unit, 9)
    ]
    assert (found.creator, found.segments[0].creator, found.traced) == (7, 9, True)


@pytest.mark.parametrize("form", OLD)
@pytest.mark.parametrize("unused", [0x3E, 0x3F, 0x40, 0x50])
def test_unused_bytes_of_old_blocks_are_a_plain_number(form: str, unused: int) -> None:
    """Neither is 3Fh a length that did not fit, nor does 40h say that the block is extended."""
    heap = new_heap(form)
    user = heap.plain(0x90)
    unit = heap.layout.unit
    heap.put(user - 2, 1, unused)
    whole = -(-(unit + 0x90) // unit) * unit
    blocks, lost, _ = read(form, heap.regions())
    block = only(blocks)
    assert (block.user, block.size, block.overhead, block.status) == (user, whole - unused, unused, NOTHING)
    assert not lost


@pytest.mark.parametrize("form", MODERN)
@pytest.mark.parametrize("unused", [1, 0x3F])
def test_a_number_that_counts_no_bytes_is_no_size(form: str, unused: int) -> None:
    """With 3Fh the number is stored elsewhere: how many bytes were asked for is not known here."""
    heap = new_heap(form)
    user = heap.plain(0x90, unused=unused)
    blocks, lost, _ = read(form, heap.regions())
    block = only(blocks)
    assert (block.user, block.size, block.overhead, block.status) == (user, UNKNOWN_SIZE, 0, NOTHING)
    assert not lost


@pytest.mark.parametrize("form", [*MODERN, *OLD])
def test_only_a_heap_is_a_heap(form: str) -> None:
    heap = new_heap(form)
    regions = heap.regions()
    layouts = [heaptypes.heap(form)]
    pointer = heap.layout.pointer
    assert read_heap(Memory.over(Extents(regions), pointer), BASE + PAGE, layouts) is None
    assert read_heap(Memory.over(Extents([]), pointer), BASE, layouts) is None
    heap.put(BASE + heap.layout.signature, 4, 0xDDEEDDEE)
    assert read_heap(Memory.over(Extents(heap.regions()), pointer), BASE, layouts) is None


STEPS = st.lists(
    st.tuples(st.sampled_from(["extended", "plain", "free"]), st.integers(1, 0x900)), min_size=1, max_size=25
)


@settings(max_examples=rounds(40), deadline=None)
@given(st.sampled_from(MODERN), STEPS)
def test_any_sequence_of_blocks(form: str, steps: List[Tuple[str, int]]) -> None:
    records, heap = Records(form), new_heap(form, pages=32)
    truth = []
    for kind, size in steps:
        if kind == "extended":
            truth.append((heap.extended(size, records.add(size % 32 + 1)), size))
        else:
            getattr(heap, kind)(size)
    blocks, lost, _ = read(form, heap.regions() + records.runs())
    assert [(block.user, block.size) for block in blocks if block.trace] == truth
    assert not lost
