# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""--workers: several processes give the rows, warnings and files that one process gives."""

from __future__ import annotations

import logging
import os
import pathlib
import signal
from typing import Any, Dict, Iterator, List, Tuple
from unittest import mock

import pytest
from volatility3.framework import constants
from volatility3.plugins.windows import traceframes, tracegraph, traceimage, tracereport, traces, tracewaits

from tests.forge import context, sample, sampledeadlock
from tests.forge.context import Opened
from tests.support import grid, pagedata
from tests.support.only import only
from tests.windows.test_columns import CLASSES
from winstacks.columns.words import DEADLOCK
from winstacks.commands import callstacks as callstacks_command
from winstacks.commands import gflags as gflags_command
from winstacks.commands import tracereport as tracereport_command
from winstacks.commands import trapframes as trapframes_command
from winstacks.commands import waits as waits_command
from winstacks.memory.decode.structure import MissingMemberError
from winstacks.memory.workers import can_fork, processors
from winstacks.rows import command as command_module
from winstacks.rows import divided
from winstacks.traps.lister import ThreadFrames
from winstacks.waits.lister import WaitLister

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not fork")

SPOOLER = 6200
"""Process ID of the sample's process with a deadlock."""
FLAT = {
    "traces": traces.StackTraces,
    "traceframes": traceframes.TraceFrames,
    "traceimage": traceimage.TraceImage,
    "tracewaits": tracewaits.TraceWaits,
}
PLUGINS: Dict[str, Any] = {
    **{
        name: CLASSES[name]
        for name in (
            "callstacks",
            "gflags",
            "heaptraces",
            "stacktracedb",
            "tracefindings",
            "trapframes",
            "waits",
        )
    },
    **FLAT,
}
OPTIONS: List[Tuple[str, Dict[str, Any]]] = [
    *((name, {}) for name in PLUGINS),
    ("callstacks", {"fold": True, "candidates": True}),
    ("callstacks", {"find": "nt!*", "brief": True}),
    ("callstacks", {"tid": [0xFFFF]}),
    ("heaptraces", {"blocks": True}),
    ("stacktracedb", {"carve": True, "fold": True}),
    ("stacktracedb", {"index": [1, 77]}),
    ("stacktracedb", {"find": "no_such_name"}),
    ("tracefindings", {"unchecked": True, "summary": True}),
    ("traces", {"kinds": ["user", "std"], "unbacked": True}),
    ("traces", {"scan_threads": True, "scan_stacks": True, "processors": True}),
    ("traceimage", {"pid": [4]}),
    ("trapframes", {"members": True, "unwind": True}),
    ("trapframes", {"tid": [0xFFFF]}),
    ("waits", {"brief": True}),
    ("waits", {"chains": True, "fold": True}),
    ("waits", {"find": "*!Nt*"}),
    ("waits", {"tid": [0xFFFF]}),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("divided"))


@pytest.fixture
def log() -> Iterator[List[str]]:
    """The messages of warnings and above that reach the handlers."""
    messages: List[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(f"{record.levelname} {record.name}: {record.getMessage()}")

    handler = Handler(logging.WARNING)
    logging.getLogger().addHandler(handler)
    yield messages
    logging.getLogger().removeHandler(handler)


def _run(opened: Opened, name: str, log: List[str], **options: Any) -> Tuple[List[grid.Node], List[str]]:
    log.clear()
    rows = grid.run(opened, PLUGINS[name], **options)
    return rows, list(log)


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_rows_and_warnings_are_those_of_one_process(
    name: str, options: Dict[str, Any], opened: Opened, log: List[str]
) -> None:
    one = _run(opened, name, log, **options)
    assert one[0] or one[1]
    forks: List[int] = []
    fork = os.fork

    def counted() -> int:
        pid = fork()
        forks.append(pid)
        return pid

    with mock.patch.object(os, "fork", counted):
        for workers in (2, 8):
            assert _run(opened, name, log, workers=workers, **options) == one
    assert bool(one[0]) == (len(forks) >= 4)


@pytest.mark.parametrize(
    ("plugin", "options", "file"),
    [
        (tracegraph.TraceGraph, {"weight": "count", "format": ["folded"]}, "tracegraph.folded"),
        (tracegraph.TraceGraph, {"weight": "bytes", "format": ["html"]}, "tracegraph.html"),
        (tracegraph.TraceGraph, {"weight": "threads", "format": ["html"]}, "tracegraph.html"),
        (tracereport.TraceReport, {}, "tracereport.html"),
        (tracereport.TraceReport, {"pid": [SPOOLER]}, "tracereport.html"),
        (tracereport.TraceReport, {"scan": True}, "tracereport.html"),
    ],
)
def test_files_are_those_of_one_process(
    plugin: Any,
    options: Dict[str, Any],
    file: str,
    opened: Opened,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The head of a report says when it was made.
    monkeypatch.setattr(tracereport_command, "_made", list)
    written = []
    for workers in (1, 2, 8):
        folder = tmp_path / str(workers)
        folder.mkdir()
        rows = grid.rendered(opened, plugin, folder, workers=workers, **options)
        written.append((rows, (folder / file).read_bytes()))
    assert written[0][0]
    assert written[1:] == written[:1] * 2


def test_volatility_s_own_option_asks_for_workers(opened: Opened) -> None:
    image = opened.image
    assert divided.workers_wanted(image, None) == 0
    assert divided.workers_wanted(image, 1) == 0
    assert divided.workers_wanted(image, 3) == 3
    assert divided.workers_wanted(image, 0) == processors()
    with mock.patch.object(constants, "PARALLELISM", constants.Parallelism.Multiprocessing):
        assert divided.workers_wanted(image, None) == processors()
        assert divided.workers_wanted(image, 1) == 0
    with mock.patch.object(constants, "PARALLELISM", constants.Parallelism.Threading):
        assert divided.workers_wanted(image, None) == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [("can_fork", divided.NO_FORK), ("unknown_layers", "cannot open")],
)
def test_where_no_process_can_be_forked_one_reads_all(
    name: str, reason: str, opened: Opened, log: List[str]
) -> None:
    one = _run(opened, "gflags", log)[0]
    answer = {"can_fork": False, "unknown_layers": "device"}[name]
    with mock.patch.object(divided, name, lambda *_: answer):
        rows, told = _run(opened, "gflags", log, workers=2)
    assert rows == one
    assert any("one process reads all" in line for line in told)


def _dying(method: Any, fatal: int) -> Any:
    """A method that ends its process when it comes to the step of a process ID."""

    def items(self: Any, step: Any) -> Any:
        if self.space(step).pid == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, step)

    return items


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("gflags", gflags_command.GFlags),
        ("callstacks", callstacks_command.CallStacks),
        ("trapframes", trapframes_command.TrapFrames),
    ],
)
@pytest.mark.parametrize("workers", [2, 8])
def test_an_ended_worker_costs_its_process_and_says_so(
    name: str, command: Any, workers: int, opened: Opened, log: List[str]
) -> None:
    one, _ = _run(opened, name, log)
    pids = list(dict.fromkeys(node.row["PID"] for node in one))
    fatal = pids[len(pids) // 2]
    with mock.patch.object(command, "items", _dying(command.items, fatal)):
        rows, told = _run(opened, name, log, workers=workers)
    assert [node for node in rows if node.row["PID"] != fatal] == [
        node for node in one if node.row["PID"] != fatal
    ]
    gap = only(node.row for node in rows if node.row["PID"] == fatal)
    assert gap["Status"] == "worker ended"
    assert any(f"process {fatal} ended (signal 9): rows are missing" in line for line in told)


def test_an_ended_worker_costs_stacks_that_findings_and_tables_count(opened: Opened, log: List[str]) -> None:
    whole = {node.row["TraceId"]: node.row for node in _run(opened, "traces", log)[0]}
    from winstacks.stacklist.recorded import RecordedStacks

    listed = RecordedStacks.of_heaps

    def dying(self: Any, space: Any, totals: Any) -> Any:
        if space.pid == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return listed(self, space, totals)

    fatal = next(row["PID"] for row in whole.values() if row["Kind"] == "heap")
    with mock.patch.object(RecordedStacks, "of_heaps", dying):
        rows = {node.row["TraceId"]: node.row for node in _run(opened, "traces", log, workers=2)[0]}
        assert any("the stacks of kind heap of process" in line for line in log)
        findings = _run(opened, "tracefindings", log, workers=2, unchecked=True)[0]
    lost = [row for key, row in rows.items() if key not in whole]
    assert {(row["PID"], row["Kind"], row["Status"]) for row in lost} == {(fatal, "heap", "worker ended")}
    gone = [row for key, row in whole.items() if key not in rows]
    assert {(row["PID"], row["Kind"]) for row in gone} == {(fatal, "heap")}
    reasons = [node.row for node in findings if node.row["Finding"] == "lost_stacks"]
    assert any(row["PID"] == fatal and "worker ended" in row["Evidence"] for row in reasons)


def test_an_ended_worker_costs_waits_of_its_process(opened: Opened, log: List[str]) -> None:
    one, _ = _run(opened, "waits", log)
    read = waits_command.WaitChains._read

    def dying(self: Any, threads: Any) -> Any:
        if threads[0].space.pid == SPOOLER:
            os.kill(os.getpid(), signal.SIGKILL)
        return read(self, threads)

    with mock.patch.object(waits_command.WaitChains, "_read", dying):
        rows, told = _run(opened, "waits", log, workers=2)
    assert {node.row["WaitsFor"] for node in one if node.row["PID"] == SPOOLER} >= {DEADLOCK}
    gap = only(node.row for node in rows if node.row["PID"] == SPOOLER)
    assert (gap["WaitsFor"], gap["Status"]) == (None, "worker ended")
    assert [node for node in rows if node.row["PID"] != SPOOLER] == [
        node for node in one if node.row["PID"] != SPOOLER
    ]
    assert any(f"process {SPOOLER} ended (signal 9): rows are missing" in line for line in told)


@pytest.mark.parametrize(
    ("name", "lister", "method"),
    [("waits", WaitLister, "of_process"), ("trapframes", ThreadFrames, "thread_states")],
)
def test_a_missing_member_ends_no_worker(
    name: str, lister: Any, method: str, opened: Opened, log: List[str]
) -> None:
    """Without it there is no row, and one warning, whoever reads the processes."""

    def lacking(*_: Any) -> Any:
        raise MissingMemberError("_KTHREAD", "WaitBlockList")

    with mock.patch.object(lister, method, lacking):
        one = _run(opened, name, log)
        assert not one[0]
        assert any("WaitBlockList" in line for line in one[1])
        assert _run(opened, name, log, workers=2) == one


@pytest.mark.parametrize("method", ["read", "_hold"])
def test_an_ended_worker_costs_a_part_of_the_report(
    method: str, opened: Opened, log: List[str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page says that the stacks of a process were lost, or that locks may be missing."""
    pages = []
    for folder in ("whole", "less"):
        (tmp_path / folder).mkdir()
        grid.rendered(opened, tracereport.TraceReport, tmp_path / folder, workers=2)
        pages.append(pagedata.data(tmp_path / folder / "tracereport.html"))
        command = tracereport_command.TraceReport
        monkeypatch.setattr(command, method, _killed_at(getattr(command, method), SPOOLER))
    whole, less = pages
    assert any(f"process {SPOOLER} ended (signal 9): rows are missing" in line for line in log)
    if method == "_hold":
        assert less["locks"]["gaps"] == whole["locks"]["gaps"] + 1
        assert less["threads"] == whole["threads"]
    else:
        assert not less["locks"]["cycles"] and whole["locks"]["cycles"]
        mine = {thread["status"] for thread in less["threads"] if f"({SPOOLER})" in thread["process"]}
        assert mine <= {"worker ended"}
        reasons = [reason for _, reason in less["findings"]["unchecked"] if str(SPOOLER) in reason]
        assert any("worker ended" in reason for reason in reasons)


def _killed_at(method: Any, fatal: int) -> Any:
    """A method that ends its process when it gets the portion, or the address space, of a process ID."""

    def killed(self: Any, which: Any) -> Any:
        if getattr(which, "space", which).pid == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, which)

    return killed


def test_no_worker_is_forked_where_options_need_one_process(opened: Opened, log: List[str]) -> None:
    with mock.patch.object(command_module, "Divided", side_effect=AssertionError):
        for name, options in (
            ("callstacks", {"unique": True}),
            ("heaptraces", {"summary": True}),
            ("gflags", {"workers": 1}),
            ("tracewaits", {"tid": [sampledeadlock.FIRST]}),
            ("trapframes", {"scan_stacks": True}),
            ("trapframes", {"scan_threads": True}),
            ("trapframes", {"processors": True}),
        ):
            assert _run(opened, name, log, **{"workers": 2, **options})[0]
        with pytest.raises(AssertionError):
            _run(opened, "gflags", log, workers=2)
