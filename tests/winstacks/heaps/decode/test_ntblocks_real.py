# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Heaps that ntdll wrote: every block with its size, its trace and its frames, and who made the heaps."""

from __future__ import annotations

import pathlib
from typing import Dict, List

import pytest

from tests.forge import real_sets
from tests.support import heaptypes
from winstacks.columns.words import VIRTUAL
from winstacks.heaps.decode.block import Block
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.ntblocks import heap_blocks
from winstacks.heaps.decode.ntheap import Heap, read_heap
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING
from winstacks.tracedb.decode.recorded import RecordedStack

LAYOUTS = [heaptypes.heap(name) for name in ("6.2-x64", "6.0-x64")]

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module", params=["7601.24384-x64-heap", "19044.1766-x64-heap"])
def real(request: pytest.FixtureRequest, shared_dir: pathlib.Path) -> real_sets.RealSet:
    return real_sets.load(shared_dir / "real_std" / f"{request.param}.tar.xz")


def memory_of(real: real_sets.RealSet) -> Memory:
    return Memory.over(Extents((region.va, region.data) for region in real.regions), 8)


def read_heaps(real: real_sets.RealSet) -> List[Heap]:
    memory = memory_of(real)
    heaps = [read_heap(memory, heap["heap"], LAYOUTS) for heap in real.truth["heap"]["heaps"]]
    return [heap for heap in heaps if heap is not None]


def read_blocks(real: real_sets.RealSet) -> List[Block]:
    memory = memory_of(real)
    traces = Traces(memory, heaptypes.LOG["x64"], heaptypes.ENTRY["x64"])
    page = [heaptypes.page_heap("x64")]
    items = [block for heap in read_heaps(real) for block in heap_blocks(memory, heap, traces, page)]
    assert all(isinstance(block, Block) for block in items), "a header was lost in an undamaged heap"
    return [block for block in items if isinstance(block, Block)]


MOST_FRAMES = 32
"""No record has more, and many have as many: the rest of their stacks was not kept."""


def test_every_block_is_exact(real: real_sets.RealSet) -> None:
    found = {block.user: block for block in read_blocks(real)}
    for truth in real.truth["heap"]["blocks"]:
        full = len(truth["frames"]) == MOST_FRAMES
        trace = RecordedStack("log", truth["trace_record"], 0, tuple(truth["frames"]), full=full)
        block = found.pop(truth["user"])
        assert (block.heap, block.size, block.trace) == (truth["heap"], truth["size"], trace)
        assert (block.freed, block.status) == (False, NOTHING)
    # What is left is what ntdll allocated for the debug information of the 60 critical sections.
    assert [block.size for block in found.values()] == [0x30] * 60


def test_virtual_blocks_carry_an_index_too(real: real_sets.RealSet) -> None:
    indices = {entry["index"]: entry["frames"] for entry in real.truth["entries"]}
    virtual = [block for block in read_blocks(real) if block.form == VIRTUAL]
    assert len(virtual) == 3
    for block in virtual:
        assert block.trace is not None
        # The two are recorded at different places of one call: they differ in ntdll's own frame only.
        assert indices[block.std_index][-len(block.trace.frames) + 1 :] == list(block.trace.frames[1:])


def test_every_record_that_blocks_name_is_in_the_log(real: real_sets.RealSet) -> None:
    records: Dict[int, List[int]] = {
        record["va"]: record["frames"] for record in real.truth["heap"]["heap_trace_records"]
    }
    for block in read_blocks(real):
        assert block.trace is not None
        assert list(block.trace.frames) == records[block.trace.address]


def test_segments_name_their_creators(real: real_sets.RealSet) -> None:
    entries = {entry["index"]: entry for entry in real.truth["entries"]}
    creators = [segment.creator for heap in read_heaps(real) for segment in heap.segments]
    assert len(creators) == len(set(creators))
    assert all(entries[index]["frames"] for index in creators)


def test_heaps_are_read_whole(real: real_sets.RealSet) -> None:
    heaps = read_heaps(real)
    assert [heap.flags for heap in heaps] == [heap["flags"] for heap in real.truth["heap"]["heaps"]]
    for heap in heaps:
        assert heap.traced
        assert not heap.damaged
        assert not any(segment.damaged for segment in heap.segments)
