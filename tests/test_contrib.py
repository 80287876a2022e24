# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What contrib/ offers to Volatility: each change applies, passes its tests and serves our plugins."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, List

import pytest
import volatility3
from volatility3.framework import constants

from tests.conftest import ROOT
from tests.forge import demo, sample, vol

CONTRIB = ROOT / "contrib"
CHANGES = sorted(path.parent.name for path in CONTRIB.glob("*/volatility3.patch"))
FOR = (2, 28)
"""The Volatility that the changes are for. Where a newer one has a change, its folder goes."""

pytestmark = [
    pytest.mark.cli,
    pytest.mark.skipif(
        (constants.VERSION_MAJOR, constants.VERSION_MINOR) < FOR,
        reason="the changes are for a newer Volatility",
    ),
]


def patched(folder: pathlib.Path, *changes: str) -> pathlib.Path:
    """Copies the installed Volatility and applies changes; returns the folder that imports it.

    Bytecode is copied, too, and files keep their times: Python compiles anew what the changes touch.
    """
    shutil.copytree(pathlib.Path(volatility3.__file__).parent, folder / "volatility3")
    # Above the folder there may be a checkout, of which git would take these files to be.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    for change in changes:
        patch = str(CONTRIB / change / "volatility3.patch")
        done = subprocess.run(
            ["git", "apply", patch], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, pathlib.Path]:
    folder = tmp_path_factory.mktemp("sample")
    forged_image = sample.build().image()
    return {
        "file": forged_image.save(folder / "sample.dmp"),
        "symbols": forged_image.install(folder / "symbols"),
    }


def rows(framework: pathlib.Path, image: Dict[str, pathlib.Path], line: str) -> List[Any]:
    """Returns the rows of a plugin that runs on a patched Volatility."""
    command, environment = vol.prepare(image["file"], *line.split(), symbols=image["symbols"])
    environment["PYTHONPATH"] = str(framework)
    done = subprocess.run(
        command, env=environment, cwd=framework, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def its_own_tests(framework: pathlib.Path, change: str) -> "subprocess.CompletedProcess[str]":
    """Runs the tests of a change as they would lie in Volatility's tree: nothing of ours is imported.

    Their temporary files are beside it. In pytest's folder for all runs a new run deletes the files of old
    runs, which takes minutes after a run of all tests.
    """
    shutil.copytree(CONTRIB / change, framework / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    return subprocess.run(
        [
            *command,
            "--rootdir",
            str(framework),
            "--basetemp",
            str(framework / "temporary"),
            str(framework / "tests"),
        ],
        env={**os.environ, "PYTHONPATH": str(framework)},
        cwd=framework,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_passes_its_tests_and_serves_our_plugins(
    change: str, image: Dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    framework = patched(tmp_path / "made", change)
    done = its_own_tests(framework, change)
    assert done.returncode == 0, done.stdout
    line = "windows.callstacks"
    assert rows(framework, image, line) == vol.run(image["file"], line, symbols=image["symbols"]).rows


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_change_its_tests_fail(
    change: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_all_runs = tmp_path / "runs"
    of_all_runs.mkdir()
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(of_all_runs))
    assert its_own_tests(patched(tmp_path / "made"), change).returncode == pytest.ExitCode.TESTS_FAILED
    assert not list(of_all_runs.iterdir()), "the folders of other runs, which pytest would clear up"


def test_our_plugins_run_on_all_changes_together(
    image: Dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    framework = patched(tmp_path / "made", *CHANGES)
    for command in demo.COMMANDS:
        expected = vol.run(image["file"], *command.line.split(), symbols=image["symbols"]).rows
        assert rows(framework, image, command.line) == expected, command.line


def test_the_kernel_call_stacks_are_those_that_our_walker_finds(
    image: Dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    """Two walkers that share no line of code."""
    theirs = rows(patched(tmp_path / "made", "kernel-callstack"), image, "windows.kernelstacks")
    ours = vol.run(image["file"], "windows.callstacks", symbols=image["symbols"]).flat
    found = {(row["TID"], row["Frame"], row["Address"]) for row in theirs}
    kernel = {
        (row["TID"], row["Frame"], row["Address"])
        for row in ours
        if row["Address"] is not None and row["Address"] >> 47
    }
    assert len(found) > 20
    assert found <= kernel


@pytest.mark.parametrize("change", CHANGES)
def test_a_text_argues_with_a_figure(change: str) -> None:
    text = (CONTRIB / change / "README.md").read_text(encoding="utf-8")
    assert re.search(r"[Mm]easured", text) and re.search(r"\d", text)
    assert f"({change}/README.md)" in (CONTRIB / "README.md").read_text(encoding="utf-8")
