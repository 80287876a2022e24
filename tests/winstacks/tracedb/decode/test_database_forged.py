# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every layout of a database, written by the forge, comes back; and what the decoders make of odd ones."""

from __future__ import annotations

import struct
from typing import List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge.std import Std
from tests.forge.std_layouts import ALL
from tests.support import stddata
from tests.support.deep import rounds
from tests.support.only import rows_of
from winstacks.memory.decode.status import has_status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.tracedb.decode import backtraces, status
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode import proof as stdproof
from winstacks.tracedb.decode.status import text

layouts = pytest.mark.parametrize("name, arch, kernel", ALL)
LAZY = [case for case in ALL if case[0] == "6.1"]


def logged(std: Std, count: int = 300) -> Std:
    for number in range(count):
        depth = number * 7 % 32 + 1
        std.log([0x10000000 + 0x1000 * number + 4 * place for place in range(depth)])
    return std


@layouts
class TestEveryLayout:
    def test_comes_back(self, name: str, arch: str, kernel: bool) -> None:
        std = logged(Std(name, arch, kernel=kernel))
        std.log([0x10000000])
        database = stddata.open_forged(std)
        assert database.header.layout.name == name
        assert database.header.first_entry == std.first_entry
        assert stddata.shown(database) == stddata.expected(std)
        assert {trace.status for trace in database.traces(carve=True)} == {0}
        assert database.figures() == stdwalk.Figures(300, 300, 0, 0, 0, 0, 0)

    def test_empty_database(self, name: str, arch: str, kernel: bool) -> None:
        std = Std(name, arch, kernel=kernel)
        proof = stdproof.prove(
            stddata.reader_of(std.regions().items()), std.base, stddata.layouts_of(arch).std
        )
        assert proof.header is not None and proof.header.layout.name == name
        database = stddata.open_forged(std)
        assert list(database.traces(carve=True)) == [] and database.status == ()
        assert database.figures() == stdwalk.Figures(0, 0, 0, 0, 0, 0, 0)

    def test_dump_holds_every_numbered_trace(self, name: str, arch: str, kernel: bool) -> None:
        std = logged(Std(name, arch, kernel=kernel), 50)
        database = stddata.open_forged(std)
        layout = stddata.layouts_of(arch).backtraces()
        data = b"".join(backtraces.encode(database.buffer(), database.records(), layout))
        _, records = backtraces.decode(data, layout)
        assert [(record.trace_index, record.trace_count, record.frames()) for record in records] == [
            (entry.index, entry.count, entry.frames) for entry in std.entries()
        ]

    def test_no_layout_proves_what_another_wrote(self, name: str, arch: str, kernel: bool) -> None:
        std = logged(Std(name, arch, kernel=kernel))
        reader = stddata.reader_of(std.regions().items())
        for layout in stddata.layouts_of(arch).std:
            proof = stdproof.prove(reader, std.base, [layout])
            # 5.1 is 5.2 with a lock of its own: without that lock's routines the rest reads alike.
            assert (proof.header is not None) == (
                layout.name == name or (layout.name, name) == ("5.2", "5.1")
            )

    def test_addresses_nearby_prove_nothing(self, name: str, arch: str, kernel: bool) -> None:
        std = logged(Std(name, arch, kernel=kernel))
        reader = stddata.reader_of(std.regions().items())
        for shift in (-0x1000, -16, 16, 0x1000):
            assert stdproof.prove(reader, std.base + shift, stddata.layouts_of(arch).std).header is None

    def test_kernel_counters_do_not_matter(self, name: str, arch: str, kernel: bool) -> None:
        """A kernel does not clear its counters: they may begin with anything."""
        std = logged(Std(name, arch, kernel=kernel))
        regions = std.regions()
        memory = bytearray(regions[std.base])
        for field in ("NumberOfEntriesLookedUp", "NumberOfEntriesAdded"):
            struct.pack_into("<I", memory, std.layout.fields[field][0], 0xFFFFFFFF)
        database = stddata.open_regions({**regions, std.base: bytes(memory)}, std.base, arch)
        assert stddata.shown(database) == stddata.expected(std)
        assert database.header.back_traces == 0xFFFFFFFF
        assert len(list(database.records())) == 300

    @pytest.mark.parametrize("field", ["NumberOfEntriesAdded", "CurrentUpperCommitLimit", "PreCommitted"])
    @pytest.mark.parametrize("change", ["zero", "itself", "more", "nonsense"])
    def test_counters_are_compared_with_the_slots(
        self, name: str, arch: str, kernel: bool, field: str, change: str
    ) -> None:
        """A kernel keeps no limit, and need not clear its counters."""
        std = logged(Std(name, arch, kernel=kernel))
        regions = std.regions()
        memory = bytearray(regions[std.base])
        offset, size = std.layout.fields[field]
        before = int.from_bytes(memory[offset : offset + size], "little")
        values = {"zero": 0, "itself": std.base, "more": before + 1, "nonsense": 0x4141414141414141}
        flag = field == "PreCommitted"
        value = values[change] & (1 if flag else (1 << 8 * size) - 1)
        memory[offset : offset + size] = value.to_bytes(size, "little")
        database = stddata.open_regions({**regions, std.base: bytes(memory)}, std.base, arch)
        assert has_status(database.status, StatusCode.HEADER) == (value != before and (flag or not kernel))


@pytest.mark.parametrize("name, arch, kernel", LAZY)
class TestSeven:
    def test_released_and_lazy(self, name: str, arch: str, kernel: bool) -> None:
        std = Std(name, arch, kernel=kernel)
        traces = [
            [0x500000 + 0x100 * number + place for place in range(number % 32 + 1)] for number in range(200)
        ]
        for number, trace in enumerate(traces):
            std.log(trace, number=number % 3 != 0)
        for number in range(0, 200, 7):
            std.release(traces[number])
        std.log(traces[14] + [1])
        database = stddata.open_forged(std)
        assert stddata.shown(database) == stddata.expected(std)
        carved = [trace for trace in database.traces(carve=True) if trace.status]
        freed = {trace.address: trace for trace in carved if text(trace.status) == "freed"}
        assert sorted(freed) == [trace.va for trace in std.freed()]
        lost = 2 if arch == "x64" else 1
        for entry in std.freed():
            assert freed[entry.va].frames == (None,) * min(lost, entry.depth) + entry.frames[lost:]
            assert (freed[entry.va].trace_index, freed[entry.va].hash) == (entry.index, None)
        unindexed = [trace for trace in carved if text(trace.status) == "unindexed"]
        assert [trace.address for trace in unindexed] == [e.va for e in std.entries() if not e.index]

    def test_saturated(self, name: str, arch: str, kernel: bool) -> None:
        std = Std(name, arch, kernel=kernel, seven=True)
        for _ in range(2100):
            std.log([0x401000, 0x402000])
        one, two = rows_of(2, stddata.open_forged(std).traces())
        assert (one.trace_count, text(one.status), two.trace_count, two.status) == (0x7FF, "saturated", 53, 0)
        assert one.frames == two.frames

    def test_numbers_above_16_bits(self, name: str, arch: str, kernel: bool) -> None:
        std = Std(name, arch, kernel=kernel, reserve=0x400000)
        for number in range(66000):
            std.log([0x10000000 + 0x10 * number])
        database = stddata.open_forged(std)
        assert [trace.trace_index for trace in database.traces()] == list(range(1, 66001))
        assert database.figures().mismatched == 0


@pytest.mark.parametrize("name, arch", [("5.1", "x86"), ("5.2", "x86"), ("5.2", "x64")])
def test_stored_numbers_wrap_in_nt5(name: str, arch: str) -> None:
    std = Std(name, arch, reserve=0x400000)
    for number in range(66000):
        std.log([0x10000000 + 0x10 * number])
    database = stddata.open_forged(std)
    assert [trace.trace_index for trace in database.traces()] == list(range(1, 66001))
    assert database.figures() == stdwalk.Figures(66000, 66000, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("unit", [4, 8, 16])
def test_vista_blocks_of_either_rounding(unit: int) -> None:
    """How 6.0 rounds blocks is not known: all plausible ways are read."""
    std = logged(Std("6.0", "x64" if unit != 4 else "x86", unit=unit))
    assert stddata.shown(stddata.open_forged(std)) == stddata.expected(std)


def _frames(arch: str) -> st.SearchStrategy[List[int]]:
    top = (1 << (64 if arch == "x64" else 32)) - 1
    return st.lists(st.one_of(st.integers(0, top), st.sampled_from([0, 1, top])), min_size=1, max_size=40)


@settings(max_examples=rounds(200), deadline=None)
@given(case=st.sampled_from(ALL), buckets=st.integers(1, 40), data=st.data())
def test_what_is_logged_comes_back(case: Tuple[str, str, bool], buckets: int, data: st.DataObject) -> None:
    name, arch, kernel = case
    std = Std(name, arch, kernel=kernel, reserve=0x40000, bucket_count=buckets)
    traces = data.draw(st.lists(_frames(arch), max_size=30))
    for trace in traces:
        for _ in range(data.draw(st.integers(1, 3))):
            std.log(trace, number=data.draw(st.booleans()))
    if not std.layout.old and traces:
        for trace in data.draw(st.lists(st.sampled_from(traces), max_size=20)):
            if tuple(trace[:32]) in {entry.frames for entry in std.entries()}:
                std.release(trace)
    database = stddata.open_forged(std)
    assert stddata.shown(database) == stddata.expected(std)
    freed = [trace.address for trace in database.traces(carve=True) if trace.status & status.FREED]
    assert sorted(freed) == [trace.va for trace in std.freed()]
    assert database.status == () and database.figures().mismatched == 0


def test_few_traces_of_one_layout_are_not_taken_for_another() -> None:
    """Small databases whose words happen to make sense in an older or later layout."""
    released = Std("6.0", "x64", reserve=0x40000, bucket_count=1)
    for trace in ([0], [1]):
        released.log(trace)
        released.release(trace)
    zeros = Std("5.2", "x64", reserve=0x40000, bucket_count=23)
    zeros.log([0] * 7)
    zeros.log([0])
    for std in (released, zeros):
        database = stddata.open_forged(std)
        assert database.header.layout.name == std.layout.name
        assert stddata.shown(database) == stddata.expected(std)
