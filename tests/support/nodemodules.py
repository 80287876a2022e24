# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The packages of npm that the tests use, as package-lock.json pins them: speedscope, ESLint, TypeScript."""

from __future__ import annotations

import functools
import pathlib
import shutil
import subprocess

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "tests" / "pages"
"""Has package.json, package-lock.json, and what checks the scripts."""


@functools.lru_cache(maxsize=None)
def _installed() -> str:
    """Installs the packages; returns why that cannot be done, empty if it is done."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    if (FOLDER / "node_modules" / ".package-lock.json").exists():
        return ""
    done = subprocess.run(
        [npm, "ci", "--no-audit", "--no-fund"], cwd=FOLDER, capture_output=True, check=False
    )
    return f"npm ci ended with {done.returncode}" if done.returncode else ""


def folder(package: str) -> pathlib.Path:
    """Returns the folder of a package; skips the test where it cannot be had."""
    missing = _installed()
    if missing:
        pytest.skip(f"{package}: {missing}")
    return FOLDER / "node_modules" / package


def lint() -> None:
    """Fails where ESLint or the compiler of TypeScript finds a fault in the scripts."""
    folder("eslint")
    for command in (["npm", "run", "--silent", "lint"],):
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
