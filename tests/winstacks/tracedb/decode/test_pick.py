# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Traces that are looked up by number are those of the whole listing, and little is read for them."""

from __future__ import annotations

from typing import List, Tuple

import pytest
from hypothesis import given, settings

from tests.forge import std_bytes
from tests.forge.std import Std
from tests.support import stddata, stdrandom
from tests.support.deep import rounds
from tests.support.stdrandom import Plan, Regions
from winstacks.memory.decode.memory import Reader
from winstacks.memory.decode.ranges import Extents
from winstacks.tracedb.decode import anomalies, proof
from winstacks.tracedb.decode import database as stdwalk
from winstacks.tracedb.decode.header import Header

BASE = 0x20000000


def opened(regions: Regions, arch: str) -> Tuple[Reader, Header]:
    reader = stddata.reader_of(regions.items())
    header = proof.recover(reader, BASE, stddata.layouts_of(arch).std).header
    assert header is not None
    return reader, header


@settings(max_examples=rounds(60), deadline=None, derandomize=True)
@given(stdrandom.plans())
def test_what_is_sound_is_found(plan: Plan) -> None:
    std = plan.make(BASE)
    reader, header = opened(std_bytes.regions(std), std.arch)
    database = stdwalk.StdDatabase(reader, header)
    picker = anomalies.IndexLookup(reader, header)
    for trace in database.traces():
        if trace.trace_index and not trace.status:
            assert picker.traces([trace.trace_index]) == [trace]


@settings(max_examples=rounds(200), deadline=None, derandomize=True)
@given(stdrandom.plans(words=12, lost=3))
def test_what_is_not_is_left_to_the_whole(plan: Plan) -> None:
    """Whatever the damage is: either the plain trace of the listing, or nothing is said."""
    std = plan.make(BASE)
    reader = stddata.reader_of(plan.damaged(std).items())
    header = proof.recover(reader, BASE, stddata.layouts_of(std.arch).std).header
    if header is None:
        return
    traces = list(stdwalk.StdDatabase(reader, header).traces())
    picker = anomalies.IndexLookup(reader, header)
    for index in {trace.trace_index for trace in traces if trace.trace_index}:
        for trace in picker.traces([index]) or ():
            assert trace in traces


def test_numbers_that_no_slot_has_are_left_to_the_whole() -> None:
    """An entry may claim one of them: `index` is then its status."""
    std = Std("6.1", "x64", BASE)
    std.log([0x7FF000001000, 0x7FF000002000])
    reader, header = opened(std_bytes.regions(std), "x64")
    picker = anomalies.IndexLookup(reader, header)
    for number in (0, 2, -1, 1 << 40):
        assert picker.traces([number]) is None
        assert picker.traces([1, number]) is None
    assert picker.traces(range(1, anomalies.MOST + 2)) is None


@pytest.mark.parametrize("traces", [100, 2000])
def test_little_is_read(traces: int) -> None:
    """As many reads for one trace whatever the database holds."""
    std = Std("6.1", "x64", BASE)
    for number in range(traces):
        std.log([0x7FF000001000 + 16 * number, 0x7FF000002000])
    reader, header = opened(std_bytes.regions(std), "x64")
    lengths: List[int] = []

    def counted(start: int, length: int) -> Extents:
        lengths.append(length)
        return reader(start, length)

    assert anomalies.IndexLookup(counted, header).traces([traces // 2])
    assert sum(lengths) <= 4 * 0x10000
