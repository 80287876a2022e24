# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The folder that docs/pipelines.md watches for new dumps: its program runs as it stands there."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import sys
from typing import Any, Dict, List

import pytest

from tests.conftest import SHARED

from . import pages
from .pages import Block
from .runs import Runner

PAGE = pages.ROOT / "docs" / "pipelines.md"
REAL = SHARED / "real_minidumps"
DUMPS = {"monday.dmp": "crash.dmp", "tuesday.dmp": "crash.dmp", "updater.dmp": "updater.dmp"}
DUMPS["spooler.DMP"] = "spooler.dmp"

pytestmark = [
    pytest.mark.cli,
    pytest.mark.once,
    pytest.mark.skipif(os.name == "nt", reason="the commands are those of a POSIX shell"),
]


def blocks(language: str) -> List[Block]:
    """Returns the blocks of the section in a language."""
    section = pages.read(PAGE).partition("\n## A folder watched for new dumps\n")[2].partition("\n## ")[0]
    return [block for block in pages.blocks(section) if block.language == language]


def watch(runner: Runner, dumps: str, rows: str, rounds: int = 2) -> Dict[str, Dict[str, Any]]:
    """Runs the program of the page; returns what the files of rows hold, by the name of the dump."""
    programs = blocks("python")
    assert len(programs) == 1
    # A test need not wait between rounds.
    (runner.folder / "watch.py").write_text(programs[0].text.replace("sleep(5 ", "sleep(0 "))
    done = runner.run([sys.executable, "watch.py", dumps, rows, str(rounds)])
    assert (done.returncode, done.stderr) == (0, "")
    found = [json.loads(path.read_text()) for path in (runner.folder / rows).glob("*.json")]
    return {row["File"]: row for row in found}


@pytest.fixture(scope="module")
def dumps(runner: Runner) -> pathlib.Path:
    folder = runner.folder / "dumps"
    folder.mkdir()
    runner.make_files(" ".join(DUMPS.values()))
    for name, source in DUMPS.items():
        shutil.copy(runner.folder / source, folder / name)
    (folder / "broken.dmp").write_bytes(b"MDMP")
    (folder / "notes.txt").write_text("no dump")
    return folder


def test_each_dump_is_one_row_and_crashes_are_grouped(runner: Runner, dumps: pathlib.Path) -> None:
    found = watch(runner, "dumps", "rows")
    assert set(found) == {*DUMPS, "broken.dmp"}
    assert found["monday.dmp"]["CrashKey"] == found["tuesday.dmp"]["CrashKey"] is not None
    assert found["monday.dmp"]["CrashKey"] != found["updater.dmp"]["CrashKey"] is not None
    assert found["broken.dmp"]["Exit"] == 1 and found["broken.dmp"]["Error"]
    lines = runner.output("vol -q -r jsonl -f crash.dmp minidump.traces")
    keys = {json.loads(line)["StackKey"] for line in lines if line.startswith("{")}
    assert found["monday.dmp"]["CrashKey"] in keys
    for statement, quoted in zip(blocks("sql"), blocks("text")):
        assert runner.sql(statement.text) == quoted.lines


def test_a_dump_is_read_once_when_it_is_complete(runner: Runner, dumps: pathlib.Path) -> None:
    folder = runner.folder / "growing"
    folder.mkdir()
    shutil.copy(dumps / "updater.dmp", folder)
    assert watch(runner, "growing", "grown", rounds=1) == {}
    first = watch(runner, "growing", "grown")
    written = (runner.folder / "grown" / "updater.dmp.json").stat().st_mtime_ns
    assert watch(runner, "growing", "grown") == first
    assert (runner.folder / "grown" / "updater.dmp.json").stat().st_mtime_ns == written
    shutil.copy(dumps / "monday.dmp", folder / "updater.dmp")
    again = watch(runner, "growing", "grown")
    assert again["updater.dmp"]["CrashKey"] != first["updater.dmp"]["CrashKey"]
    assert not list((runner.folder / "grown").glob("*.part"))


@pytest.mark.shared
def test_real_dumps_have_a_row_each(runner: Runner) -> None:
    folder = runner.folder / "real"
    folder.mkdir()
    for path in [*REAL.glob("*.dmp"), *REAL.glob("other_systems/*linux.dmp")]:
        shutil.copy(path, folder)
    found = watch(runner, "real", "real-rows")
    assert set(found) == {path.name for path in folder.iterdir()}
    for name, row in found.items():
        linux = name.endswith("linux.dmp")
        assert (row["Exit"] != 0) == linux, row
        assert not linux or "a process of Linux" in row["Error"]
    assert found["null_write_av.dmp"]["CrashName"] == "ACCESS_VIOLATION"
