# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Builds the sample image and runs the plugins on it, as a user would.

python3 -m tests.forge.demo FOLDER
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from typing import List, NamedTuple

from . import sample, vol

_KEYS = ["EntryAddress", "Hash", "Committed", "Reserved", "Lookups", "BackTraces", "File"]
_LESSER_REGISTERS = [
    *("Source", "Rbp", "Rdx", "Rsi", "Rdi", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "EFlags", "Seg"),
    *("GsSwap", "PreviousMode", "PreviousIrql", "Dr", "MxCsr", "Member", "Value"),
]
_LOCK_COUNTS = ["LockCount", "ContentionCount", "EntryCount", "RecursionCount", "NumberOf"]


class Command(NamedTuple):
    """A plugin with its options, how to show it, and the columns to leave out so that a terminal shows it."""

    line: str
    renderer: str
    hidden: List[str]


COMMANDS = [
    Command("windows.gflags", "pretty", ["Freed", "Unindexed", "Mismatched", "Unreadable", "Orphans"]),
    Command(
        "windows.stacktracedb --fold",
        "quick",
        ["Database", "Depth", "Frame", "Address", "Symbol", "Source", *_KEYS],
    ),
    Command("windows.stacktracedb --unbacked", "pretty", ["Database", "Stack", *_KEYS]),
    Command("windows.trapframes --scan-stacks", "pretty", _LESSER_REGISTERS),
    Command("windows.callstacks --pid 4312", "pretty", ["Source", "StartAddress", "Count"]),
    Command("windows.locks --held", "pretty", ["EntryCount", "Source", "File"]),
    Command("windows.locks --unbacked", "pretty", [*_LOCK_COUNTS, "Own", "Source", "File"]),
    Command("windows.handletraces --leaks", "pretty", ["Source"]),
    Command("windows.objecttraces", "pretty", ["Source"]),
    Command(
        "windows.heaptraces", "pretty", ["Source", "EntryAddress", "AllocationsGrowth", "BytesGrowth", "File"]
    ),
]


def main(folder: pathlib.Path) -> None:
    """Makes the image in a folder and prints what each command gives."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    image = sample.build().image()
    file = image.save(folder / "sample.dmp")
    symbols = image.install(folder / "symbols")
    cache = folder / "cache"
    vol.trust(symbols, cache)
    print(f"A Windows 10 x64 crash dump was built in {folder}", flush=True)
    executable = pathlib.Path(sys.executable).with_name("vol")
    for line, renderer, hidden in COMMANDS:
        print(f"\n$ vol -f sample.dmp -s symbols {line}", flush=True)
        command = [sys.executable, str(executable), "-q", "--offline", "-f", str(file), "-s", str(symbols)]
        command += ["--hide-columns", *hidden, "--cache-path", str(cache), "-r", renderer]
        environment = dict(os.environ, XDG_CACHE_HOME=str(cache))
        subprocess.run([*command, *line.split()], check=True, env=environment, cwd=folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
