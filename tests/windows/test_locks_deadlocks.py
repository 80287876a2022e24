# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.locks` names deadlocks and waiting threads as `windows.waits` does, in every renderer."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import pathlib
from typing import Any, Dict, Iterator, List, Set, Tuple

import pytest
from volatility3.cli import text_renderer
from volatility3.plugins.minidump import locks as dump_locks
from volatility3.plugins.minidump import waits as dump_waits
from volatility3.plugins.windows import locks, waits

from tests.forge import context, sample
from tests.support import deadlockimages, grid
from tests.support.deadlockimages import FIRST, PID, SECOND, SECTION_ONE, SECTION_TWO, Scenario
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of

BOTH_SECTIONS = Scenario(
    holds={SECTION_ONE: FIRST, SECTION_TWO: SECOND}, waits={FIRST: SECTION_TWO, SECOND: SECTION_ONE}
)
Facts = Tuple[str, str]
"""Evidence and Status of a deadlock."""


@pytest.fixture(scope="module", params=["sample", "three locks", "two sections"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> context.Opened:
    scenarios = {"three locks": Scenario(), "two sections": BOTH_SECTIONS}
    scenario = scenarios.get(request.param)
    image = sample.build().image() if scenario is None else deadlockimages.build(scenario).image
    return context.open_image(image, tmp_path_factory.mktemp("deadlocks"))


def told(nodes: List[grid.Node]) -> List[Facts]:
    """The deadlocks that windows.locks names."""
    found = []
    for node in nodes:
        for row in node.children:
            if row["OwnerRole"] == "deadlock":
                assert (row["Lock"], row["TID"], row["OwnerTID"]) == (node.row["Lock"], None, None)
                # The sentence is about this lock, and stands before its owners and waiting threads.
                assert f"{row['Lock']:x}" in row["Evidence"]
                assert node.children.index(row) == 0
                found.append((row["Evidence"], row["Status"]))
    return found


def expected(rows: List[grid.Node]) -> List[Facts]:
    """The deadlocks that windows.waits names."""
    return [(node.row["Evidence"], node.row["Status"]) for node in rows if node.row["WaitsFor"] == "deadlock"]


def test_each_deadlock_is_told_once_in_the_words_of_windows_waits(opened: context.Opened) -> None:
    deadlocks = expected(grid.run(opened, waits.WaitChains))
    assert deadlocks and all(evidence.startswith("Deadlock") for evidence, _ in deadlocks)
    for options in ({}, {"held": True}, {"contended": True}, {"fold": True}, {"pid": [PID]}):
        assert told(grid.run(opened, locks.Locks, **options)) == deadlocks


def test_the_waiting_threads_are_those_of_windows_waits(opened: context.Opened) -> None:
    nodes = grid.run(opened, locks.Locks)
    listed = {node.row["Lock"] for node in nodes}
    waiting = {
        (row["Lock"], row["TID"], row["OwnerPID"], row["Status"])
        for node in nodes
        for row in node.children
        if row["OwnerRole"] == "waiter"
    }
    rows = [node.row for node in grid.run(opened, waits.WaitChains, fold=True)]
    assert waiting
    assert waiting == {
        (row["WaitAddress"], row["TID"], row["PID"], row["Status"])
        for row in rows
        if row["WaitAddress"] in listed and row["TID"] is not None
    }


def of_json(row: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
    """A row and those below it."""
    yield row
    for child in row["__children"]:
        yield from of_json(child)


def printed(opened: context.Opened, renderer: Any, **options: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as output:
        renderer().render(opened.construct(locks.Locks, **options).run())
    return output.getvalue()


@pytest.mark.parametrize("options", [{}, {"brief": True}], ids=["all columns", "brief"])
def test_csv_and_json_lines_have_the_sentence(opened: context.Opened, options: Dict[str, bool]) -> None:
    deadlocks = [evidence for evidence, _ in expected(grid.run(opened, waits.WaitChains))]
    text = printed(opened, text_renderer.CSVRenderer, **options)
    table = list(csv.DictReader(io.StringIO(text)))
    assert [row["Evidence"] for row in table if row["OwnerRole"] == "deadlock"] == deadlocks
    lines = printed(opened, text_renderer.JsonLinesRenderer, **options).splitlines()
    rows = [row for line in filter(None, lines) for row in of_json(json.loads(line))]
    assert [row["Evidence"] for row in rows if row["OwnerRole"] == "deadlock"] == deadlocks


def test_the_dump_of_a_process_says_it_too(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(deadlockimages.build(BOTH_SECTIONS).image, tmp_path)
    (tmp_path / "app.dmp").write_bytes(dump_of(opened, PID))
    dump: Any = OpenedDump(tmp_path / "app.dmp")
    nodes = grid.run(dump, dump_locks.Locks)
    evidence, status = only(told(nodes))
    assert expected(grid.run(dump, dump_waits.WaitChains)) == [(evidence, status)]
    assert f"thread {SECOND} holds" in evidence and f"thread {FIRST} holds" in evidence
    waiting: Set[int] = {
        row["TID"] for node in nodes for row in node.children if row["OwnerRole"] == "waiter"
    }
    assert waiting == {FIRST, SECOND}


def test_a_chain_that_ends_is_no_deadlock(tmp_path: pathlib.Path) -> None:
    image = deadlockimages.build(BOTH_SECTIONS._replace(waits={FIRST: SECTION_TWO, SECOND: None}))
    nodes = grid.run(context.open_image(image.image, tmp_path), locks.Locks)
    roles = [(row["OwnerRole"], row["TID"]) for node in nodes for row in node.children if row["OwnerRole"]]
    assert roles == [("waiter", FIRST)]
