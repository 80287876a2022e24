# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Compiles the programs that the walker is tested with, by mingw-w64 where it is installed."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import NamedTuple, Tuple

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
PREFIX = {"x64": "x86_64-w64-mingw32-", "x86": "i686-w64-mingw32-"}
PACKAGES = {
    "x64": "gcc-mingw-w64-x86-64 g++-mingw-w64-x86-64",
    "x86": "gcc-mingw-w64-i686 g++-mingw-w64-i686",
}


class Build(NamedTuple):
    """What to compile and how: `options` are the compiler's, `libraries` come last on its command line."""

    name: str
    source: str
    options: Tuple[str, ...] = ()
    libraries: Tuple[str, ...] = ("-nodefaultlibs", "-lgcc")
    arch: str = "x64"


def build(member: Build, folder: pathlib.Path) -> pathlib.Path:
    """Compiles a program without start-up code; skips the test where the compiler is not installed.

    Returns:
        The executable; its entry point is the function `start`.
    """
    compiler = shutil.which(PREFIX[member.arch] + ("g++" if member.source.endswith(".cpp") else "gcc"))
    if compiler is None:
        pytest.skip(f"mingw-w64 is not installed (Debian: {PACKAGES[member.arch]})")
    entry = "start" if member.arch == "x64" else "_start"
    target = folder / f"{member.name}-{member.arch}.exe"
    command = [
        compiler,
        *member.options,
        "-nostartfiles",
        f"-Wl,-e,{entry}",
        "-o",
        str(target),
    ]
    command += [str(PROGRAMS / member.source), *member.libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target
