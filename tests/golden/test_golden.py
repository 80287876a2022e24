# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The plugins print and write what is kept, and whoever compares finds what has changed."""

from __future__ import annotations

import inspect
import json
import pathlib
from typing import Any, Iterable, Iterator, List, Set, Tuple

import pytest
import volatility3.plugins
from volatility3 import framework

from tests.conftest import ROOT
from tests.golden import __main__ as command
from tests.golden import outputs
from tests.golden.cases import CASES, Case, Keeps
from tests.golden.compare import MOST_LINES, differences
from tests.golden.matrix import PLUGINS
from tests.golden.outputs import Run
from winstacks.columns.dictionary import ADDRESS, HEXSTR
from winstacks.columns.tables import TABLES
from winstacks.columns.words import HANDLE
from winstacks.memory.decode.machine import Machine

PARAMETERS = [
    pytest.param(name, marks=[pytest.mark.cli, *([pytest.mark.shared] if case.needs else [])])
    for name, case in CASES.items()
]
SAMPLE = "sample-win10-x64"
CHILD = {"Frame": 0, "Symbol": "nt!KiSwapContext+0x76", "__children": []}
ROW = {"PID": 4312, "Symbol": None, "__children": [CHILD, dict(CHILD, Frame=1)]}


@pytest.mark.parametrize("name", PARAMETERS)
def test_outputs(name: str) -> None:
    """Each case, less the runs of the next test."""
    missing = CASES[name].missing()
    if missing:
        pytest.skip(missing)
    _check(name, tuple(run for run in CASES[name].runs if name != SAMPLE or run not in PLUGINS))


@pytest.mark.cli
def test_outputs_of_each_plugin() -> None:
    """By default: the sample, and each plugin without options."""
    assert set(PLUGINS) <= set(CASES[SAMPLE].runs)
    _check(SAMPLE, PLUGINS)


def _check(name: str, runs: Tuple[str, ...]) -> None:
    """Runs commands of a case, and fails if what they print or write is not what is kept."""
    kept = outputs.load(outputs.path_of(name))
    assert kept, f"nothing is kept of {name}: python -m tests.golden update {name}"
    old = [run for run in kept if run.words in runs]
    new = outputs.record(CASES[name]._replace(runs=runs))
    if old != new:
        output = "\n".join(differences(old, new))
        pytest.fail(f"{output}\nif that is meant: python -m tests.golden update {name}", pytrace=False)


def test_the_addresses_of_a_table_have_one_form() -> None:
    """That of Volatility's columns, and as text of windows.traceframes and traceimage the canonical one."""
    seen: Set[Tuple[str, str]] = set()
    for name in CASES:
        for run in outputs.load(outputs.path_of(name)):
            plugin = run.words.split()[0].rpartition(".")[2]
            if run.code or plugin not in TABLES:
                continue
            for row in _rows(json.loads(line) for line in run.stdout if line.startswith("{")):
                for column in TABLES[plugin]:
                    value = row.get(column.name)
                    if value is None or column.type not in (ADDRESS, HEXSTR) or row.get("Kind") == HANDLE:
                        continue
                    address = int(value, 16) if isinstance(value, str) else value
                    canonical = column.type == HEXSTR and plugin in ("traceframes", "traceimage")
                    machine = Machine.AMD64 if row.get("Arch") != "x86" or address >> 32 else Machine.I386
                    form = machine.canonical(address) if canonical else Machine.AMD64.masked(address)
                    assert address == form, (name, run.words, column.name, hex(address))
                    seen.add((plugin, column.name))
    assert {
        ("traces", "Owner"),
        ("traces", "ProcessOffset"),
        ("traceframes", "Sp"),
        ("locks", "Lock"),
    } <= seen


def _rows(rows: Iterable[Any]) -> Iterator[Any]:
    """Yields rows, and the rows below each."""
    for row in rows:
        yield row
        yield from _rows(row.get("__children", ()))


def _run(*rows: object, **others: Any) -> Run:
    run = Run("locks", 0, [json.dumps(row) for row in rows], ["WARNING: None"], {"a.log": ["one", "two"]})
    return run._replace(**others)


def test_a_cell_that_is_other_is_found() -> None:
    other = dict(ROW, __children=[CHILD, dict(CHILD, Frame=1, Symbol="nt!KiSwapContext+0x77")])
    assert differences([_run(ROW, ROW)], [_run(ROW, ROW)]) == []
    assert differences([_run(ROW, ROW)], [_run(ROW, other)]) == [
        "= windows.locks",
        'row 1.1 Symbol: "nt!KiSwapContext+0x76" -> "nt!KiSwapContext+0x77"',
    ]


def test_a_planted_cell_is_found_in_what_is_kept() -> None:
    old = outputs.load(outputs.path_of("sample-win10-x64"))
    place = next(number for number, run in enumerate(old) if run.words == "stacktracedb")
    kept = json.loads(old[place].stdout[1])
    kept["__children"][2]["Symbol"] = "elsewhere"
    rows = [*old[place].stdout]
    rows[1] = json.dumps(kept, ensure_ascii=False)
    new = [*old]
    new[place] = old[place]._replace(stdout=rows)
    reported_differences = differences(old, new)
    assert reported_differences[0] == "= windows.stacktracedb"
    assert (
        len(reported_differences) == 2
        and reported_differences[1].startswith("row 1.2 Symbol: ")
        and reported_differences[1].endswith(' -> "elsewhere"')
    )


@pytest.mark.parametrize(
    ("new", "messages"),
    [
        (_run(ROW, code=1), ["exit code 0 -> 1"]),
        (_run(ROW, stderr=["WARNING: One"]), ["messages:", "-WARNING: None", "+WARNING: One"]),
        (_run(ROW, files={}), ["file a.log: is not written any more"]),
        (_run(ROW, files={"a.log": ["one", "2"]}), ["file a.log:", "-two", "+2"]),
        (_run(dict(ROW, More=1)), ["row 0 More: no cell -> 1"]),
        (_run(dict(reversed(ROW.items()))), ["row 0: the order of the cells"]),
    ],
)
def test_each_part_is_compared(new: Run, messages: List[str]) -> None:
    assert differences([_run(ROW)], [new]) == ["= windows.locks", *messages]


def test_a_row_that_is_gone_and_a_run_that_is_gone_are_told() -> None:
    reported_differences = differences([_run(ROW, dict(ROW, PID=4))], [_run(ROW)])
    assert [line.split(":")[0] for line in reported_differences] == [
        "= windows.locks",
        "-row 1",
        "-row 1.0",
        "-row 1.1",
    ]
    assert differences([_run(ROW)], []) == ["= windows.locks: is not run any more"]


def test_many_differences_are_cut() -> None:
    rows = [dict(ROW, PID=number) for number in range(100)]
    reported_differences = differences([_run(*rows)], [_run(*(dict(row, PID=-1) for row in rows))])
    assert len(reported_differences) == MOST_LINES + 1
    assert reported_differences[-1] == "... 41 more lines"


def test_names_of_loggers_folders_and_versions_are_left_out() -> None:
    text = (
        "Volatility 3 Framework 2.28.2\nWARNING  volatility3.plugins.windows.a.b: In /tmp/x/image.dmp\n"
        'WARNING  c.d     : {"PluginVersion": "3.0.0"} 12.0.0\n'
    )
    expected = 'WARNING: In <folder>/image.dmp\nWARNING: {"PluginVersion": "<version>"} 12.0.0\n'
    assert outputs.normal(text, [(pathlib.Path("/tmp/x"), "<folder>")]) == expected


def test_what_may_not_be_copied_is_a_digest() -> None:
    kept = outputs.shortened(_run(ROW), Keeps.DIGEST)
    assert kept == outputs.shortened(_run(ROW), Keeps.DIGEST) != outputs.shortened(_run(CHILD), Keeps.DIGEST)
    assert "Symbol" not in json.dumps(kept)
    free = {"", "isf", "real_std"}
    assert {case.keeps for case in CASES.values() if case.needs not in free} == {Keeps.DIGEST}


def test_runs_are_kept_as_they_are(tmp_path: pathlib.Path) -> None:
    outputs.save(tmp_path / "case.jsonl.xz", [_run(ROW), _run()])
    assert outputs.load(tmp_path / "case.jsonl.xz") == [_run(ROW), _run()]
    assert outputs.load(tmp_path / "none.jsonl.xz") == []


def test_update_and_check(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [_run(ROW)]

    def record(case: Case) -> List[Run]:
        return runs

    monkeypatch.setattr(outputs, "DATA", tmp_path)
    monkeypatch.setattr(outputs, "record", record)
    assert command.main(["check", "smeared"]) == 1
    assert command.main(["update", "smeared"]) == 0
    assert "1 of 1 cases changed" in capsys.readouterr().out
    assert command.main(["check", "smeared"]) == 0
    assert "nothing changed" in capsys.readouterr().out
    runs = [_run(dict(ROW, PID=4))]
    assert command.main(["check", "smeared"]) == 1
    assert "row 0 PID: 4312 -> 4" in capsys.readouterr().out


def test_every_plugin_is_run() -> None:
    framework.import_files(volatility3.plugins, True)
    folder = ROOT / "volatility3_plugins" / "windows"
    files = [pathlib.Path(inspect.getfile(plugin)) for plugin in framework.list_plugins().values()]
    assert sorted(path.stem for path in files if path.parent == folder) == sorted(PLUGINS)
    runs = {name: {words.split()[0] for words in case.runs} for name, case in CASES.items()}
    of_dumps = {path.stem for path in (ROOT / "volatility3_plugins" / "minidump").glob("*.py")}
    assert set(PLUGINS) <= set().union(*runs.values()) <= {*PLUGINS, *of_dumps}
    assert runs["sample-win10-x64"] == set(PLUGINS)


def test_what_is_kept_is_of_the_cases_and_their_runs() -> None:
    assert outputs.stale() == []
    for name, case in CASES.items():
        kept = [run.words for run in outputs.load(outputs.path_of(name))]
        assert kept == list(case.runs), name
        assert len(set(kept)) == len(kept), name
