# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Two playbooks of docs/pipelines.md as they stand there: a nightly lake, and findings into Timesketch.

`test_watching.py` has the third one, a folder that is watched.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import pytest

from stackfleet import exits
from tests.support.only import only
from tests.support.timesketchserver import running

from . import pages
from .pages import Block
from .runs import Runner

PAGE = pages.ROOT / "docs" / "pipelines.md"
NIGHT, SENT, CODES = (
    "A nightly lake, compared with the night before",
    "Findings into Timesketch",
    "Exit codes",
)

pytestmark = [
    pytest.mark.cli,
    pytest.mark.once,
    pytest.mark.skipif(os.name == "nt", reason="the commands are those of a POSIX shell"),
]


def section(heading: str) -> str:
    found = pages.read(PAGE).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert found
    return found


def blocks(heading: str, language: str) -> List[Block]:
    return [block for block in pages.blocks(section(heading)) if block.language == language]


class Nights:
    """A folder of dumps, a lake, and the script of the page."""

    def __init__(self, runner: Runner, folder: pathlib.Path) -> None:
        self._runner = runner
        self.folder = folder
        self.dumps = folder / "dumps"
        self.dumps.mkdir()
        (folder / "night.sh").write_text(blocks(NIGHT, "sh")[0].text)

    def add(self, night: str, name: str) -> None:
        self._runner.make_files(name)
        (self.dumps / night).mkdir()
        shutil.copy(self._runner.folder / name, self.dumps / night)

    def run(self, night: str) -> "subprocess.CompletedProcess[str]":
        command = f"cd {self.folder} && sh night.sh dumps lake {night}"
        return self._runner.run(["sh", "-c", command])

    def changes(self, night: str) -> List[Dict[str, Any]]:
        text = (self.folder / f"{night}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def nights(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """Two nights: the dump of the second one has code in private memory."""
    made = Nights(runner, tmp_path_factory.mktemp("nights"))
    made.add("2026-01-01", "spooler.dmp")
    first = made.run("2026-01-01")
    assert first.returncode == exits.DONE, first.stderr
    assert not list(made.folder.glob("*.jsonl"))
    made.add("2026-01-02", "updater.dmp")
    (made.dumps / "2026-01-02" / "broken.dmp").write_bytes(b"MDMP")
    second = made.run("2026-01-02")
    assert second.returncode == exits.INCOMPLETE, second.stderr
    return made


def test_the_second_night_shows_what_the_first_did_not_have(runner: Runner, nights: Nights) -> None:
    changes = nights.changes("2026-01-02")
    assert {row["Process"] for row in changes if row["Change"] == "new"} == {"updater.exe"}
    assert {row["Process"] for row in changes if row["Change"] == "gone"} == {"spooler.exe"}
    statement, quoted = only(blocks(NIGHT, "sql")), only(blocks(NIGHT, "text"))
    shutil.copy(nights.folder / "2026-01-02.jsonl", runner.folder)
    assert runner.sql(statement.text) == quoted.lines


def test_a_night_whose_images_fail_says_so(nights: Nights) -> None:
    (nights.dumps / "2026-01-03").mkdir()
    (nights.dumps / "2026-01-03" / "broken.dmp").write_bytes(b"MDMP\0")
    done = nights.run("2026-01-03")
    assert done.returncode == exits.WRONG_USE
    assert "case=2026-01-03" in done.stderr
    assert not (nights.folder / "2026-01-03.jsonl").exists()


def test_stacks_and_findings_reach_the_sketch(runner: Runner, nights: Nights) -> None:
    pytest.importorskip("timesketch_api_client")
    program = only(blocks(SENT, "python")).text
    (nights.folder / "send.py").write_text(program)
    with running() as server:
        where = f"TIMESKETCH_URI={server.address} TIMESKETCH_USER=examiner TIMESKETCH_PASSWORD=secret"
        command = f"cd {nights.folder} && {where} {sys.executable} send.py lake 1"
        done = runner.run(["sh", "-c", command])
        assert done.returncode == exits.DONE, done.stderr
        written = (nights.folder / "events.jsonl").read_text().splitlines()
        assert len(server.events) == len(written) > 0
        assert b"examiner" in only(server.forms)
    found = {event.get("Finding") for event in server.events}
    assert "unbacked" in found
    assert {event["data_type"] for event in server.events if event.get("Finding")} == {
        "windows:stacktraces:finding"
    }


def test_exit_codes_are_stated_once() -> None:
    """The page has the program's exit codes, and no other page has a list of its own."""
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in section(CODES).splitlines()]
    stated = {int(row[0]) for row in rows if row and row[0].isdigit() and row[1]}
    assert stated == {exits.DONE, exits.WRONG_USE, exits.INCOMPLETE, exits.INTERRUPTED}
    for path in pages.documents():
        if path != PAGE and not path.name.startswith("from-"):
            assert "exit code is" not in pages.read(path).lower(), path.name
