# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Measures the cost of the worst files of 1 MB: the worst command for each file.

The goals are 10 s of processor time and 300 MB for each command.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

from tests.forge.vol import REPOSITORY

from . import hostileforms as forms
from . import results
from .results import Line

_MOST_SECONDS, _MOST_MEGABYTES = 10, 300
_VOL = pathlib.Path(sys.executable).parent / "vol"
_PLUGINS = REPOSITORY / "volatility3_plugins"

NO_COMMANDS = ("layer", "bitmaplayer")
DUMP_COMMANDS = tuple(
    f"minidump.{path.stem}"
    for path in sorted((_PLUGINS / "minidump").glob("[a-z]*.py"))
    if path.stem not in NO_COMMANDS
)

PROCESS_DUMPS: Dict[str, Callable[[], bytes]] = {
    "handles with one text": forms.handles,
    "names of threads, one text": forms.names,
    "mapped files, one text": forms.mappings,
    "modules with one path": forms.modules,
    "threads with one CONTEXT": forms.threads,
    "threads on one stack of return addresses": forms.returns,
    "threads on one stack without a return address": forms.scanned,
    "x86 code without an end": forms.code,
}


class Cost(NamedTuple):
    """The cost of a command: processor time in seconds, and the largest resident size in megabytes."""

    seconds: float
    megabytes: float
    command: str


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures each command with each file, and keeps the worst."""
    found = []
    for name, path, commands in _files(folder):
        costs = [_cost(path, command) for command in commands]
        size = f"{path.stat().st_size / 1e6:.2f} MB" if path.stat().st_size < 1 << 30 else "40 GB"
        found += _worst(f"{name}, {size}", costs)
    for name, options in _folders(folder):
        command = ("minidump.callstacks", "--binaries", str(options))
        found += _worst(name, [_cost(folder / "without.dmp", *command)])
    return found


def _files(folder: pathlib.Path) -> Iterator[Tuple[str, pathlib.Path, Sequence[str]]]:
    """Yields a file at a time, and the commands that read it."""
    path = folder / "file.dmp"
    for name, make in PROCESS_DUMPS.items():
        path.write_bytes(make())
        yield name, path, DUMP_COMMANDS
    for count in (31_000, 131_072):
        path.write_bytes(forms.blocks(count))
        yield f"small kernel dump, {count:,} blocks", path, DUMP_COMMANDS
    path.write_bytes(forms.bitmap())
    yield "bitmap of alternating bits", path, ("windows.callstacks",)
    forms.sparse(path)
    yield "sparse bitmap", path, ("windows.callstacks",)


def _folders(folder: pathlib.Path) -> Iterator[Tuple[str, pathlib.Path]]:
    """Yields a folder for --binaries at a time, beside the dump that asks for its file."""
    files = folder / "files"
    files.mkdir()
    data = forms.relocated()
    (files / "ntdll.dll").write_bytes(data)
    (folder / "without.dmp").write_bytes(forms.without_code(data))
    yield f"--binaries: relocations of each page, {len(data) / 1e6:.2f} MB", files
    (files / "ntdll.dll").unlink()
    forms.spelled(files)
    one = next(iter(files.iterdir()))
    with one.open("rb") as file:
        (folder / "without.dmp").write_bytes(forms.without_code(file.read(0x1000)))
    yield "--binaries: 24 spellings of one name, sparse files of 2 GB", files


def _worst(what: str, costs: Sequence[Cost]) -> List[Line]:
    slow, big = max(costs, key=lambda cost: cost.seconds), max(costs, key=lambda cost: cost.megabytes)
    details = f"s of processor, `{slow.command}`"
    return [
        Line(what, "seconds", slow.seconds, _MOST_SECONDS, results.AT_MOST, details),
        results.memory(what, "memory", big.megabytes, _MOST_MEGABYTES, f"MB, `{big.command}`"),
    ]


def _cost(path: pathlib.Path, command: str, *options: str) -> Cost:
    words = [str(_VOL), "-q", "--offline", "-p", str(_PLUGINS), "-o", str(path.parent), "-f", str(path)]
    running = subprocess.Popen(
        [*words, command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, used = os.wait4(running.pid, 0)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, command)
