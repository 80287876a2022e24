# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Tries a release as a user would: each archive in an otherwise empty environment, on the sample."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import venv
from typing import Any, Dict, List

from tests.forge import demo, sample, vol

from . import ReleaseError

LINES = [command.line for command in demo.COMMANDS]
"""The plugins with their options, in the form that `dev.py demo` runs."""


class Sample:
    """The sample image on the disk, with its symbol tables.

    Args:
        folder: folder for the image, the tables and Volatility's cache
    """

    def __init__(self, folder: pathlib.Path) -> None:
        made = sample.build().image()
        self.file = made.save(folder / "sample.dmp")
        self.symbols = made.install(folder / "symbols")
        self.cache = folder / "cache"
        vol.trust(self.symbols, self.cache)

    def options(self) -> List[str]:
        options = ["-q", "--offline", "-r", "json", "-s", str(self.symbols), "-f", str(self.file)]
        return [*options, "--cache-path", str(self.cache)]


class Environment:
    """A virtual environment without pip; the pip of the running Python installs into it."""

    def __init__(self, folder: pathlib.Path) -> None:
        venv.create(folder, with_pip=False)
        self.folder = folder
        self.programs = folder / ("Scripts" if os.name == "nt" else "bin")

    def pip(self, *arguments: str) -> str:
        """Runs pip for this environment; returns its output."""
        python = str(self.programs / ("python.exe" if os.name == "nt" else "python"))
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        return self._run([*pip, *arguments])

    def rows(self, image: Sample, line: str, *options: str) -> List[Any]:
        """Returns the rows of a plugin on the sample.

        Raises:
            ReleaseError: the plugin failed, or showed nothing
        """
        program = str(self.programs / "vol")
        shown = json.loads(self._run([program, *image.options(), *options, *line.split()]))
        if not shown:
            raise ReleaseError(f"{line} shows nothing of the sample, as installed in {self.folder.name}")
        return list(shown)

    def installed(self) -> List[Dict[str, Any]]:
        """Returns pip's data of the installed packages."""
        return list(json.loads(self.pip("inspect"))["installed"])

    def _run(self, command: List[str]) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=clean,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise ReleaseError(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return done.stdout


def same_rows(image: Sample, ways: Dict[str, List[str]], environments: Dict[str, Environment]) -> None:
    """Runs each plugin in each way.

    Args:
        ways: options of Volatility, by name of the way
        environments: the environment of each way

    Raises:
        ReleaseError: a plugin fails, shows nothing, or shows different rows in one of the ways
    """
    for line in LINES:
        shown = {name: environments[name].rows(image, line, *options) for name, options in ways.items()}
        first = next(iter(shown.values()))
        other = [name for name, rows in shown.items() if rows != first]
        if other:
            raise ReleaseError(f"{line} shows other rows from {', '.join(other)}")
