# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a symbol, a type or a member that the kernel's table lacks costs: what needs it, and no more.

Each is taken out of the table of one opened image, one at a time: every one that a plugin asks for, as runs
show that note what is asked for and by which functions. Plugins share most of these functions. So each of
them is met without it once, in the smallest plugin that calls it, and in the first image where one does. A
release takes all of them, `.ci/run` each fifth; STACKTRACES_LACKING=all runs every plugin that asks for it
(up to twelve minutes for an image). Types that no plugin asks for are taken all at once, and nothing may
change.
"""

from __future__ import annotations

import collections
import fnmatch
import os
import pathlib
from typing import Any, DefaultDict, Dict, Iterator, List, Sequence, Set, Tuple

import pytest
from volatility3.plugins.windows import callstacks, gflags, tracefindings, traces, trapframes

from tests.forge import context, kernels
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.hostile.undamaged import BUILDERS
from tests.support import deep, grid
from tests.support.grid import Row
from tests.support.lacking import MEMBERS, TYPES, LackingTable, Lost, Output, Requests, Run, Site, chosen
from tests.support.only import only
from winstacks.columns.words import CREATE

_OF_SYMBOLS = "Missing from the kernel's symbols"
"""Begins the warnings that name what is lacking."""

_NEEDED = "ObpObjectTypes"
"""Volatility's pool scans want it to tell types of objects apart."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    known = kernels.load("xp-x86").variant("xp-x86-lacking", drop=[_NEEDED])
    kernel = Kernel(known.table, **known.options())
    kernel.process("app.exe", pid=1000).module("ntdll.dll", exports={"NtClose": 0x1100})
    return context.open_image(kernel.image(), tmp_path_factory.mktemp("lacking"))


@pytest.mark.parametrize(
    ("plugin", "options", "lists"),
    [
        (gflags.GFlags, {"scan_processes": True}, ["processes"]),
        (callstacks.CallStacks, {"scan_processes": True}, ["processes"]),
        (trapframes.TrapFrames, {"scan_threads": True}, ["threads"]),
        (traces.StackTraces, {"scan_processes": True, "scan_threads": True}, ["processes", "threads"]),
        (tracefindings.TraceFindings, {"scan": True}, ["processes", "threads"]),
    ],
)
def test_a_scan_that_cannot_run_costs_nothing_else(
    opened: Opened,
    plugin: Any,
    options: Dict[str, Any],
    lists: List[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    without = [node.row for node in grid.run(opened, plugin)]
    caplog.clear()
    found = [node.row for node in grid.run(opened, plugin, **options)]
    messages = {record.getMessage() for record in caplog.records}
    assert {f"No scan for {name}: the kernel's symbols lack {_NEEDED}" for name in lists} <= messages
    if plugin is not tracefindings.TraceFindings:
        assert found == without


_SCANS = {"scan_processes": True, "scan_threads": True}
_ALL = {**_SCANS, "scan_stacks": True, "processors": True, "carve": True}
RUNS = (
    Run("callstacks", tuple(_SCANS.items())),
    Run("gflags", (("carve", True),)),
    Run("handletraces"),
    Run("heaptraces", (("blocks", True),)),
    Run("locks"),
    Run("minidump", (("dump", True),)),
    Run("objecttraces"),
    Run("stacktracedb", (("carve", True),)),
    Run("tracefindings", (("scan", True),)),
    Run("traceframes"),
    Run("tracegraph"),
    Run("traceimage"),
    Run("tracereport"),
    Run("traces", tuple(_ALL.items())),
    Run("trapframes", (("members", True), ("scan_stacks", True), ("scan_threads", True), ("unwind", True))),
)

IMAGES = ("traced-xp-x86", "sample-win10-x64")
ALWAYS = {IMAGES[0]: tuple(run for run in RUNS if run.plugin == "minidump")}
"""The plugins, by image, that are run for all that they ask for: a dump has a place for each fact, where 0
may be taken for an answer. With the other image that takes too long."""

_UNTOLD = (
    # Which Windows it is, is told by these alone: an older one has none.
    *("KiServiceLinkage", "KiRaiseAssertion", "KiSystemCall64Shadow", "KdVersionBlock"),
    *("MmLastUnloadedDriver", "_OBJECT_REF_STACK_INFO.Tag"),
    # windows.trapframes --members has a row for each member that the table names.
    "_KTRAP_FRAME.*",
)
"""What no warning names."""

_DRAWN = ("tracereport",)
"""Plugins that draw what others list."""


class Known:
    """An image, what each plugin prints of it, and what it asks for."""

    def __init__(self, name: str, folder: pathlib.Path, patch: pytest.MonkeyPatch) -> None:
        self.all = RUNS if os.environ.get("STACKTRACES_LACKING") == "all" else ALWAYS.get(name, ())
        self.folder = folder / "out"
        self.table = LackingTable(context.open_image(BUILDERS[name](), folder))
        self.outputs: Dict[Run, Output] = {}
        self.requests: Dict[Run, Requests] = {}
        for run in RUNS:
            self.outputs[run] = self.table.run(run, self.folder)
            again, self.requests[run] = self.table.requests(run, self.folder, patch)
            assert again == self.outputs[run], run

    def lost(self, met: DefaultDict[Lost, Set[Site]]) -> Iterator[Tuple[Lost, Run, Output]]:
        """What is taken, and what a plugin that asks for it prints then.

        Args:
            met: the functions that were met without it, in another image; this one's are added
        """
        for lost in deep.some(sorted(set().union(*self.requests.values()))):
            some = chosen(self.requests, lost, set() if self.all is RUNS else met[lost])
            met[lost].update(*(sites.get(lost, ()) for sites in self.requests.values()))
            runs = [run for run in RUNS if run in some or (run in self.all and lost in self.requests[run])]
            with self.table.without(lost):
                for run in runs:
                    # Shown where a plugin fails.
                    print(*lost, run.plugin)
                    yield lost, run, self.table.run(run, self.folder)


@pytest.fixture(scope="module", params=IMAGES)
def known(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Known]:
    with pytest.MonkeyPatch.context() as patch:
        # Else no two pages are equal: each has the time at which it was made.
        patch.setattr("winstacks.commands.tracereport._made", list)
        yield Known(request.param, tmp_path_factory.mktemp("known"), pytest.MonkeyPatch())


_IN_DUMPS = {
    "CpuStep": "ProcessorRevision",
    "CpuType": "ProcessorLevel",
    "VendorString": "VendorId",
    "NtMajorVersion": "MajorVersion",
    "NtMinorVersion": "MinorVersion",
    "BasePriority": "Priority",
    "_KPRCB": "ProcessorLevel",
    "_PEB": "CSDVersion",
}
"""What the dump of a process calls a member of the kernel's structures, or the first one of a structure."""


def names(lost: Lost, before: Output, after: Output) -> bool:
    """Whether a warning or a cell that was not there names what is lacking: of a type, what is of it."""
    new = _texts(after) - _texts(before)
    if lost.kind == TYPES and any(_OF_SYMBOLS in text for text in new):
        return True
    own = lost.name.rpartition(".")[2]
    return any(name in text for name in (own, _IN_DUMPS.get(own, own)) for text in new)


def _texts(output: Output) -> Set[str]:
    found, rows = set(output.warnings), list(output.rows)
    while rows:
        for cell in rows.pop().values():
            if isinstance(cell, list):
                rows += cell
            elif isinstance(cell, str):
                found.add(cell)
    return found


def changes(before: Output, after: Output) -> bool:
    """Whether rows or files are other ones."""
    return before.files != after.files or before.rows != after.rows


def test_types_that_nobody_asks_for_are_not_needed(known: Known) -> None:
    for run in RUNS:
        with known.table.only({lost.name for lost in known.requests[run] if lost.kind == TYPES}):
            assert known.table.run(run, known.folder) == known.outputs[run], run


_MET: DefaultDict[Lost, Set[Site]] = collections.defaultdict(set)


def test_what_is_lacking_costs_what_needs_it_and_is_named(known: Known) -> None:
    """No plugin fails, whatever is taken; where that changes rows, a row or a warning names it."""
    count, unnamed = 0, []
    for lost, run, outcome in known.lost(_MET):
        count += 1
        expected = run.plugin in _DRAWN or any(fnmatch.fnmatch(lost.name, pattern) for pattern in _UNTOLD)
        if (
            not expected
            and changes(known.outputs[run], outcome)
            and not names(lost, known.outputs[run], outcome)
        ):
            unnamed.append((lost.name, run.plugin))
    assert len(set().union(*known.requests.values())) > 250
    assert count > len(deep.some(range(100)))
    assert not unnamed


_NAMES = ("_FILE_OBJECT.FileName", "_OBJECT_HEADER_NAME_INFO.Name", "_OBJECT_TYPE.Name", "_ETHREAD.Cid")
_RINGS = ("_HANDLE_TRACE_DEBUG_INFO.TraceDb", "_HANDLE_TRACE_DB_ENTRY.Handle", "_CLIENT_ID.UniqueThread")
_OF_RESOURCES = (
    *("_ERESOURCE.ContentionCount", "_ERESOURCE.Flag", "_ERESOURCE.NumberOfSharedWaiters"),
    *("_ERESOURCE.CreatorBackTraceIndex", "_ERESOURCE.OwnerTable", "_ERESOURCE.OwnerThreads"),
    *("_OWNER_ENTRY.OwnerThread", "_OWNER_ENTRY.TableSize"),
)


def _without(known: Known, plugin: str, members: Sequence[str]) -> Iterator[List[Row]]:
    """Yields the rows of a plugin without each of some members that it asks for, which a warning names."""
    run = only(run for run in RUNS if run.plugin == plugin)
    expected = [lost for lost in (Lost(MEMBERS, member) for member in members) if lost in known.requests[run]]
    assert expected
    for lost in expected:
        with known.table.without(lost):
            output = known.table.run(run, known.folder)
        assert names(lost, known.outputs[run], output)
        yield output.rows


def _rows(known: Known, plugin: str) -> List[Row]:
    return only(outcome.rows for run, outcome in known.outputs.items() if run.plugin == plugin)


def _events(rows: List[Row]) -> List[Tuple[Any, ...]]:
    return [(row["Handle"], row["Event"], row["Sequence"]) for row in rows]


def test_a_member_costs_what_it_holds(known: Known) -> None:
    """Names without what these need; creations without rings; resources without one of their members."""
    events, locks = _rows(known, "handletraces"), _rows(known, "locks")
    for rows in _without(known, "handletraces", _NAMES):
        assert _events(rows) == _events(events)
    for rows in _without(known, "handletraces", _RINGS):
        assert rows == [row for row in events if row["Event"] == CREATE]
    for rows in _without(known, "locks", _OF_RESOURCES):
        assert [row["Lock"] for row in rows] == [row["Lock"] for row in locks]
