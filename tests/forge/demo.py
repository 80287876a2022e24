# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Builds the sample image and runs the plugins on it, as a user would.

python3 -m tests.forge.demo FOLDER [WHERE]      FOLDER gets the image; commands are those of a shell in WHERE
"""

from __future__ import annotations

import logging
import os
import signal

if __name__ == "__main__":
    # Ctrl-C ends this without a traceback, from here on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import pathlib
import shlex
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple

from . import context, sample, vol

_KEYS = ["EntryAddress", "BackTraceHash", "Committed", "Reserved", "Lookups", "BackTraces", "File"]
_LESSER_REGISTERS = [
    *("Source", "Rbp", "Rdx", "Rsi", "Rdi", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "EFlags", "Seg"),
    *("GsSwap", "PreviousMode", "PreviousIrql", "Dr", "MxCsr", "Member", "Value"),
]
NO_WARNING = ("Volatility 3 Framework", "Formatting...", "Progress:")
"""How lines begin that Volatility prints beside its rows and that warn of nothing."""
_LOCK_COUNTS = ["LockCount", "ContentionCount", "EntryCount", "RecursionCount", "NumberOf"]


class Command(NamedTuple):
    """A plugin with its options, how to show it, and the columns to leave out so that a terminal shows it."""

    line: str
    renderer: str
    hidden: List[str]


COMMANDS = [
    Command("windows.tracefindings --brief", "pretty", []),
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
    Command("windows.heaptraces", "pretty", ["Source", "EntryAddress", "CountGrowth", "BytesGrowth", "File"]),
]


class Finding(NamedTuple):
    """What is wrong in the sample, the command that shows it, and cells of the row that does."""

    sentence: str
    line: str
    cells: Dict[str, Any]


FINDINGS = [
    Finding(
        "A thread of updater.exe runs private memory, not a module: the worst finding:",
        "windows.tracefindings --brief",
        {"Severity": "high", "Finding": "unbacked", "PID": 4312, "TID": 4320, "Symbol": "<private>"},
    ),
    Finding(
        "A driver that is gone left a trace of itself, <unloaded:aimhook>: Index 3 of PID 0 in",
        "windows.stacktracedb --fold",
        {"PID": 0, "Index": 3, "Stack": "<unloaded:aimhook>+0x1a34"},
    ),
    Finding(
        "The kernel ran code in no module, <no-module>, to open a file: Index 4, Frame 0 of PID 0 in",
        "windows.stacktracedb --unbacked",
        {"PID": 0, "Index": 4, "Frame": 0, "Symbol": "<no-module>"},
    ),
    Finding(
        "Injected code, <private>, in updater.exe opened the process legacy.exe: Handle 0x8c in",
        "windows.handletraces --leaks",
        {"PID": 4312, "Handle": 0x8C, "Symbol": "<private>"},
    ),
]


def short(path: pathlib.Path, where: pathlib.Path) -> str:
    """Returns a path as somebody in a folder would type it."""
    return str(path.relative_to(where)) if where in path.parents else str(path)


def shell(command: List[str]) -> str:
    """Returns a command as it is typed."""
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def run(command: List[str], where: pathlib.Path, cache: pathlib.Path) -> None:
    """Prints a command and what it gives: first its rows, then its warnings."""
    print(f"\n$ {shell(command)}", flush=True)
    # Volatility makes its cache folder before it reads --cache-path.
    environment = dict(os.environ, XDG_CACHE_HOME=str(cache), PYTHONWARNINGS="ignore")
    done = subprocess.run(
        command, stderr=subprocess.PIPE, text=True, env=environment, cwd=where, check=False, errors="replace"
    )
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith(NO_WARNING)]
    print("".join(f"! {line}\n" for line in lines), end="", flush=True)
    if done.returncode:
        raise SystemExit(f"This command ended with {done.returncode}.")


def write_dumps(file: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes the dumps that the documentation reads beside the image."""
    # A sample is built without them: what reads the image needs the library.
    from tests.support import processdumps, smalldumps

    shutil.copytree(folder / "symbols", context.symbol_directory(), dirs_exist_ok=True)
    opened = context.open_file(file)
    for name in processdumps.SAMPLE:
        processdumps.write_of_sample(opened, folder / name)
    smalldumps.write_of_sample(opened, folder / smalldumps.SAMPLE)


def main(folder: pathlib.Path, where: pathlib.Path) -> None:
    """Makes the image in a folder and prints what each command gives."""
    description = "a crash dump of Windows 10 x64, a small one, and dumps of two of its processes"
    print(f"Building {description}, in {short(folder, where)} ...", end="", flush=True)
    # What the writer of the dumps warns of is the sample's: the commands below show it.
    logging.getLogger("winstacks").addHandler(logging.NullHandler())
    start = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    image = sample.build().image()
    file = image.save(folder / "sample.dmp")
    symbols = image.install(folder / "symbols")
    cache = folder / "cache"
    vol.trust(symbols, cache)
    write_dumps(file, folder)
    print(f" {time.monotonic() - start:.1f} s")
    print(f"{len(COMMANDS)} commands follow, each about 2 s, ready to paste. Lines with ! are warnings.")
    executable = pathlib.Path(sys.executable).with_name("vol.exe" if os.name == "nt" else "vol")
    start_of_all = [short(executable, where), "-q", "--offline", "-f", short(file, where)]
    start_of_all += ["-s", short(symbols, where), "--cache-path", short(cache, where)]
    for line, renderer, hidden in COMMANDS:
        without = ["--hide-columns", *hidden] if hidden else []
        run([*start_of_all, *without, "-r", renderer, *line.split()], where, cache)
    print("\nWhat is wrong in this sample, and which row above shows it:")
    for number, finding in enumerate(FINDINGS, 1):
        print(f"{number}. {finding.sentence} {finding.line}")
    own = shell([start_of_all[0], "-f", "memory.dmp", "windows.gflags"])
    print(f"Next, on an image of your own: {own}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(*sys.argv[2:3]).resolve())
