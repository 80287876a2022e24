# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The list of published techniques, and planting. `python -m tests.machines` plants them all."""

from __future__ import annotations

import datetime
import json
import pathlib
import random
import re
from typing import Dict, Iterator, List, Sequence, Set

import pytest

from tests.forge.phys import PAGE
from tests.support.clean.host64 import Host64
from tests.support.clean.host86 import Host86
from tests.support.findingimages import found
from tests.support.only import only

from . import __main__ as command
from . import afterwards, machines, measuring, missing, planting, product, programs, unnamed
from .techniques import Technique, all_techniques, rooms

TECHNIQUES = all_techniques()
KNOWN = [technique for technique in TECHNIQUES if technique.shown]
DOCS = pathlib.Path(__file__).parents[2] / "docs" / "tracefindings.md"


def test_there_are_fifty_techniques_and_each_has_a_source() -> None:
    assert len(TECHNIQUES) >= 50
    assert len({technique.name for technique in TECHNIQUES}) == len(TECHNIQUES)
    for technique in (*TECHNIQUES, *afterwards.TECHNIQUES):
        assert re.search(r"\b(19|20)\d\d\b|\bT1\d\d\d\b", technique.source), technique.name


def test_the_page_has_their_number() -> None:
    shown = sum(technique.shown for technique in TECHNIQUES)
    number = f"{len(TECHNIQUES)} published techniques (stacks can show {shown} of them)"
    assert number in DOCS.read_text(encoding="utf-8")


@pytest.mark.parametrize("technique", [TECHNIQUES[0], TECHNIQUES[-2]], ids=lambda technique: technique.name)
def test_a_planted_technique_is_found(technique: Technique) -> None:
    """In a machine of one process more."""
    host = Host64(machines.KERNEL)
    planted = technique.plant(host)
    image = host.kernel.image()
    technique.change(planted)
    rows = found(image)
    assert {row["Severity"] for row in rows if row["PID"] in (planted.pid, 0)} & {"high", "medium"}


def test_techniques_of_x86_are_found_on_x86() -> None:
    """In a machine of nothing else; what is missed: see below."""
    host = Host86("win10-x86", ends=True)
    owned = [planting._planted(host, technique) for room in rooms("win10-x86").values() for technique in room]
    image = host.kernel.image()
    for own in owned:
        own.technique.change(own.planted)
    above = [row for row in found(image) if row["Severity"] in ("high", "medium")]
    missed = {own.technique.name for own in owned if not any(own.shows(row) for row in above)}
    assert len(owned) > 45
    # A callback without a frame pointer is not on the chain; a call in memory that is away cannot be read.
    assert missed == {"Pool calls Windows", "Sleep without access"}


@pytest.mark.parametrize("kernel", ["win10-x64", "win11-x64"])
def test_innocent_programs_that_once_were_above_low(kernel: str) -> None:
    """V8 and WinForms of 32 bits, SwiftShader preempted, a hard link, EAF, a trampoline that calls."""
    host = Host64(kernel)
    for name in ("first.exe", "second.exe"):
        programs.ordinary(host, name)
    programs.electron_32(host, "Slack.exe")
    programs.winforms(host, "accounts.exe")
    programs.swiftshader(host, "chrome.exe")
    programs.hard_link(host, "cargo.exe")
    programs.guarded_exports(host, "winword.exe")
    product.caught(host, "excel.exe")
    product.hook_all(host)
    rows = [row for row in found(host.kernel.image()) if row["Severity"]]
    assert {row["Severity"] for row in rows} == {"low"}
    hooked = {"accounts.exe", "cargo.exe", "chrome.exe", "excel.exe", "Slack.exe", "winword.exe"}
    assert {row["Process"] for row in rows} <= hooked


def test_programs_on_x86_are_low() -> None:
    """The code of runtimes is explained by their lists, or by what stands on both sides of it; a thunk by
    its code."""
    host = Host86("win10-x86", ends=True)
    machines.programs_86(host)
    product.hook_all(host)
    severities: Dict[object, Set[object]] = {}
    for row in found(host.kernel.image()):
        if row["Severity"]:
            severities.setdefault(row["Process"], set()).add(row["Severity"])
    others = ("accounts.exe", "agent.exe", "game.exe", "javaw.exe", "Launcher.exe", "Slack.exe")
    assert severities == {name: {"low"} for name in (*others, "AutoHotkey.exe", "sync.exe", "tray.exe")}


@pytest.mark.parametrize(
    ("behind", "severity"),
    [("59 83 c4 10 ff e1", "low"), ("59 ff d0 83 c4 10 ff e1", "medium"), ("e8 fb ff ff ff c3", "medium")],
)
@pytest.mark.parametrize("is_wide", [False, True])
def test_only_a_thunk_that_calls_its_module_and_returns_is_low(
    behind: str, severity: str, is_wide: bool
) -> None:
    host = Host64("win10-x64") if is_wide else Host86("win10-x86", ends=True)
    unnamed.window_thunk(host, behind)
    assert only(found(host.kernel.image()))["Severity"] == severity


def test_x86_has_a_machine_of_its_own() -> None:
    assert list(machines.names_of("win10-x86")) == [measuring.PLANTED_IN]
    assert len(machines.build(measuring.PLANTED_IN, "win10-x86").kernel.processes) > 90


def test_the_rooms_of_a_kernel_are_measured_in_one_draw_and_kept_apart(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: List[planting.Question] = []

    def ask(questions: Sequence[planting.Question], jobs: int) -> Iterator[planting.Answer]:
        for question in questions:
            asked.append(question)
            shown = [planting.Shown(technique.name, 1, []) for technique in question.techniques]
            yield planting.Answer(question.draw, 9, 0, [], shown)

    monkeypatch.setattr(planting, "ask", ask)
    seeds, shares = [1, 2], [0, 0.25]
    files = list(measuring.measure(["win10-x86"], shares, seeds, tmp_path, 1))
    assert [(question.draw.share, question.draw.seed) for question in asked] == [
        place for place in ((0, 0), (0.25, 1), (0.25, 2)) for _ in ("as it is", "planted")
    ]
    assert len(files) == len(set(files)) == 9
    counts = {cell["of"]: cell.get("techniques") for cell in measuring.joined(tmp_path)}
    of_rooms = [(name, len(techniques)) for name, techniques in rooms("win10-x86").items()]
    together = (measuring.ALL, sum(number for _, number in of_rooms))
    assert list(counts.items()) == [("desktop", None), *of_rooms, together]


@pytest.fixture(scope="module")
def drawn() -> List[Technique]:
    """Three techniques, drawn anew each day; pytest prints them where a test fails."""
    chosen = random.Random(datetime.date.today().isoformat()).sample(KNOWN, 3)
    print("drawn:", ", ".join(technique.name for technique in chosen))
    return chosen


def test_techniques_planted_together_give_what_each_gives_alone(drawn: List[Technique]) -> None:
    """In the machine that is quoted, without missing pages: each drawn one is among the first rows."""
    draw = planting.Draw(measuring.PLANTED_IN, machines.KERNEL, 0, 0)
    together = only(planting.ask([planting.Question(draw, drawn)], 1)).shown
    for technique, shown in zip(drawn, together):
        alone = only(only(planting.ask([planting.Question(draw, [technique])], 1)).shown)
        assert alone.name == shown.name == technique.name
        assert [(row["Finding"], row["Severity"]) for row in alone.rows] == [
            (row["Finding"], row["Severity"]) for row in shown.rows
        ]
        assert (alone.place, alone.above_low, alone.among_first) == (shown.place, True, True), technique.name


def test_innocent_rows_of_drawn_seeds_are_no_more_than_the_table_has() -> None:
    """Three seeds, drawn anew each day, of the server with the least share that the table has."""
    seeds = random.Random(datetime.date.today().isoformat()).sample(range(1000, 100000), 3)
    print("drawn:", seeds)
    cells = measuring._few(json.loads(measuring.RESULTS.read_text(encoding="utf-8")))
    cell = next(cell for cell in cells if cell["of"] == "server")
    draws = [planting.Draw("server", cell["kernel"], cell["share"], seed) for seed in seeds]
    answers = list(planting.ask([planting.Question(draw) for draw in draws], 1))
    assert all(answer.missing for answer in answers)
    counts = sorted(len(answer.above) for answer in answers)
    print("rows above low:", counts)
    assert counts[0] <= cell["worst"]


def test_a_spread_is_of_the_nearest_ranks() -> None:
    assert measuring.spread([5]) == (5, 5, 5)
    assert measuring.spread(range(1, 21)) == (2, 10, 18)
    assert [measuring.percentile(range(1, 21), share) for share in (0.01, 0.99)] == [1, 20]


def test_a_room_counts_what_is_found_and_names_what_is_missed() -> None:
    """Of two techniques one is in the first row at first, and is only `low` and far down then."""
    rows: List[planting.Row] = [{"Severity": "high"}]
    low: List[planting.Row] = [{"Severity": "low"}]
    first, second = (planting.Draw("desktop", machines.KERNEL, 0.05, seed) for seed in (1, 2))
    answers = [
        planting.Answer(
            first, 2, 9, [], [planting.Shown("one", 1, rows), planting.Shown("two", None, [], in_image=False)]
        ),
        planting.Answer(second, 2, 9, [], [planting.Shown("one", 30, low), planting.Shown("two", None, [])]),
    ]
    cell = measuring.cell_of([measuring.part_of("room", answer) for answer in answers])
    assert (cell["seeds"], cell["techniques"]) == (2, 2)
    assert (cell["above"], cell["first"], cell["whole"]) == ((0, 0, 50), (0, 0, 50), (50, 50, 100))
    assert (cell["worst"], cell["missed"]) == (0, ["two"])


def test_draws_that_were_measured_in_parts_are_joined(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds one after the other give the cell that both at once give, and no draw is asked for again."""
    asked: List[planting.Draw] = []

    def ask(questions: Sequence[planting.Question], jobs: int) -> Iterator[planting.Answer]:
        for draw, _ in questions:
            asked.append(draw)
            rows: List[planting.Row] = [{"Finding": "unbacked", "Process": "a.exe"}] * draw.seed
            yield planting.Answer(draw, 9, 10 * draw.seed, rows, [])

    monkeypatch.setattr(planting, "ask", ask)
    monkeypatch.setattr(measuring, "names_of", lambda kernel: ["server"])
    monkeypatch.setattr(measuring, "rooms", lambda kernel: {})
    for seeds in ([1], [1, 2]):
        list(measuring.measure([machines.KERNEL], [0.05], seeds, tmp_path, 1))
    assert [draw.seed for draw in asked] == [1, 2]
    cell = only(measuring.joined(tmp_path))
    assert (cell["of"], cell["share"], cell["seeds"]) == ("server", 0.05, 2)
    assert (cell["missing"], cell["above"]) == ((10, 10, 20), (1, 1, 2))
    assert (cell["worst"], cell["alarms"]) == (2, {"unbacked a.exe": 2})


def test_draws_that_lack_what_is_quoted_are_not_joined(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without missing pages README has nothing to quote; the last measurement stays as it is."""
    before = measuring.RESULTS.read_bytes()
    part = {"of": "desktop", "kernel": machines.KERNEL, "share": 0.0, "seed": 0}
    part.update(processes=9, missing=0, alarms=[])
    (tmp_path / "draw.json").write_text(json.dumps(part), encoding="utf-8")
    with pytest.raises(SystemExit):
        command.main(["--join", str(tmp_path)])
    assert "no draw of win10-x64 with missing pages: ['desktop', 'server'" in capsys.readouterr().err
    assert measuring.RESULTS.read_bytes() == before
    assert measuring.lacking(json.loads(before)) == []


def test_what_falls_short_is_named_with_its_cell(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement from before the stacks were counted is old."""
    cell = {"of": "room", "kernel": machines.KERNEL, "share": 0.05, "techniques": 2}
    monkeypatch.setattr(measuring, "RESULTS", tmp_path / "measured.json")
    for more, is_old in (({"whole": [50, 50, 50]}, False), ({}, True)):
        short = {"missed": ["two", "one"], "behind": ["one"]}
        cells = [{**cell, **short, **more}, {**cell, "missed": [], "behind": [], **more}]
        measuring.RESULTS.write_text(json.dumps(cells), encoding="utf-8")
        place = ["room", machines.KERNEL, "5 %"]
        rows = [[*place, "two; one", "one"], [*place, "none", "none"]]
        assert (measuring.missed(), measuring.is_old()) == (rows, is_old)


def test_a_cold_page_is_missing_three_times_as_often_as_a_warm_one() -> None:
    assert pytest.approx(3 * missing.WARM, rel=0.01) == missing.COLD
    chosen = {
        warm: sum(missing._chosen(1, "file", page, 0.2, warm) for page in range(20000)) / 20000
        for warm in (True, False)
    }
    assert chosen[False] == pytest.approx(0.2 * missing.COLD, rel=0.05)
    assert chosen[True] == pytest.approx(0.2 * missing.WARM, rel=0.05)


def test_code_and_stacks_are_warm_and_headers_are_cold() -> None:
    host = Host64(machines.KERNEL)
    program = host.program("first.exe", functions="main")
    program.waits("main", "kernelbase!WaitForSingleObjectEx")
    code = program.jitted()
    host.kernel.image()
    warm = missing._warm(program.process)

    def is_warm(address: int) -> bool:
        return any(low <= address < high for low, high in warm)

    base = program.modules["ntdll"][0].base
    thread = program.process.threads[0]
    assert is_warm(base + 0x1000) and is_warm(code) and is_warm(thread.user_stack_base - 8)
    assert not is_warm(base)
    assert program.process.peb is not None and not is_warm(program.process.peb.address)


def test_which_pages_are_missing_goes_by_the_seed_and_the_page() -> None:
    """A machine with a process more has lost the same."""
    lost: list[Set[int]] = []
    for more in (False, True):
        host = Host64(machines.KERNEL)
        program = host.program("first.exe", functions="main")
        program.waits("main", "kernelbase!WaitForSingleObjectEx")
        if more:
            host.program("second.exe", functions="main")
        before = set(program.process.space.own_pages())
        assert missing.lose(host, 7, 0.2) > 0
        lost.append(before - set(program.process.space.own_pages()))
    assert lost[0] == lost[1]
    assert lost[0]


@pytest.mark.parametrize("kernel", ["win7-x64", "win10-x64"])
def test_a_lost_page_of_a_file_is_in_no_section(kernel: str) -> None:
    """A prototype PTE that still led to its frame gave zeros, as an image never does for a trimmed page."""
    host = Host64(kernel)
    program = host.program("first.exe", functions="main")
    program.waits("main", "kernelbase!WaitForSingleObjectEx")
    host.kernel.image()
    held = [(section, rva) for section in host.kernel.sections for rva in section.frames]
    assert missing.lose(host, 7, 0.5) > 0
    lost = [(section, rva) for section, rva in held if rva not in section.frames]
    assert lost
    for section, rva in lost:
        assert not host.kernel.paged.read_int(section.entries + rva // PAGE * 8, 8) & 1
