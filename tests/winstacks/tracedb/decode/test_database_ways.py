# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ways to the entries of a database agree: carving, indexing, and the dump read again."""

from __future__ import annotations

from typing import List, Set, Tuple

from hypothesis import given, settings

from tests.forge.std import Std
from tests.support import stddata, stdrandom
from tests.support.deep import rounds
from tests.support.stdrandom import PAGE, Plan, Regions
from winstacks.tracedb.decode import backtraces
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode import proof as stdproof
from winstacks.tracedb.decode.anomalies import Trace
from winstacks.tracedb.decode.backtraces import BacktraceRecord, Buffer

BASE = 0x20000000


def unlinked(std: Std, regions: Regions) -> Regions:
    """Memory in which nothing leads to an entry: no index slot is present and every bucket is empty."""
    heads = range(
        std.base + std.layout.buckets, std.base + std.layout.buckets + std.layout.stride * std.bucket_count
    )
    found = {}
    for va, data in regions.items():
        if va + len(data) <= std.upper // PAGE * PAGE:
            low, high = max(heads.start - va, 0), min(heads.stop - va, len(data))
            found[va] = data[:low] + bytes(high - low) + data[high:] if low < high else data
    return found


def whole(traces: List[Trace]) -> Set[Tuple[object, ...]]:
    """What identifies the traces that are all present."""
    return {
        (trace.address, trace.depth, trace.frames)
        for trace in traces
        if None not in trace.frames and trace.depth
    }


def read_again(database: stdwalk.StdDatabase, arch: str) -> Tuple[Buffer, List[BacktraceRecord]]:
    """Writes the dump of a database and takes it apart."""
    layout = stddata.layouts_of(arch).backtraces()
    return backtraces.decode(
        b"".join(backtraces.encode(database.buffer(), database.records(), layout)), layout
    )


@settings(max_examples=rounds(120), deadline=None, derandomize=True)
@given(stdrandom.plans(lost=3, pages=(1, 30)))
def test_carving_finds_every_entry_that_indexing_does(plan: Plan) -> None:
    """Whatever the traces are and whichever pages are lost: buckets and index array are not needed."""
    std = plan.make(BASE)
    regions = plan.damaged(std)
    indexed = whole(list(stddata.open_regions(regions, BASE, std.arch).traces()))
    carved = stddata.open_regions(unlinked(std, regions), BASE, std.arch)
    assert list(carved.traces()) == []
    assert indexed - whole(list(carved.traces(carve=True))) == set()


@settings(max_examples=rounds(100), deadline=None, derandomize=True)
@given(stdrandom.plans(lost=3, pages=(1, 30)))
def test_a_dump_that_is_read_again_holds_the_traces(plan: Plan) -> None:
    """Every numbered trace that is all present, and besides these only what was released."""
    std = plan.make(BASE)
    database = stddata.open_regions(plan.damaged(std), BASE, std.arch)
    buffer, records = read_again(database, std.arch)
    header = database.header
    assert tuple(buffer)[:3] == (header.committed_memory, header.reserved_memory, header.lookups)
    assert [record.trace_index for record in records] == list(range(1, buffer.back_traces + 1))
    listed = {trace.trace_index: trace for trace in database.traces() if trace.trace_index and whole([trace])}
    for index, trace in listed.items():
        record = records[index - 1]
        assert (record.trace_count, record.depth, record.frames()) == (*trace[2:4], trace.frames)
    known = {block.index: block.frames for block in std.blocks}
    for record in records:
        assert record.depth == 0 or record.frames()[3:] == known[record.trace_index][3:]
        assert record.depth == 0 or record.trace_index in listed or not record.trace_count


@settings(max_examples=rounds(60), deadline=None, derandomize=True)
@given(stdrandom.plans(lost=2, words=8, pages=(1, 30)))
def test_a_dump_of_altered_memory_holds_the_traces_without_fault(plan: Plan) -> None:
    std = plan.make(BASE)
    regions = plan.damaged(std)
    proof = stdproof.recover(stddata.reader_of(regions.items()), BASE, stddata.layouts_of(std.arch).std)
    if proof.header is None:
        return
    database = stdwalk.StdDatabase(stddata.reader_of(regions.items()), proof.header)
    _, records = read_again(database, std.arch)
    for trace in database.traces():
        if not trace.status and trace.trace_index:
            record = records[trace.trace_index - 1]
            assert (record.trace_count, record.depth, record.frames()) == (*trace[2:4], trace.frames)
