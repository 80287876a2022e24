# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The plugins of this tree against those of another checkout: `python3 -m benchmarks.paired OTHER`.

Both read the same images, in turns (A B A B). The figure of a command is the median of the ratios of its
pairs: this tree by the other, processor time. Above 1 this tree costs more. Beside it stands the ratio of the
cheapest runs, which a machine that does other things as well disturbs less. Rows are made and not printed:
printing costs by the column, whoever fills them. `--tree` names a checkout that stands for this tree: what
one change has cost, whatever came after it.

With `--instructions` one run of each is counted by valgrind on smaller images: the same figure at every time,
whatever else the machine does. The second ratio is without what `windows.info` takes there, which is most of
a command on so small an image.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from tests.forge.vol import REPOSITORY

from . import images, owners, stacks
from .images import Image
from .measure import RunFailedError, arguments_of, vol

RUNS = 7
_WORK = f"windows.work.Work --pid {images.PID} --what "
OPENING = "windows.info"
"""A command that opens the image and does little else."""
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


class Subject(NamedTuple):
    """A command, the image that it reads, and the sizes of that for seconds and for instructions.

    Of `windows.work` only the work itself is timed.
    """

    command: str
    make: Callable[[pathlib.Path, int], Image]
    size: int
    few: int


def _processes(folder: pathlib.Path, count: int) -> Image:
    return images.processes(folder, count, 64)


def _threads(folder: pathlib.Path, processes: int) -> Image:
    return stacks.threads(folder, processes, 30)


SUBJECTS: Dict[str, Subject] = {
    "decode": Subject(_WORK + "decode", images.database, 100_000, 20_000),
    "dump": Subject(_WORK + "dump", images.database, 164_554, 20_000),
    "rows": Subject("windows.stacktracedb", images.database, 10_000, 2_000),
    "fold": Subject("windows.stacktracedb --fold", images.database, 164_554, 20_000),
    "index": Subject("windows.stacktracedb --fold --index 5", images.database, 164_554, 164_554),
    "find": Subject("windows.stacktracedb --fold --find *!Function00003+*", images.database, 164_554, 20_000),
    "pid": Subject(f"windows.stacktracedb --fold --pid {images.PID + 40}", _processes, 1000, 100),
    "gflags": Subject("windows.gflags", _processes, 1000, 100),
    "trapframes": Subject("windows.trapframes", _threads, 100, 10),
    "callstacks": Subject("windows.callstacks", _threads, 100, 10),
    "waits": Subject("windows.waits", _threads, 100, 10),
    "locks": Subject("windows.locks", owners.locks, 10_000, 1_000),
    "handles": Subject("windows.handletraces", owners.handles, 10_000, 1_000),
    "objects": Subject("windows.objecttraces", owners.objects, 10_000, 1_000),
    "heaps": Subject("windows.heaptraces", owners.blocks, 100_000, 10_000),
    "traces": Subject("windows.traces", _threads, 100, 10),
    "findings": Subject("windows.tracefindings", _threads, 100, 10),
}


def timed(
    trees: Sequence[pathlib.Path], subject: Subject, folder: pathlib.Path, runs: int
) -> List[Tuple[float, float]]:
    """Returns the seconds of the pairs in the order of the trees, after one pair that is not counted."""
    image = subject.make(folder, subject.size)
    works = [partial(_seconds, image, subject.command, tree) for tree in trees]
    ours, theirs = zip(*([work() for work in works] for _ in range(runs + 1)))
    return list(zip(ours, theirs))[1:]


def _seconds(image: Image, command: str, tree: pathlib.Path) -> float:
    working = command.startswith(_WORK)
    run = vol(image, *command.split(), renderer="json" if working else "none", keep=working, tree=tree)
    return float(json.loads(run.output)[0]["Seconds"]) if working else run.cost.seconds


def counted(trees: Sequence[pathlib.Path], subject: Subject, folder: pathlib.Path) -> List[Tuple[int, int]]:
    """Returns for each tree the instructions of the command, and those of opening the image alone."""
    image = subject.make(folder, subject.few)
    return [
        (_instructions(image, subject.command, tree), _instructions(image, OPENING, tree)) for tree in trees
    ]


def _instructions(image: Image, command: str, tree: pathlib.Path) -> int:
    vol(image, *command.split(), tree=tree)  # symbol tables are checked once, and bytecode is written
    executable = pathlib.Path(sys.executable).with_name("vol")
    words = [
        *_VALGRIND,
        sys.executable,
        str(executable),
        *arguments_of(image, "none", tree, command),
        *command.split(),
    ]
    environment = dict(os.environ, XDG_CACHE_HOME=str(image.cache), PYTHONHASHSEED="0")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    found = _COUNTED.search(done.stderr)
    if done.returncode or found is None:
        raise RunFailedError(done.stderr)
    return int(found.group(1).replace(",", ""))


def _spread(pairs: Sequence[Tuple[float, float]]) -> str:
    ratios = [ours / theirs for ours, theirs in pairs]
    cheapest = min(ours for ours, _ in pairs) / min(theirs for _, theirs in pairs)
    return f"{statistics.median(ratios):.3f} | {min(ratios):.2f} to {max(ratios):.2f} | {cheapest:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=pathlib.Path, help="a checkout of another version")
    parser.add_argument("names", nargs="*", help=", ".join(SUBJECTS))
    parser.add_argument("--tree", type=pathlib.Path, default=REPOSITORY, help="a checkout for this tree")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"pairs, {RUNS} if nothing is said")
    parser.add_argument("--instructions", action="store_true", help="count instructions; takes valgrind")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(SUBJECTS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    trees = (arguments.tree.resolve(), arguments.other.resolve())
    if arguments.instructions:
        print(
            "| command | instructions | without opening | this tree, the other |\n|---|---|---|---|",
            flush=True,
        )
    else:
        print(
            f"| command | median of {arguments.runs} | from, to | cheapest |\n|---|---|---|---|", flush=True
        )
    for name in arguments.names or SUBJECTS:
        with tempfile.TemporaryDirectory() as folder:
            if arguments.instructions:
                (ours, opened), (theirs, opened_there) = counted(trees, SUBJECTS[name], pathlib.Path(folder))
                net = (ours - opened) / (theirs - opened_there)
                text = f"{ours / theirs:.3f} | {net:.3f} | {ours:,}, {theirs:,}"
            else:
                text = _spread(timed(trees, SUBJECTS[name], pathlib.Path(folder), arguments.runs))
        print(f"| {name} | {text} |", flush=True)


if __name__ == "__main__":
    main()
