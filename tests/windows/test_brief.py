# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""--brief in Volatility's own renderers: no line is wider than the terminal, and JSON is whole."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List, Mapping

import pytest
from volatility3.cli import text_renderer
from volatility3.framework import exceptions
from volatility3.plugins.windows import traceframes, traceimage, traces, tracewaits

from tests.forge import context, sample, vol
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.obj import Obj
from tests.forge.process import Process
from tests.windows import test_columns
from tests.windows.test_columns import STACKS
from winstacks.columns.tables import BRIEF, BRIEF_SPARE, TABLES
from winstacks.columns.words import CHAIN_ENDS

WIDTH = 120
CLASSES: Dict[str, Any] = {
    **test_columns.CLASSES,
    "traces": traces.StackTraces,
    "traceframes": traceframes.TraceFrames,
    "traceimage": traceimage.TraceImage,
    "tracewaits": tracewaits.TraceWaits,
}
PROCESS, MODULE, FUNCTION = 14, 255, 4096
"""The longest names of a process (_EPROCESS.ImageFileName ends with a 0), a module's file and a function."""

OPTIONS: List[Any] = [
    *((name, {}) for name in sorted(CLASSES)),
    *((name, {"fold": True}) for name in STACKS),
    ("trapframes", {"members": True, "scan_stacks": True, "processors": True}),
    ("heaptraces", {"blocks": True}),
    ("callstacks", {"unique": True}),
]


def longest(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Builds the sample with the longest names that Windows allows."""
    in_kernel, in_process, at = Kernel.module, Process.module, Module.at
    make, text = Kernel.process, Obj.text

    def long(name: str) -> str:
        return name.ljust(FUNCTION, "_")

    def module(original: Any, self: Any, name: str, *places: Any, **more: Any) -> Any:
        known: Mapping[str, int] = {**(more.get("exports") or {}), **(more.get("symbols") or {})}
        more["symbols"] = {long(name): rva for name, rva in known.items()}
        return original(self, name, *places, **more)

    def place(self: Module, where: Any) -> int:
        named = isinstance(where, str) and self.symbols is not None and long(where) in self.symbols.symbols
        return at(self, long(where) if named else where)

    def process(self: Kernel, name: str, *places: Any, **more: Any) -> Process:
        return make(self, name.ljust(PROCESS, "p"), *places, **more)

    def written(self: Obj, member: str, value: str) -> None:
        stem, dot, kind = value.rpartition(".")
        if member == "BaseDllName" and stem not in ("ntdll", "ntoskrnl"):
            value = stem.ljust(MODULE - len(dot + kind), "m") + dot + kind
        text(self, member, value)

    monkeypatch.setattr(Kernel, "module", lambda self, *a, **k: module(in_kernel, self, *a, **k))
    monkeypatch.setattr(Process, "module", lambda self, *a, **k: module(in_process, self, *a, **k))
    monkeypatch.setattr(Module, "at", place)
    monkeypatch.setattr(Kernel, "process", process)
    monkeypatch.setattr(Obj, "text", written)
    return sample.build()


@pytest.fixture(scope="module", params=["sample", "longest"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    with pytest.MonkeyPatch.context() as monkeypatch:
        kernel = longest(monkeypatch) if request.param == "longest" else sample.build()
    return context.open_image(kernel.image(), tmp_path_factory.mktemp(request.param))


def shown(
    opened: Opened, renderer: Any, name: str, capsys: pytest.CaptureFixture[str], **options: Any
) -> str:
    # Else --brief has one row for each reason why checks did not run.
    whole = {"unchecked": True} if name == "tracefindings" else {}
    renderer().render(opened.construct(CLASSES[name], **{**whole, **options}).run())
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, WIDTH, 200])
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_no_line_is_wider_than_the_terminal(
    name: str,
    options: Dict[str, Any],
    width: int,
    opened: Opened,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = shown(opened, text_renderer.PrettyTextRenderer, name, capsys, brief=True, **options).splitlines()
    assert len(lines) > (1 if name == "traceimage" else 2)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("name", ["traces", "tracewaits", "waits"])
def test_a_narrow_terminal_loses_the_columns_of_the_list_first(
    name: str, opened: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(opened, text_renderer.PrettyTextRenderer, name, capsys, brief=True).splitlines()
    kept = [word.strip() for word in lines[0].split("|")]
    gone = [column for column in BRIEF[name] if column not in kept]
    first = BRIEF_SPARE[name][: len(gone)]
    assert first and set(first) <= set(gone)


def test_the_explanation_of_a_check_is_wrapped(
    opened: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(opened, text_renderer.PrettyTextRenderer, "tracefindings", capsys, explain="hidden")
    assert max(map(len, lines.splitlines())) <= 80
    (row, *_) = json.loads(
        shown(opened, text_renderer.JsonRenderer, "tracefindings", capsys, explain="hidden")
    )
    assert "\n" not in row["Explanation"]


@pytest.mark.parametrize("renderer", [text_renderer.QuickTextRenderer, text_renderer.CSVRenderer])
@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_only_the_pretty_renderer_gets_cells_of_several_lines(
    name: str, options: Dict[str, Any], renderer: Any, opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = flat(json.loads(shown(opened, text_renderer.JsonRenderer, name, capsys, brief=True, **options)))
    lines = shown(opened, renderer, name, capsys, brief=True, **options).strip().splitlines()
    lines = [line for line in lines if line]
    assert len(lines) == len(rows) + 1


def flat(rows: List[Any]) -> List[Any]:
    return [entry for row in rows for entry in [row, *flat(row["__children"])]]


def of_brief(name: str, rows: List[Any]) -> List[Any]:
    """Returns the rows that --brief shows, in its order.

    That of `waits` leaves out frames, has the worst ends of chains first, and says in Evidence which code
    asked for the wait. That of `locks` leaves out the evidence of waiting threads.
    """
    if name == "locks":
        return [{**row, "Evidence": None} if row["OwnerRole"] == "waiter" else row for row in rows]
    if name != "waits":
        return rows
    threads = [row for row in rows if row["Frame"] is None]
    asked = [{**row, "Evidence": f"in {row['Symbol']}"} if row["TID"] is not None else row for row in threads]
    return sorted(asked, key=lambda row: (row["TID"] is not None, list(CHAIN_ENDS).index(row["ChainEnd"])))


@pytest.mark.parametrize(("name", "options"), OPTIONS, ids=str)
def test_json_is_not_cut(
    name: str, options: Dict[str, Any], opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    json_renderer = text_renderer.JsonRenderer
    everything = of_brief(name, flat(json.loads(shown(opened, json_renderer, name, capsys, **options))))
    rows = flat(json.loads(shown(opened, json_renderer, name, capsys, brief=True, **options)))
    assert set(rows[0]) - {"__children"} <= {column.name for column in TABLES[name]}
    assert len(set(rows[0])) < len(set(everything[0]))
    assert rows == [
        {**{column: row[column] for column in rows[0]}, "__children": brief["__children"]}
        for row, brief in zip(everything, rows)
    ]
    assert len(rows) == len(everything)


def test_the_longest_names_are_in_the_image(
    opened: Opened, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    rows = flat(json.loads(shown(opened, text_renderer.JsonRenderer, "stacktracedb", capsys)))
    symbols = [row["Symbol"] for row in rows if row["Symbol"]]
    modules = [len(symbol.partition("!")[0]) for symbol in symbols]
    if "[longest" in request.node.name:
        assert max(len(row["Process"]) for row in rows) == PROCESS
        assert max(modules) == MODULE - len(".dll")
        assert max(map(len, symbols)) > MODULE + 100


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_status_is_whole(name: str, opened: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    rows = of_brief(name, flat(json.loads(shown(opened, text_renderer.JsonRenderer, name, capsys))))
    table = shown(opened, text_renderer.PrettyTextRenderer, name, capsys, brief=True).splitlines()
    found: List[str] = []
    for line in table[1:]:
        begin, *_, status = line.split(" | ")
        if begin.strip():
            found.append(status.strip())
        else:
            found[-1] = f"{found[-1]} {status.strip()}".strip()
    assert found == [row["Status"] for row in rows]


def brief_rows(
    opened: Opened, name: str, capsys: pytest.CaptureFixture[str], **options: Any
) -> List[List[str]]:
    """Returns the cells that the pretty renderer shows of the rows of --brief, lines of a cell joined."""
    found: List[List[str]] = []
    table = shown(opened, text_renderer.PrettyTextRenderer, name, capsys, brief=True, **options)
    for line in table.splitlines():
        begin, *cells = (cell.strip() for cell in line.split(" | "))
        if begin or not found:
            found.append(cells)
        else:
            found[-1] = [f"{old} {new}".strip() for old, new in zip(found[-1], cells)]
    return found


ANSWERS = {
    "callstacks": (("unbacked",), ["<private> 0x1d2b00002c4"]),
    "handletraces": (("unbacked",), ["legacy.exe Pid 5120", "<private> 0x1d2b0000233"]),
    "heaptraces": ((), ["98304", "24", "updater!load_settings+0x47"]),
    "locks": (("contended",), ["0xe0001000c8f0", "3", "updater.exe", "4316", "6208"]),
    "stacktracedb": (("unbacked",), ["<no-module> 0xab8009991088"]),
    "trapframes": ((), ["interrupt", "<private> 0x1d2b00002c4", "0x1d2b00002c4", "0xe100008d48"]),
    "tracefindings": (
        (),
        [
            *("unbacked", "certain", "updater.exe", "<private> 0x1d2b00002c4"),
            "nothing known in this process",
            *("VAD 0x1d2b0000000 PAGE_EXECUTE_READWRITE", "handle 0x8c to Process legacy.exe Pid 5120"),
            *("page not in memory; 2 stacks", "the kernel's code: there is no second copy of it"),
        ],
    ),
    "traces": (
        (),
        ["<private> 0x1d2b00002c4; …"],
    ),
    "traceframes": ((), ["<no-module> 0xffffab8009991088"]),
    "traceimage": ((), ["19041", "13"]),
}
"""What a first look at the sample must show, by plugin, with switches that it is given."""


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_answer_is_on_the_screen(
    name: str, opened: Opened, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    if "[longest" in request.node.name:
        pytest.skip("the names of the sample are others there")
    switches, answers = ANSWERS[name]
    rows = brief_rows(opened, name, capsys, **dict.fromkeys(switches, True))
    # A word that is wider than its column is broken behind `_` and before a capital letter.
    cells = {cell.replace(" ", "") for row in rows for cell in row}
    assert {answer.replace(" ", "") for answer in answers} <= cells


def test_columns_are_shown_in_the_order_of_the_option(
    opened: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = flat(json.loads(shown(opened, text_renderer.JsonRenderer, "locks", capsys)))
    given = ["OwnerTID,lock", " Status"]
    rows = flat(json.loads(shown(opened, text_renderer.JsonRenderer, "locks", capsys, columns=given)))
    names = ("OwnerTID", "Lock", "Status")
    assert [{name: row[name] for name in row if name != "__children"} for row in rows] == [
        {name: row[name] for name in names} for row in everything
    ]
    for options in ({}, {"brief": True}):
        table = shown(opened, text_renderer.PrettyTextRenderer, "locks", capsys, columns=given, **options)
        assert [cell.strip() for cell in table.splitlines()[0].split("|")] == [
            "",
            "OwnerTID",
            "Lock",
            "Status",
        ]


@pytest.mark.parametrize("name", ["locks", "traces"])
def test_an_unknown_column_lists_those_that_there_are(name: str, opened: Opened) -> None:
    with pytest.raises(exceptions.RenderException, match=r"no column 'Foo'; choose from .*Status") as raised:
        opened.construct(CLASSES[name], columns=["PID,Foo"]).run()
    assert all(column.name in str(raised.value) for column in TABLES[name])


@pytest.mark.cli
def test_an_unknown_column_is_refused_before_the_image_is_opened(tmp_path: pathlib.Path) -> None:
    (tmp_path / "symbols").mkdir()
    missing = tmp_path / "missing.dmp"
    refused = vol.run(missing, "windows.locks", "--columns", "PID,Foo", symbols=tmp_path / "symbols")
    assert refused.returncode == 2
    assert "argument --columns: there is no column 'Foo'; choose from PID, Process" in refused.stderr


@pytest.mark.cli
def test_the_command_line(tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    file, symbols = image.save(tmp_path / "a.dmp"), image.install(tmp_path / "symbols")
    options = ("windows.callstacks", "--brief", "--pid", "4312")
    table = vol.run(file, *options, symbols=symbols, renderer="pretty")
    lines = [line for line in table.stdout.splitlines() if " | " in line]
    rows_shown = [line for line in lines if line.startswith("*")]
    assert table.returncode == 0, table.stderr
    assert [word.strip() for word in lines[0].split("|")] == ["", *BRIEF["callstacks"]]
    assert max(map(len, lines)) <= WIDTH
    rows = vol.run(file, *options, symbols=symbols).flat
    assert len(rows) == len(rows_shown)
    assert all(row["PID"] == 4312 for row in rows)
