# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Environments that are thrown away, into which the plugins are installed as README says."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import venv
from typing import List, Set

import pytest

from tests.conftest import ROOT

NAME = "volatility3-stacktraces"
PLUGIN = "windows.gflags"
HIDDEN = "cannot import name 'classproperty' from 'volatility3'"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


class Environment:
    """A virtual environment without pip: that of the tests installs into it."""

    def __init__(self, folder: pathlib.Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.programs = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.programs / ("python.exe" if os.name == "nt" else "python")

    def pip(self, *arguments: str, cwd: pathlib.Path = ROOT) -> "subprocess.CompletedProcess[str]":
        return call(*PIP, "--python", str(self.python), *arguments, cwd=cwd)

    def installs(self, *arguments: str, cwd: pathlib.Path = ROOT) -> None:
        succeeds(self.pip("install", "--quiet", *arguments, cwd=cwd))

    def vol(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return call(str(self.programs / "vol"), *arguments, cwd=self.folder)

    def shows_plugin(self, *options: str) -> bool:
        """Returns whether Volatility has the plugin. An AssertionError: Volatility itself does not run."""
        succeeds(self.vol("--help"))
        return self.vol(*options, PLUGIN, "--help").returncode == 0

    def tree(self) -> Set[str]:
        """The files and folders in it, without what Python makes when it runs and uv's lock."""
        places = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*"))
        return {place for place in places if "__pycache__" not in place and place != ".lock"}


def call(*command: str, cwd: pathlib.Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command as a user would, without what the tests' own environment adds."""
    added = ("PYTHON", "COVERAGE", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(added)}
    # uv trusts its own list of certificates otherwise; a proxy's certificate is in the system's only.
    clean.update({"UV_SYSTEM_CERTS": "1", **variables})
    return subprocess.run(
        command,
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
        timeout=900,
    )


def succeeds(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"


def readme(command: str) -> List[str]:
    """Returns a command's words; README must name it so."""
    assert command in README, f"README does not say: {command}"
    return command.split()


def tool(name: str, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a program of a package of the same name; skips where it cannot be had."""
    environment = Environment(tmp_path_factory.mktemp(name) / "tool")
    done = environment.pip("install", "--quiet", name)
    if done.returncode:
        pytest.skip(f"{name} cannot be had: {done.stderr.splitlines()[-1:]}")
    return environment.programs / name
