# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.tracefindings` through the command line and Volatility's renderers: options, order, texts."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.windows import pslist, tracefindings, traces

from tests.forge import context, sample, vol
from tests.forge.context import Opened
from tests.forge.paging import State
from tests.support import grid
from tests.support.clean.host64 import JITTED, Host64, Private
from tests.support.findingimages import PRIVATE, RETURNS, FindingImage, answered, found
from tests.support.only import only
from winstacks.columns.words import CONFIDENCES
from winstacks.findings import registry
from winstacks.findings.loststacks import LOST_STACKS
from winstacks.options import CHECKS, SEVERITIES

WAIT_EX = "kernelbase!WaitForSingleObjectEx"
COLUMNS = [
    *("ImageId", "Severity", "Confidence", "Finding", "PID", "Process", "ProcessOffset", "TID", "Kind"),
    *("Frame", "Address", "Symbol", "How", "Evidence", "Innocent", "Group", "Next"),
    *("Technique", "StackKey", "TraceId"),
    "Status",
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("findings"))


def rows(opened: Opened, **options: Any) -> List[Dict[str, Any]]:
    return [node.row for node in grid.run(opened, tracefindings.TraceFindings, **options)]


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64", "win11-x64"])
def test_vol_shows_the_implant_and_the_driver_at_the_top(name: str, tmp_path: pathlib.Path) -> None:
    image = sample.build(name).image()
    file, symbols = image.save(tmp_path / "image.dmp"), image.install(tmp_path / "symbols")
    shown = vol.run(file, "windows.tracefindings", symbols=symbols).rows
    assert [(row["Severity"], row["Finding"], row["PID"]) for row in shown[:4]] == [
        ("high", "unbacked", 4312),
        ("high", "history_unbacked", 4312),
        ("high", "foreign_handle", 4312),
        ("high", "kernel_no_module", 0),
    ]
    assert set(shown[0]) - {"__children"} == set(COLUMNS)
    brief = vol.run(file, "windows.tracefindings", "--brief", symbols=symbols, renderer="pretty")
    lines = brief.stdout.splitlines()
    assert max(map(len, lines)) <= 120
    # A screen of 50 lines: Confidence and Innocent make the rows higher.
    assert len(lines) <= 48


def reasons(opened: Opened, **options: Any) -> Dict[str, Any]:
    """Returns why each check did not run."""
    found = rows(opened, **options)
    return {row["Finding"]: row["Evidence"] for row in found if row["Status"] == "not checked"}


def test_reasons_speak_of_the_processes_that_are_selected(opened: Opened) -> None:
    assert "foreign_handle" not in reasons(opened)
    assert (
        reasons(opened, pid=[6200])["foreign_handle"]
        == "in the selected processes, no process traces its handles"
    )
    assert "kernel" in reasons(opened)["modified_code"]
    assert "modified_code" not in reasons(opened, pid=[6200])
    assert reasons(opened, pid=[0])["unbacked"].startswith("in the selected processes, no stack of a thread ")


@pytest.mark.parametrize("pids", [[999], [999, 998]])
def test_an_id_that_no_process_has_is_the_reason_of_every_check(pids: List[int], opened: Opened) -> None:
    assert reasons(opened, pid=pids) == dict.fromkeys(
        CHECKS, f"no process has the ID {' or '.join(map(str, sorted(pids)))}"
    )


def test_the_columns_are_those_and_no_others(opened: Opened) -> None:
    assert list(rows(opened)[0]) == COLUMNS


def test_the_order_is_that_of_severity_and_confidence(opened: Opened) -> None:
    shown = rows(opened)
    ranked = [row for row in shown if row["Severity"] is not None]
    order = [(SEVERITIES.index(row["Severity"]), CONFIDENCES.index(row["Confidence"])) for row in ranked]
    assert order == sorted(order)
    assert {row["Status"] for row in shown[len(ranked) :]} == {"not checked"}
    assert {row["Severity"] for row in ranked} == {"high", "low"}


def test_the_summary_has_one_line_for_each_process_at_the_top(opened: Opened) -> None:
    shown = rows(opened, summary=True)
    lines = [row for row in shown if row["Finding"] == "summary"]
    assert shown[: len(lines)] == lines
    assert shown[len(lines) :] == rows(opened)
    assert [(row["PID"], row["Severity"]) for row in lines] == [(4312, "high"), (0, "high")]
    assert lines[0]["Evidence"].endswith("3 checks agree: unbacked, history_unbacked, foreign_handle")
    assert lines[1]["Evidence"] == "2 findings; 1 check: kernel_no_module"


def test_the_summary_counts_what_is_shown(opened: Opened) -> None:
    lines = [row for row in rows(opened, summary=True, severity="high") if row["Finding"] == "summary"]
    assert [row["Evidence"] for row in lines][1:] == ["1 finding; 1 check: kernel_no_module"]


def test_a_low_finding_says_what_made_it_so() -> None:
    forged = FindingImage("win10-x64")
    forged.private()
    forged.app.region(0x21000000, b"\x90" * 0x100, size=0x1000, file="\\Windows\\code.bin")
    forged.app.space.tables.forbid_execution(0x21000000)
    forged.interrupted_at(0x21000020)
    place = forged.kernel.space.read_int(forged.thread.kthread["TrapFrame"] + 0x180)
    forged.app.space.write_int(place, RETURNS, 8)
    row = only(found(forged.image(), "unbacked"))
    assert row["Innocent"].startswith(
        "nothing known in this process; low because a scan of the stack found the frame"
    )


def test_among_equals_more_agreeing_checks_come_first(opened: Opened) -> None:
    shown = [row for row in rows(opened) if row["Severity"] == "high" and row["Confidence"] == "certain"]
    assert [row["PID"] for row in shown] == sorted((row["PID"] for row in shown), reverse=True)


def explained_program(host: Host64) -> None:
    """A program whose runtime has registered a function table for its code: `low` for that reason."""
    program = host.program("explained.exe", "clr.dll", functions="main")
    base = program.jitted()
    program.register((base, base + 0x2000))
    program.waits("clr!CallDescrWorkerInternal", Private(base), WAIT_EX)


def test_low_findings_without_an_innocent_reason_come_first() -> None:
    """A guess in a process with nothing that explains it, before a finding that is low for a reason."""
    host = Host64("win10-x64")
    explained_program(host)
    guessed = host.program("guessed.exe", functions="main")
    outer, inner = guessed.jitted(), guessed.jitted()
    guessed.waits("main", Private(outer), Private(inner), WAIT_EX)
    low = [row for row in found(host.kernel.image()) if row["Severity"] == "low"]
    assert [row["Process"] for row in low] == ["guessed.exe", "explained.exe"]
    assert "low because" in low[0]["Innocent"] and "low because" not in low[1]["Innocent"]


def test_a_guess_comes_before_what_is_low_for_a_reason() -> None:
    """A DLL is on both sides of code, which is `medium`; where the walk is a guess, `low` for that alone."""
    host = Host64("win10-x64")
    explained_program(host)
    guessed = host.program("guessed.exe", functions="main")
    guessed.load(
        "helper.dll", functions="Run Callback", path="C:\\Users\\ann\\AppData\\Local\\Temp\\helper.dll"
    )
    guessed.waits("helper!Run", Private(guessed.jitted()), "helper!Callback", WAIT_EX)
    image = host.kernel.image()
    first = next(row for row in found(image) if row["Process"] == "guessed.exe")
    assert first["Severity"] == "medium"
    module, _ = guessed.modules["kernelbase"]
    guessed.process.space.set_state(module.base, module.size, State.MISSING)
    assert module.section is not None
    module.section.set_state(0, module.size, State.MISSING)
    low = [row for row in found(image) if row["Severity"] == "low"]
    assert [row["Process"] for row in low] == ["guessed.exe", "explained.exe"]
    assert low[0]["Innocent"].startswith("code that a module made") and "low because" in low[0]["Innocent"]


def test_the_first_of_each_program_comes_before_the_second_of_any() -> None:
    host = Host64("win10-x64")
    for name in ("browser.exe", "browser.exe", "browser.exe", "tool.exe", "tool.exe"):
        program = host.program(name, functions="main")
        outer, inner = program.jitted(), program.jitted()
        program.waits("main", Private(outer), Private(inner), WAIT_EX)
    low = [row for row in found(host.kernel.image(), "unbacked") if row["Severity"] == "low"]
    assert [row["Process"] for row in low] == [
        *("browser.exe", "tool.exe"),
        *("browser.exe", "tool.exe"),
        "browser.exe",
    ]


def test_threads_that_were_started_at_one_address_are_counted() -> None:
    """Each has a stack in the kernel and one in user mode: they are two threads."""
    host = Host64("win10-x64")
    program = host.program("app.exe", functions="main")
    base = program.jitted()
    for _ in range(2):
        program.waits("main", WAIT_EX, thread=program.thread(win32_start=base + JITTED.rva))
    row = only(found(host.kernel.image(), "start_mismatch"))
    assert row["Evidence"].endswith("; 2 threads")


def test_brief_counts_what_was_not_checked(tmp_path: pathlib.Path) -> None:
    """One row for each reason; --unchecked has them all."""
    host = Host64("win10-x64")
    for number in range(3):
        program = host.program(f"app{number}.exe", functions="main")
        program.waits("main", WAIT_EX)
    image = host.kernel.image()
    for program in host.programs:
        stack = program.process.threads[0].user_stack_limit
        program.process.space.set_state(stack, 0x4000, State.MISSING)
    opened = context.open_image(image, tmp_path)

    def unchecked(**options: Any) -> List[Dict[str, Any]]:
        shown = [row for _, row in opened.rows(tracefindings.TraceFindings, **options)]
        return [row for row in shown if row["Finding"] == LOST_STACKS]

    every = unchecked()
    assert len(every) == 3
    row = only(unchecked(brief=True))
    assert f" of {len(every)} processes: --unchecked lists them" in str(row["Evidence"])
    assert len(unchecked(brief=True, unchecked=True)) == len(every)


def test_findings_join_with_the_stacks(opened: Opened) -> None:
    """TraceId, StackKey and ImageId are those of windows.traces, ProcessOffset that of windows.pslist."""
    stacks = {row["TraceId"]: row for row in (node.row for node in grid.run(opened, traces.StackTraces))}
    processes = {row["Offset(V)"] for _, row in opened.rows(pslist.PsList)}
    joined = [row for row in rows(opened) if row["TraceId"]]
    assert len(joined) >= 4
    for row in joined:
        stack = stacks[row["TraceId"]]
        assert row["ImageId"] == stack["ImageId"]
        assert row["StackKey"] in (stack["StackKey"], None)
        assert (row["Kind"], row["PID"], row["TID"]) == (stack["Kind"], stack["PID"], stack["TID"])
        assert row["ProcessOffset"] is None or row["ProcessOffset"] in processes


@pytest.mark.parametrize(("least", "expected"), [("high", {"high"}), ("low", {"high", "low"})])
def test_severity(least: str, expected: set[str], opened: Opened) -> None:
    shown = rows(opened, severity=least)
    assert {row["Severity"] for row in shown} - {None} == expected
    assert any(row["Severity"] is None for row in shown), "what was not checked is shown in any case"


def test_check_and_pid(opened: Opened) -> None:
    named = {row["Finding"] for row in rows(opened, check=["unbacked", "hidden"])}
    assert named == {"unbacked", "hidden", "lost_stacks"}
    assert {row["PID"] for row in rows(opened, pid=[0]) if row["Severity"]} == {0}
    assert {row["PID"] for row in rows(opened, pid=[4312]) if row["Severity"]} == {4312}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": ["unbaked"]}, "--check: unknown value unbaked; choose from unbacked, "),
        ({"severity": "worst"}, "--severity: unknown value worst; choose from high, medium, low"),
        ({"explain": "unbaked"}, "--explain: unknown value unbaked; choose from unbacked, "),
    ],
)
def test_words_that_there_are_not(options: Dict[str, Any], message: str, opened: Opened) -> None:
    with pytest.raises(exceptions.RenderException) as caught:
        rows(opened, **options)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_is_explained(name: str, opened: Opened) -> None:
    shown = rows(opened, explain=name)
    assert {row["Finding"] for row in shown} == {name}
    explanations = {row["What"]: row["Explanation"] for row in shown}
    assert list(explanations) == ["meaning", "severity", "false positives", "what to do next", "ATT&CK"]
    assert all(explanations.values())
    assert explanations["severity"].split()[0].rstrip(".;") in SEVERITIES


def test_few_findings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out is said."""
    forged = FindingImage("win10-x64")
    forged.private()
    forged.app.region(PRIVATE + 0x10000, b"\x90" * 0x200, size=0x1000, protection=6)
    forged.recorded(RETURNS, RETURNS + 0x10000)
    assert len(found(forged.image(), "history_unbacked")) == 2
    monkeypatch.setattr(registry, "MAX_FINDINGS", 1)
    *shown, last = answered(forged.image(), check=["history_unbacked"])
    assert len(shown) == 1
    assert (last["Severity"], last["Status"]) == (None, "not checked")
    assert last["Evidence"].startswith("more than ")


def test_a_clean_image_has_no_findings(tmp_path: pathlib.Path) -> None:
    """Only what was not checked is left, and it is no finding."""
    image = FindingImage("win10-x64").image()
    assert found(image) == []
    file, symbols = image.save(tmp_path / "image.dmp"), image.install(tmp_path / "symbols")
    done = vol.run(file, "windows.tracefindings", "--explain", "hidden", symbols=symbols)
    assert next(row["What"] for row in json.loads(done.stdout)) == "meaning"
