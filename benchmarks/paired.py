# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The plugins of this tree against those of another checkout: `python3 -m benchmarks.paired OTHER`.

Both read the same images, in turns (A B A B). The figure of a command is the median of the ratios of its
pairs: this tree by the other, processor time. Above 1 this tree costs more.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import tempfile
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Sequence

from tests.forge.vol import REPOSITORY

from . import images, owners, stacks
from .images import Image
from .measure import vol

RUNS = 7
ENTRIES = 100_000
FULL = 164_554
_WORK = f"windows.work.Work --pid {images.PID} --what "


class Subject(NamedTuple):
    """A command, and the image that it reads; of `windows.work` only the work itself is timed."""

    command: str
    make: Callable[[pathlib.Path], Image]


def _made(make: Callable[..., Image], *sizes: int) -> Callable[[pathlib.Path], Image]:
    return lambda folder: make(folder, *sizes)


SUBJECTS: Dict[str, Subject] = {
    "decode": Subject(_WORK + "decode", _made(images.database, ENTRIES)),
    "dump": Subject(_WORK + "dump", _made(images.database, FULL)),
    "rows": Subject("windows.stacktracedb", _made(images.database, 10_000)),
    "fold": Subject("windows.stacktracedb --fold", _made(images.database, FULL)),
    "index": Subject("windows.stacktracedb --fold --index 5", _made(images.database, FULL)),
    "find": Subject("windows.stacktracedb --fold --find *!Function00003+*", _made(images.database, FULL)),
    "pid": Subject(
        f"windows.stacktracedb --fold --pid {images.PID + 400}", _made(images.processes, 1000, 64)
    ),
    "gflags": Subject("windows.gflags", _made(images.processes, 1000, 64)),
    "trapframes": Subject("windows.trapframes", _made(stacks.threads, 100, 30)),
    "callstacks": Subject("windows.callstacks", _made(stacks.threads, 100, 30)),
    "locks": Subject("windows.locks", _made(owners.locks, 10_000)),
    "handles": Subject("windows.handletraces", _made(owners.handles, 10_000)),
    "objects": Subject("windows.objecttraces", _made(owners.objects, 10_000)),
    "heaps": Subject("windows.heaptraces", _made(owners.blocks, 100_000)),
}


def compare(other: pathlib.Path, subject: Subject, folder: pathlib.Path, runs: int) -> List[float]:
    """Returns the ratios of the pairs, after one pair that is not counted."""
    image = subject.make(folder)
    works = [partial(_seconds, image, subject.command, tree) for tree in (REPOSITORY, other)]
    pairs = [[work() for work in works] for _ in range(runs + 1)][1:]
    return [ours / theirs for ours, theirs in pairs]


def _seconds(image: Image, command: str, tree: pathlib.Path) -> float:
    working = command.startswith(_WORK)
    run = vol(image, *command.split(), renderer="json" if working else "quick", keep=working, tree=tree)
    return float(json.loads(run.output)[0]["Seconds"]) if working else run.cost.seconds


def line(name: str, ratios: Sequence[float]) -> str:
    """Returns a row of the table."""
    return f"| {name} | {statistics.median(ratios):.3f} | {min(ratios):.3f} to {max(ratios):.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=pathlib.Path, help="a checkout of another version")
    parser.add_argument("names", nargs="*", help=", ".join(SUBJECTS))
    parser.add_argument("--runs", type=int, default=RUNS, help=f"pairs, {RUNS} if nothing is said")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(SUBJECTS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    print(f"| command | median of {arguments.runs} | from, to |\n|---|---|---|", flush=True)
    for name in arguments.names or SUBJECTS:
        with tempfile.TemporaryDirectory() as folder:
            ratios = compare(arguments.other.resolve(), SUBJECTS[name], pathlib.Path(folder), arguments.runs)
        print(line(name, ratios), flush=True)


if __name__ == "__main__":
    main()
