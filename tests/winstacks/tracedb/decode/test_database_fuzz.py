# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whatever the bytes of a database are: no exception, bounded time, figures that agree with the traces."""

from __future__ import annotations

import functools
import struct
from typing import Dict, List, NamedTuple, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge.std import Std
from tests.forge.std_layouts import ALL
from tests.support import stddata, work
from tests.support.deep import rounds
from winstacks.memory.decode import status as words_of
from winstacks.tracedb.decode import backtraces, status
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode import proof as stdproof

PAGE = 0x1000
MOST_CALLS = 2_500_000
Case = Tuple[str, str, bool]


@functools.lru_cache(maxsize=None)
def forged(case: Case) -> Tuple[Std, Dict[int, bytes]]:
    """A small database with released and unnumbered traces, and its memory."""
    name, arch, kernel = case
    std = Std(name, arch, kernel=kernel, reserve=0x80000, bucket_count=37)
    traces = [[0x400000 + 64 * number + place for place in range(number % 32 + 1)] for number in range(120)]
    for number, trace in enumerate(traces):
        std.log(trace, number=number % 4 != 0)
    for trace in [] if std.layout.old else traces[::9]:
        std.release(trace)
    return std, std.regions()


def words(std: Std) -> st.SearchStrategy[int]:
    """Values that matter: borders, addresses within and around the database, small numbers."""
    entries = [block.va for block in std.blocks]
    near = [std.base, std.lower, std.upper, std.end, std.first_entry, *entries[:5]]
    return st.one_of(
        st.sampled_from([0, 1, 31, 32, 33, 0x7FF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, (1 << 64) - 1]),
        st.builds(lambda address, offset: address + offset, st.sampled_from(near), st.integers(-64, 64)),
        st.sampled_from(entries),
        st.integers(0, (1 << 64) - 1),
    )


class Changes(NamedTuple):
    """What is done to a forged database: words overwritten (address, value), pages taken away (by number)."""

    case: Case
    words: List[Tuple[int, int]]
    dropped: Set[int]

    def regions(self) -> Dict[int, bytes]:
        std, regions = forged(self.case)
        size = std.layout.pointer
        memory = {va: bytearray(data) for va, data in regions.items()}
        for va, value in self.words:
            start = max(address for address in memory if address <= va)
            struct.pack_into("<Q" if size == 8 else "<I", memory[start], va - start, value)
        return {
            va + offset: bytes(data[offset : offset + PAGE])
            for va, data in memory.items()
            for offset in range(0, len(data), PAGE)
            if (va - std.base + offset) // PAGE not in self.dropped
        }


@st.composite
def changes(draw: st.DrawFn) -> Changes:
    case = draw(st.sampled_from(ALL))
    std, _ = forged(case)
    size = std.layout.pointer
    places = (
        (std.base, std.base + std.layout.buckets),
        (std.base + std.layout.buckets, std.first_entry),
        (std.first_entry, std.lower),
        (std.upper, std.end),
    )
    writes = []
    for _ in range(draw(st.integers(1, 12))):
        low, high = draw(st.sampled_from(places))
        va = (low + draw(st.integers(0, high - low - 1))) // size * size
        writes.append((va, draw(words(std)) & (1 << 8 * size) - 1))
    return Changes(case, writes, draw(st.sets(st.integers(0, 8), max_size=2)))


@settings(max_examples=rounds(200), deadline=None)
@given(changes())
def test_damaged_databases(damage: Changes) -> None:
    _, calls = work.calls(lambda: check(damage))
    assert calls < MOST_CALLS


def check(new_changes: Changes) -> None:
    """Asserts what is true of any damaged database."""
    case, regions = new_changes.case, new_changes.regions()
    std, _ = forged(case)
    reader = stddata.reader_of(regions.items())
    proof = stdproof.recover(reader, std.base, stddata.layouts_of(std.arch).std)
    if proof.header is None:
        assert proof.failed
        return
    database = stdwalk.StdDatabase(reader, proof.header)
    agree(database)
    layout = stddata.layouts_of(std.arch).backtraces()
    data = b"".join(backtraces.encode(database.buffer(), database.records(), layout))
    buffer, records = backtraces.decode(data, layout)
    assert buffer.back_traces == len(records)


def agree(database: stdwalk.StdDatabase) -> None:
    """Asserts that the figures are those of the traces."""
    carved = list(database.traces(carve=True))
    listed = list(database.traces())
    statuses = [trace.status for trace in carved]
    assert listed == [trace for trace in carved if not trace.status & (status.FREED | status.ORPHAN)]
    figures = database.figures()
    assert figures.freed == sum(bool(flags & status.FREED) for flags in statuses)
    assert figures.orphans == sum(bool(flags & status.ORPHAN) for flags in statuses)
    assert figures.unindexed == sum(bool(flags & status.UNINDEXED) for flags in statuses)
    wrong = sum(bool(flags & (status.INDEX | status.BUCKET | status.DEPTH)) for flags in statuses)
    assert figures.mismatched == wrong + database.unlisted
    stray = sum(trace.depth is None and not trace.status & status.UNREADABLE for trace in listed)
    assert figures.indexed == sum(bool(trace.trace_index) for trace in listed) - stray
    assert words_of.text(database.status).isprintable()
    for trace in carved:
        assert len(trace.frames) <= 32
        if trace.hash is not None:
            assert trace.hash == sum(frame or 0 for frame in trace.frames) & 0xFFFFFFFF
            assert trace.bucket == trace.hash % database.header.bucket_count


@settings(max_examples=rounds(150), deadline=None)
@given(data=st.binary(max_size=0x3000), arch=st.sampled_from(["x64", "x86"]), repeat=st.integers(1, 30))
def test_any_bytes(data: bytes, arch: str, repeat: int) -> None:
    reader = stddata.reader_of([(0x100000, data * repeat)])
    proof = stdproof.recover(reader, 0x100000, stddata.layouts_of(arch).std)
    if proof.header is not None:
        agree(stdwalk.StdDatabase(reader, proof.header))


FILLS: List[bytes] = [bytes(16), b"A" * 16, struct.pack("<2Q", 0x10000000, 0x10000000)]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("field", ["NextFreeLowerMemory", "NextFreeUpperMemory", "EntryIndexArray"])
def test_a_wrong_watermark_in_much_memory(field: str, fill: bytes) -> None:
    """A kernel's block of 16 MB, all of it present: what is beyond the entries is not taken for entries."""
    std = Std("6.1", "x64", 0x10000000, kernel=True, reserve=0x1000000)
    for number in range(500):
        std.log([0x400000 + 64 * number + place for place in range(number % 32 + 1)])
    memory = bytearray(std.regions()[std.base])
    unused = slice(std.lower - std.base, std.upper - std.base)
    memory[unused] = (fill * (len(memory) // len(fill)))[: unused.stop - unused.start]
    for value in (0, std.first_entry, std.lower - 0x400, std.upper + 0x400, (1 << 64) - 1):
        offset, _ = std.layout.fields[field]
        changed = bytearray(memory)
        struct.pack_into("<Q", changed, offset, value)
        database, calls = work.calls(
            functools.partial(stddata.open_regions, {std.base: bytes(changed)}, std.base, "x64")
        )
        shown, more = work.calls(functools.partial(stddata.shown, database))
        assert [trace for trace in stddata.expected(std) if trace not in shown] == []
        assert calls + more < MOST_CALLS
        agree(database)
