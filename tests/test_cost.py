# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the plugins do, counted: no more than is known to be needed, and in proportion to what there is.

A change that makes a plugin do more fails here before a benchmark shows it, on any machine in the same way.
"""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Optional

import pytest
from volatility3.plugins.windows import callstacks, gflags, stacktracedb, tracefindings, traces

from benchmarks import images, stacks
from winstacks.findings import finding
from winstacks.findings.finding import FramePlace
from winstacks.memory import bulk
from winstacks.memory.decode import ranges
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.stacklist.stack import StackRecord

from .support.costcases import CASES, KINDS, Measured
from .support.costs import Opened

_ONCE = ("symbol tables", "process lists", "kernel module lists")
_SLACK = 1.1
_FEW = 8
_PROCESS_COUNTS = (2, 8)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    return Measured(tmp_path_factory.mktemp("costs"))


@pytest.mark.parametrize("name", CASES)
def test_no_more_is_done_than_is_needed(measured: Measured, name: str) -> None:
    counts = measured.cost(name, 2)
    assert counts["rows"] > 0
    done = {kind: counts[kind] for kind in KINDS}
    bounds = dict(zip(KINDS, CASES[name].most))
    assert {kind: done[kind] for kind in KINDS if done[kind] > bounds[kind]} == {}, done


@pytest.mark.parametrize("name", CASES)
def test_cost_grows_as_the_image_does(measured: Measured, name: str) -> None:
    """Each further process, thread or entry costs what the ones before it did, or less."""
    one, two, four = (measured.cost(name, size) for size in (1, 2, 4))
    for kind in one:
        grown, before = four[kind] - two[kind], two[kind] - one[kind]
        # What is read in larger or smaller pieces may change a little at once, by a few pages of bytes.
        few = _FEW * PAGE_SIZE if kind == "bytes" else _FEW
        most = max(2 * before * _SLACK, one[kind] * (_SLACK - 1)) + few
        assert grown <= most, (kind, one, two, four)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_done_once_more_for_more(measured: Measured, name: str) -> None:
    """Tables and lists of the whole image are loaded and walked once, whatever it holds."""
    one, four = measured.cost(name, 1), measured.cost(name, 4)
    assert {kind: four[kind] for kind in _ONCE} == {kind: one[kind] for kind in _ONCE}
    assert max(four["process lists"], four["kernel module lists"]) <= 1


@pytest.mark.parametrize("name", CASES)
def test_progress_is_told(measured: Measured, name: str) -> None:
    texts = measured.opened(name, 2).progress_texts(CASES[name].plugin)
    assert texts
    assert all(texts)


def test_one_process_costs_one_process(measured: Measured) -> None:
    """With --pid nothing but the list of processes is read of the others."""
    few_costs, many_costs = (
        measured.opened("gflags, processes", size).cost(stacktracedb.StackTraceDb, pid=[images.PID])
        for size in (1, 4)
    )
    others = CASES["gflags, processes"].one * 3
    assert few_costs["rows"] == many_costs["rows"]
    for kind in ("layers", "modules", "module lists", "VAD trees"):
        assert few_costs[kind] == many_costs[kind], kind
    # Of each of the others the witnesses of processes read the _EPROCESS, which may lie on two pages, and its
    # entry in PspCidTable.
    assert many_costs["bytes"] - few_costs["bytes"] <= others * 0x2800
    assert many_costs["objects"] - few_costs["objects"] <= others * 8
    assert many_costs["page tables"] - few_costs["page tables"] <= others


def test_what_a_call_does_is_found_out_once(measured: Measured) -> None:
    """Processes that are proven to have the same functions share it; each tests for itself what calls."""
    two, eight = (measured.cost("callstacks, processes", size) for size in (1, 4))
    assert eight["unwind rules"] == two["unwind rules"] > 0
    assert eight["prologues"] == two["prologues"] > 0
    assert eight["call sites"] <= 4 * two["call sites"] * _SLACK
    few_costs, many_costs = (measured.cost("callstacks, threads", size) for size in (2, 4))
    assert many_costs["rows"] > few_costs["rows"] * 2 - _FEW
    assert many_costs["unwind rules"] == few_costs["unwind rules"]
    assert many_costs["call sites"] == few_costs["call sites"]


@pytest.mark.parametrize(
    ("plugin", "most"), [(callstacks.CallStacks, 110), (gflags.GFlags, 19), (traces.StackTraces, 185)]
)
def test_files_are_decoded_once_for_all_processes(plugin: Any, most: int, tmp_path: pathlib.Path) -> None:
    """Processes that load the same files share what was decoded of them: page tables prove it.

    `most` is the page walks of a further process, 10 to 20 % above those of the time when this was written.
    """
    few_costs, many_costs = (
        Opened(stacks.threads(tmp_path, count, 2)).cost(plugin) for count in _PROCESS_COUNTS
    )
    assert few_costs["modules"] == many_costs["modules"] > 0
    further = _PROCESS_COUNTS[1] - _PROCESS_COUNTS[0]
    assert many_costs["page walks"] - few_costs["page walks"] <= most * further
    assert many_costs["symbol tables"] == few_costs["symbol tables"]


def test_what_several_kinds_of_stacks_need_of_a_process_is_read_once(measured: Measured) -> None:
    """windows.traces lists each kind (databases, heaps, locks, threads) in all processes before the next."""
    for size in (1, 4):
        counts = measured.cost("traces, processes", size)
        assert counts["VAD trees"] == counts["loader lists"] == CASES["traces, processes"].one * size


def test_checks_look_at_few_frames_of_recorded_stacks(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that asks for frames outside images is given no others: most stacks have none."""
    places: List[int] = []
    find = finding.find_place

    def counted(stack: StackRecord, number: int) -> Optional[FramePlace]:
        places.append(number)
        return find(stack, number)

    monkeypatch.setattr(finding, "find_place", counted)
    opened = measured.opened("traces, entries", 4)
    opened.cost(tracefindings.TraceFindings)
    frames = 4 * CASES["traces, entries"].one * images.DEPTH
    assert len(places) * 10 < frames


def test_what_is_not_shown_is_not_made(measured: Measured) -> None:
    """With --find the modules of all frames are parsed, but a row is made only of a stack that is found."""
    opened = measured.opened("stacktracedb, entries", 4)
    everything = opened.cost(stacktracedb.StackTraceDb)
    found = opened.cost(stacktracedb.StackTraceDb, find="*!no such function*")
    assert found["rows"] == 1
    assert found["modules"] <= everything["modules"]
    assert found["reads"] <= everything["reads"]


@pytest.mark.parametrize("plugin", [gflags.GFlags, stacktracedb.StackTraceDb])
def test_one_database_is_held_at_a_time(
    plugin: Any, measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of a database is let go before the next one is read."""
    alive: Dict[int, int] = {}
    most: List[int] = []

    class Held(ranges.Extents):
        __slots__ = ()

        def __init__(self, runs: Any) -> None:
            super().__init__(runs)
            size = sum(len(data) for _, data in self.runs)
            # Single pages are the caches of memory views, which are bounded by themselves.
            alive[id(self)] = size if size > PAGE_SIZE else 0
            most.append(sum(alive.values()))

        def __del__(self) -> None:
            alive.pop(id(self), None)

    monkeypatch.setattr(bulk, "Extents", Held)
    peaks = []
    for size in (1, 4):
        most.clear()
        measured.opened("gflags, processes", size).cost(plugin)
        peaks.append(max(most))
    assert peaks[1] <= peaks[0] * _SLACK


def test_volatility_caches_no_database(tmp_path: pathlib.Path) -> None:
    """Volatility keeps the last reads through a layer: none of them depends on how large a database is."""
    kept = []
    for entries in (64, 1024):
        counts = Opened(images.processes(tmp_path, 4, entries)).cost(gflags.GFlags)
        kept.append(counts["cached bytes"])
    assert kept[1] <= kept[0] * _SLACK


@pytest.mark.parametrize("name", ["traces, entries", "traces, processes"])
def test_findings_cost_little_more_than_the_stacks(measured: Measured, name: str) -> None:
    """At most 1.3 times what windows.traces does on the same image."""
    listed = measured.cost(name, 1)
    findings = measured.opened(name, 1).cost(tracefindings.TraceFindings)
    more = {
        kind: (findings[kind], listed[kind]) for kind in KINDS if findings[kind] > 1.3 * listed[kind] + _FEW
    }
    assert more == {}
