# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structure by damage: the most that each costs is not exceeded in any layout, and is said."""

from __future__ import annotations

import functools
from typing import Dict, List, Tuple

import pytest

from tests.forge.std import Entry
from tests.forge.std_damage import PAGE, Damaged
from tests.forge.std_layouts import ALL
from tests.support import stddata, work
from tests.support.only import only
from tests.support.stddamage import ENTRIES, STDS, TABLE, Damage, Loss, depth_of, entry_of, victim
from winstacks.tracedb.decode import proof as stdproof
from winstacks.tracedb.decode import status
from winstacks.tracedb.decode.anomalies import Trace

MOST_CALLS = 2_000_000

CARVED = status.FREED | status.ORPHAN


def loss(carved: List[Trace], case: Tuple[str, str, bool]) -> Loss:
    """Compares what a database yields with what was logged."""
    listed = {(trace.address, trace.frames) for trace in carved if not trace.status & CARVED}
    whole = {(trace.address, trace.frames) for trace in carved}
    addresses = {trace.address for trace in carved}
    lost = [trace for trace in ENTRIES[case] if (trace.va, trace.frames) not in listed]
    gone = sum((trace.va, trace.frames) not in whole for trace in ENTRIES[case])
    gone += sum(trace.va not in addresses for trace in STDS[case].freed())
    return Loss(sum(bool(trace.index) for trace in lost), sum(not trace.index for trace in lost), gone)


@pytest.mark.parametrize("name", TABLE)
def test_greatest_loss(name: str) -> None:
    damage, limit = TABLE[name]
    for case, std in STDS.items():
        damaged = Damaged(std)
        damage(damaged)
        regions = damaged.regions()
        database, calls = work.calls(functools.partial(stddata.open_regions, regions, std.base, std.arch))
        carved, more = work.calls(functools.partial(list, database.traces(carve=True)))
        assert calls + more < MOST_CALLS, case
        found, most = loss(carved, case), limit(damaged)
        assert all(cost <= allowed for cost, allowed in zip(found, most)), (case, found, most)
        assert database.header.layout.name == std.layout.name
        known = {block.va for block in std.blocks}
        assert [trace for trace in carved if trace.frames and trace.address not in known] == [], case


def _statuses(damage: Damage, case: Tuple[str, str, bool] = ("6.1", "x64", False)) -> Dict[int, str]:
    damaged = Damaged(STDS[case])
    damage(damaged)
    database = stddata.open_regions(damaged.regions(), damaged.std.base, damaged.std.arch)
    plain = (0, status.UNINDEXED)
    return {
        trace.address: status.text(trace.status) for trace in database.traces() if trace.status not in plain
    }


class TestStatus:
    """What the traces say about the damage."""

    @pytest.mark.parametrize("case", ALL)
    def test_depth(self, case: Tuple[str, str, bool]) -> None:
        found = _statuses(depth_of(40), case)
        assert found == {victim(Damaged(STDS[case])).va: "depth"}

    @pytest.mark.parametrize("case", ALL)
    def test_index(self, case: Tuple[str, str, bool]) -> None:
        found = _statuses(entry_of(lambda damaged, entry: damaged.stored_index(entry, 0x7777)), case)
        assert found == {victim(Damaged(STDS[case])).va: "index"}

    @pytest.mark.parametrize("case", ALL)
    def test_frame(self, case: Tuple[str, str, bool]) -> None:
        def change(damaged: Damaged, entry: Entry) -> None:
            damaged.poke(entry.va + damaged.std.layout.head, 0x12345678, 4)

        assert _statuses(entry_of(change), case) == {victim(Damaged(STDS[case])).va: "bucket"}

    def test_a_slot_that_leads_nowhere_is_a_row(self) -> None:
        std = STDS["6.1", "x64", False]
        damaged = Damaged(std)
        # The entry of a numbered trace that nothing else leads to: out of its chain as well.
        entry = victim(damaged)
        damaged.pointer(damaged.slot(entry.index), 0x41414141)
        database = stddata.open_regions(damaged.regions(), std.base, std.arch)
        trace = only(trace for trace in database.traces() if trace.trace_index == entry.index)
        assert (trace.address, status.text(trace.status), trace.frames) == (entry.va, "index", entry.frames)
        damaged.pointer(damaged.head(entry.bucket), 0)
        database = stddata.open_regions(damaged.regions(), std.base, std.arch)
        listed = [trace for trace in database.traces(carve=True) if trace.trace_index == entry.index]
        assert sorted((entry.address, status.text(entry.status)) for entry in listed) == sorted(
            [(0x41414141, "index"), (entry.va, "orphan, index")]
        )

    def test_entry_cut_by_a_page_border(self) -> None:
        std = STDS["6.1", "x64", False]
        damaged = Damaged(std)
        cut = next(
            trace
            for trace in ENTRIES["6.1", "x64", False]
            if trace.index and trace.va // PAGE != (trace.va + 16 + 8 * trace.depth - 1) // PAGE
        )
        border = (cut.va // PAGE + 1) * PAGE
        damaged.drop(border, 1)
        database = stddata.open_regions(damaged.regions(), std.base, std.arch)
        trace = only(trace for trace in database.traces() if trace.address == cut.va)
        kept = (border - cut.va - 16) // 8
        assert trace.frames == cut.frames[:kept] + (None,) * (cut.depth - kept)
        assert (status.text(trace.status), trace.hash, trace.depth) == ("unreadable", None, cut.depth)
        assert database.figures().unreadable == PAGE

    def test_entry_that_is_not_there_at_all(self) -> None:
        damaged = Damaged(STDS["6.1", "x64", False])
        entry = victim(damaged)
        damaged.drop(entry.va - 0x400, 0x800)
        database = stddata.open_regions(damaged.regions(), damaged.std.base, "x64")
        trace = only(trace for trace in database.traces() if trace.address == entry.va)
        assert tuple(trace)[:7] == (entry.index, entry.va, None, None, None, None, ())
        assert status.text(trace.status) == "unreadable"


class TestDumpOfDamaged:
    def test_what_cannot_be_read_is_zero_but_for_its_number(self) -> None:
        std = STDS["6.1", "x64", False]
        damaged = Damaged(std)
        whole = list(stddata.open_forged(std).records())
        damaged.drop(victim(damaged).va, 1)
        records = list(stddata.open_regions(damaged.regions(), std.base, "x64").records())
        assert len(records) == len(whole) == len(std.slots)
        changed = [(new, old) for new, old in zip(records, whole) if new != old]
        assert 10 < len(changed) < 80
        assert all(tuple(new) == (0, old.trace_index, 0, b"") for new, old in changed)

    def test_lost_slots_are_filled_from_the_entries(self) -> None:
        std = STDS["6.1", "x64", False]
        damaged = Damaged(std)
        damaged.drop(std.upper, std.end - std.upper)
        records = list(stddata.open_regions(damaged.regions(), std.base, "x64").records())
        whole = list(stddata.open_forged(std).records())
        released = {trace.index for trace in std.freed()}
        assert [trace for trace in records if trace.trace_index not in released] == [
            trace for trace in whole if trace.trace_index not in released
        ]

    @pytest.mark.parametrize("arch", ["x86", "x64"])
    def test_a_number_that_nobody_handed_out_makes_no_records(self, arch: str) -> None:
        """An entry's own number counts where its slot is lost: 2^32 - 1 of them would be a terabyte."""
        std = STDS["6.1", arch, False]
        damaged = Damaged(std)
        damaged.drop(std.upper, std.end - std.upper)
        damaged.poke(victim(damaged).va + std.layout.pointer + 2, 0xFFFFFFFF, 4)
        database = stddata.open_regions(damaged.regions(), std.base, arch)
        assert database.buffer().back_traces == len(list(database.records())) == len(std.slots)


def test_nothing_to_be_had() -> None:
    layouts = stddata.layouts_of("x64").std
    for data in (bytes(0x100000), b"\xff" * 0x100000, bytes(range(256)) * 0x1000, b""):
        reader = stddata.reader_of([(0x10000, data)])
        proof = stdproof.recover(reader, 0x10000, layouts)
        assert proof.header is None and proof.failed
