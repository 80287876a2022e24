# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged segment heaps: their large blocks, and the records that the extras of others name."""

from __future__ import annotations

from typing import List, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import segmentheaps
from tests.support import heaptypes
from tests.support.deep import rounds
from tests.support.heapforms import Records
from tests.support.only import only
from winstacks.heaps.decode.block import Block
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.segmentheap import SegmentHeap, large_blocks, named_records, read_segment_heap
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import text
from winstacks.tracedb.decode.recorded import RecordedStack

BASE = 0x700000
ARCHES = ["x64", "x86"]
Runs = List[Tuple[int, bytes]]


def read(arch: str, runs: Runs) -> Tuple[SegmentHeap, List[Block], List[RecordedStack]]:
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(arch))
    layout = heaptypes.segment_heap(arch)
    heap = read_segment_heap(memory, BASE, layout)
    assert heap is not None
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch])
    return (
        heap,
        list(large_blocks(memory, heap, traces)),
        list(named_records(memory, heap, traces)),
    )


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("tail", [0, segmentheaps.TAIL])
def test_large_blocks(arch: str, tail: int) -> None:
    records, heap = Records(arch), segmentheaps.SegmentHeap(BASE, arch, flags=segmentheaps.CAPTURE | tail)
    named = [records.add() for _ in range(4)]
    sizes = (0x54321, 0x20000, 0x1FFFF, 0x30008)
    users = [heap.large(0x1000000 * (number + 1), sizes[number], named[number]) for number in range(4)]
    unnamed = heap.large(0x8000000, 0x21000)
    found, blocks, _ = read(arch, heap.regions() + records.runs())
    assert not found.damaged
    assert {(block.user, block.size, block.trace) for block in blocks} == {
        *((user, size, records.trace(record)) for user, size, record in zip(users, sizes, named)),
        (unnamed, 0x21000, None),
    }
    assert all((block.size + block.overhead) % 0x1000 == 0 for block in blocks)


@pytest.mark.parametrize("tail", [0, segmentheaps.TAIL])
@pytest.mark.parametrize("unit", [8, 16])
def test_the_extra_of_a_32_bit_block(tail: int, unit: int) -> None:
    """That it is at a multiple of 16 is known of 64 bits only; blocks are at multiples of two pointers."""
    records, heap = Records("x86"), segmentheaps.SegmentHeap(BASE, "x86", flags=segmentheaps.CAPTURE | tail)
    sizes = (0x20001, 0x20008, 0x20010, 0x1FFF9)
    named = [records.add() for _ in sizes]
    for number, (size, record) in enumerate(zip(sizes, named)):
        heap.large(0x1000000 * (number + 1), size, record, unit)
    _, blocks, _ = read("x86", heap.regions() + records.runs())
    assert {block.size: block.trace for block in blocks} == dict(zip(sizes, map(records.trace, named)))


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("before", [0x40, 0x10])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_what_lies_before_the_bytes_of_a_large_block(arch: str, before: int, is_recorded: bool) -> None:
    """A block begins with how many bytes precede the caller's, and these with the same number again."""
    records, heap = Records(arch), segmentheaps.SegmentHeap(BASE, arch)
    record = records.add()
    start = heap.large(0x1000000, 0x20000, record)
    pointer = heap.form.pointer
    page = bytearray(0x1000)
    page[:pointer] = before.to_bytes(pointer, "little")
    again = before - 2 * pointer
    page[again : again + pointer] = (before if is_recorded else 0).to_bytes(pointer, "little")
    _, blocks, _ = read(arch, [*heap.regions(), (start, bytes(page)), *records.runs()])
    block = only(blocks)
    skipped = before if is_recorded else 0
    assert (block.user, block.size, block.trace) == (
        start + skipped,
        0x20000 - skipped,
        records.trace(record),
    )


@pytest.mark.parametrize("arch", ARCHES)
def test_records_that_extras_name(arch: str) -> None:
    records, heap = Records(arch), segmentheaps.SegmentHeap(BASE, arch)
    first, second, third = (records.add() for _ in range(3))
    for base in (0x900000, 0x800000):
        heap.segment(base)
    for address, record in ((0x801230, first), (0x8FFFE0, second), (0x900040, first), (0x90FF80, first)):
        heap.extra(address, record)
    heap.extra(0x802000, third, interceptor=7)
    heap.extra(0x803000, third + 1)
    heap.put(0x804008, heap.form.pointer, third)
    found, _, traces = read(arch, heap.regions() + records.runs())
    assert found.segments == ((0x800000, 0x900000), (0x900000, 0xA00000))
    assert [trace.address for trace in traces] == [first, second, first, first]


@pytest.mark.parametrize("arch", ARCHES)
def test_a_heap_without_interceptor_names_nothing(arch: str) -> None:
    records, heap = Records(arch), segmentheaps.SegmentHeap(BASE, arch, interceptor=0, flags=0)
    heap.segment(0x800000)
    heap.extra(0x800040, records.add(), interceptor=1)
    assert read(arch, heap.regions() + records.runs())[2] == []


@pytest.mark.parametrize("arch", ARCHES)
def test_what_is_kept_in_an_unknown_way_is_not_read(arch: str) -> None:
    heap = segmentheaps.SegmentHeap(BASE, arch)
    heap.large(0x1000000, 0x20000)
    heap.regions()
    form = heap.form
    heap.put(BASE + form.root + form.pointer, 1, 1)
    heap.put(BASE + form.contexts, form.pointer, 0x1234)
    memory = [(base, bytes(data)) for base, data in heap.memory.items()]
    found, blocks, traces = read(arch, memory)
    assert found.damaged
    assert (found.segments, blocks, traces) == ((), [], [])


@pytest.mark.parametrize("arch", ARCHES)
def test_circles_and_wild_numbers(arch: str) -> None:
    heap = segmentheaps.SegmentHeap(BASE, arch)
    for number in range(3):
        heap.large(0x1000000 * (number + 1), 0x20000)
    regions = dict(heap.regions())
    form, data = heap.form, bytearray(regions[BASE])
    root = 0x1000 + form.large_size
    data[0x1000 : 0x1000 + form.pointer] = (BASE + root).to_bytes(form.pointer, "little")
    at = 0x1000 + form.large_address
    data[at : at + 2 * form.pointer] = b"\xff" * form.pointer + bytes(form.pointer)
    regions[BASE] = bytes(data)
    _, blocks, _ = read(arch, list(regions.items()))
    assert [text(block.status) for block in blocks].count("damaged") == 1
    assert len(blocks) == 3


@pytest.mark.parametrize("arch", ARCHES)
def test_only_a_segment_heap_is_one(arch: str) -> None:
    heap = segmentheaps.SegmentHeap(BASE, arch)
    heap.put(BASE + heap.form.signature, 4, 0xEEFFEEFF)
    memory = Memory.over(Extents(heap.regions()), heap.form.pointer)
    assert read_segment_heap(memory, BASE, heaptypes.segment_heap(arch)) is None


@settings(max_examples=rounds(40), deadline=None, derandomize=True)
@given(
    st.sampled_from(ARCHES),
    st.sampled_from([0, segmentheaps.TAIL]),
    st.lists(st.tuples(st.integers(0x1F000, 0x60000), st.booleans()), max_size=20),
    st.sets(st.integers(1, 0xFFE), max_size=12),
)
def test_any_blocks_come_back(arch: str, tail: int, sizes: List[Tuple[int, bool]], places: Set[int]) -> None:
    records, heap = Records(arch), segmentheaps.SegmentHeap(BASE, arch, flags=segmentheaps.CAPTURE | tail)
    expected = set()
    for number, (size, traced) in enumerate(sizes):
        record = records.add() if traced else 0
        user = heap.large(0x1000000 * (number + 1), size, record)
        expected.add((user, size, records.trace(record) if record else None))
    heap.segment(0x800000)
    named = [(0x800000 + 0x100 * place, records.add()) for place in sorted(places)]
    for address, record in named:
        heap.extra(address, record)
    found, blocks, traces = read(arch, heap.regions() + records.runs())
    assert not found.damaged
    assert len(blocks) == len(sizes)
    assert {(block.user, block.size, block.trace) for block in blocks} == expected
    assert [trace.address for trace in traces] == [record for _, record in named]
