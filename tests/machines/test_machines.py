# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The list of published techniques, and planting. `python -m tests.machines` plants them all."""

from __future__ import annotations

import datetime
import json
import pathlib
import random
import re
from typing import Iterator, List, Sequence, Set

import pytest

from tests.support.clean.host64 import Host64
from tests.support.findingimages import found
from tests.support.only import only

from . import afterwards, machines, measuring, missing, planting
from .techniques import Technique, all_techniques

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


@pytest.fixture(scope="module")
def drawn() -> List[Technique]:
    """Three techniques, drawn anew each day; pytest prints them where a test fails."""
    chosen = random.Random(datetime.date.today().isoformat()).sample(KNOWN, 3)
    print("drawn:", ", ".join(technique.name for technique in chosen))
    return chosen


def test_techniques_planted_together_give_what_each_gives_alone(drawn: List[Technique]) -> None:
    """In the machine that is quoted, without missing pages: each drawn one is among the first rows."""
    draw = planting.Draw(measuring.PLANTED_IN, machines.KERNEL, 0, 0)
    together = only(planting.ask([draw], drawn, 1)).shown
    for technique, shown in zip(drawn, together):
        alone = only(only(planting.ask([draw], [technique], 1)).shown)
        assert alone.name == shown.name == technique.name
        assert [(row["Finding"], row["Severity"]) for row in alone.rows] == [
            (row["Finding"], row["Severity"]) for row in shown.rows
        ]
        assert (alone.place, alone.above_low, alone.among_first) == (shown.place, True, True), technique.name


def test_innocent_rows_of_drawn_seeds_are_no_more_than_the_table_has() -> None:
    """Three seeds, drawn anew each day, of the server with the least share that the table has."""
    seeds = random.Random(datetime.date.today().isoformat()).sample(range(1000, 100000), 3)
    print("drawn:", seeds)
    cells = json.loads(measuring.RESULTS.read_text(encoding="utf-8"))
    share = min(cell["share"] for cell in cells if cell["share"])
    cell = next(cell for cell in cells if (cell["of"], cell["share"]) == ("server", share))
    draws = [planting.Draw("server", cell["kernel"], share, seed) for seed in seeds]
    answers = list(planting.ask(draws, (), 1))
    assert all(answer.missing for answer in answers)
    counts = sorted(len(answer.above) for answer in answers)
    print("rows above low:", counts)
    assert counts[0] <= cell["above"][2]


def test_a_spread_is_of_the_nearest_ranks() -> None:
    assert measuring.spread([5]) == (5, 5, 5)
    assert measuring.spread(range(1, 21)) == (2, 10, 18)


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
    assert cell["missed"] == ["two"]


def test_draws_that_were_measured_in_parts_are_joined(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds one after the other give the cell that both at once give, and no draw is asked for again."""
    asked: List[planting.Draw] = []

    def ask(draws: Sequence[planting.Draw], techniques: object, jobs: int) -> Iterator[planting.Answer]:
        asked.extend(draws)
        for draw in draws:
            rows: List[planting.Row] = [{"Finding": "unbacked", "Process": "a.exe"}] * draw.seed
            yield planting.Answer(draw, 9, 10 * draw.seed, rows, [])

    monkeypatch.setattr(planting, "ask", ask)
    monkeypatch.setattr(measuring, "MACHINES", {"server": None})
    for seeds in ([1], [1, 2]):
        list(measuring.measure([machines.KERNEL], [0.05], seeds, {}, tmp_path, 1))
    assert [draw.seed for draw in asked] == [1, 2]
    cell = only(measuring.joined(tmp_path))
    assert (cell["of"], cell["share"], cell["seeds"]) == ("server", 0.05, 2)
    assert (cell["missing"], cell["above"]) == ((10, 10, 20), (1, 1, 2))
    assert cell["alarms"] == {"unbacked a.exe": 2}


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
