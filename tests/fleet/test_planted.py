# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Nothing is imported from a folder of evidence: the current one, that of the image, the lake."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import List

import pytest

from stackfleet import child_process
from stackfleet.job import Reading
from stackfleet.lake import Lake
from tests.conftest import ROOT
from tests.support import fleetlakes
from tests.support.fleetimages import Fleet
from tests.support.fleetrun import COMMAND, environment, fleet

pytestmark = pytest.mark.once

NAMES = (
    *("queue", "ctypes", "json", "logging", "argparse", "threading", "multiprocessing", "uuid", "tempfile"),
    *("sitecustomize", "usercustomize", "stackfleet", "winstacks", "volatility3", "pyarrow", "duckdb"),
)
"""Modules that Python, stackfleet or what they need would import from such a folder."""


def plant(folder: pathlib.Path, marker: pathlib.Path) -> None:
    """Puts modules into a folder which say that they were run."""
    for name in NAMES:
        text = f"open({str(marker)!r}, 'a').write(__file__ + '\\n')\nraise SystemExit(99)\n"
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.fixture
def marker(tmp_path: pathlib.Path) -> pathlib.Path:
    """A file that is there once a planted module was run."""
    return tmp_path / "marker"


@pytest.fixture
def evidence(few: Fleet, marker: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with an image and planted modules, and a lake in it with such modules."""
    folder = tmp_path / "evidence"
    (folder / "lake").mkdir(parents=True)
    shutil.copy(few.paths[0], folder / "a.dmp")
    plant(folder, marker)
    plant(folder / "lake", marker)
    return folder


def ran(command: List[str], where: pathlib.Path, *words: object) -> None:
    known = {**environment(), "PYTHONPATH": str(ROOT)}
    line = [*command, *map(str, words)]
    done = subprocess.run(line, cwd=where, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("where", ["evidence", "evidence/lake"])
@pytest.mark.parametrize("way", ["module", "script"])
def test_a_run_beside_evidence_runs_none_of_it(
    way: str, where: str, few: Fleet, evidence: pathlib.Path, marker: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "bin" / "stackfleet"
    script.parent.mkdir()
    script.write_text(
        "import sys\nfrom stackfleet.__main__ import main\nsys.exit(main())\n", encoding="utf-8"
    )
    # Python itself looks for the package in the current folder before any line of it can forbid that.
    if way == "module":
        for folder in (evidence, evidence / "lake"):
            (folder / "stackfleet.py").unlink()
    command = [*COMMAND] if way == "module" else [sys.executable, str(script)]
    words = ("run", evidence / "a.dmp", "-o", evidence / "lake", *few.options, "--workers", 1)
    ran(command, tmp_path / where, *words)
    assert not marker.exists(), marker.read_text()


def test_a_path_with_an_empty_entry_is_not_the_current_folder(
    evidence: pathlib.Path, marker: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unset variable in front of a colon; a worker of Dask may have such an environment."""
    for known in (os.pathsep + str(ROOT), os.pathsep.join((os.curdir, str(ROOT))), f"{ROOT}{os.pathsep}"):
        monkeypatch.setenv("PYTHONPATH", known)
        monkeypatch.chdir(evidence)
        with tempfile.TemporaryFile() as log, child_process.ChildProcess(log) as process:
            reading = dataclasses.asdict(Reading(offline=True))
            process.send({"check": True, "reading": reading, "lake": str(evidence / "lake")})
            answer = process.hear(120)
            assert answer is not None and "versions" in answer, child_process.tail(log)
        assert not marker.exists(), marker.read_text()


def test_what_is_named_by_its_whole_path_is_still_imported(
    evidence: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An absolute entry of PYTHONPATH was meant, even where it is the current folder."""
    for name in NAMES:
        (evidence / f"{name}.py").unlink()
    (evidence / "sitecustomize.py").write_text(
        "import sys\nsys.stderr.write('imported\\n')\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(evidence), str(ROOT))))
    monkeypatch.chdir(evidence)
    with tempfile.TemporaryFile() as log, child_process.ChildProcess(log) as process:
        process.end(0.5)
        assert "imported" in child_process.tail(log)


def test_a_question_beside_evidence_runs_none_of_it(
    few: Fleet, evidence: pathlib.Path, marker: pathlib.Path
) -> None:
    fleetlakes.add(Lake(str(evidence / "lake"), create=True), "i1")
    for folder in (evidence, evidence / "lake"):
        (folder / "stackfleet.py").unlink()
        ran([*COMMAND], folder, "status", evidence / "lake")
    fleet("status", evidence / "lake", code=0)
    assert not marker.exists(), marker.read_text()
