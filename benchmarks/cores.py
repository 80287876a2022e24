# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The option --workers on the forged machine: `python3 -m benchmarks.cores FOLDER` of `benchmarks.machine`.

`python3 -m benchmarks cores` does it once on a fifth of the machine, or on the one in STACKTRACES_MACHINE.

One process and two workers run in turns. The clock says what a user waits on this machine, whatever else it
does; the loads beside it say what else that was. Processor seconds of each process do not depend on that, and
give the clock of a machine with so many free processors (`simulated`).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Dict, List, NamedTuple

from . import machine
from .images import Image
from .measure import RunFailedError, arguments_of
from .results import AT_MOST, Line

COMMANDS = (
    "windows.tracereport",
    "windows.tracegraph",
    "windows.waits",
    "windows.trapframes",
    "windows.callstacks",
    "windows.traces",
    "windows.tracefindings",
    "windows.heaptraces",
    "windows.stacktracedb --fold",
    "windows.stacktracedb",
)
_HERE = pathlib.Path(__file__).resolve().parent
RUNS = 3
_PART = 0.2
ON_EIGHT = 0.2
"""Most of the time of one process that eight free processors should need."""


class Parts(NamedTuple):
    """Seconds of a run: by the clock; of the processor before and after the fork; of the workers. Also the
    memory of the first process, in megabytes."""

    clock: float
    before: float
    after: float
    workers: float
    memory: float

    @property
    def processor(self) -> float:
        """Processor seconds of all processes."""
        return self.before + self.after + self.workers

    def simulated(self, processors: int) -> float:
        """Returns the clock on so many free processors.

        What is before the fork is serial. Then the first process joins rows while the workers make them:
        neither can take less than the first process needs, nor all together less than their share.
        """
        return self.before + max(self.after, (self.after + self.workers) / processors)


def run(image: Image, command: str, workers: int) -> Parts:
    """Runs a command with so many workers, 1 for one process."""
    program = pathlib.Path(sys.executable).with_name("vol")
    plugin, *options = command.split()
    with tempfile.TemporaryDirectory() as folder:
        cost = pathlib.Path(folder) / "cost"
        words = [sys.executable, str(_HERE / "divided.py"), str(cost), str(program), "-o", folder]
        words += [*arguments_of(image, "quick"), plugin, *options, "--workers", str(workers)]
        done = subprocess.run(
            words,
            env=dict(os.environ, XDG_CACHE_HOME=str(image.cache)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        figures: Dict[str, float] = json.loads(cost.read_text(encoding="utf-8")) if cost.exists() else {}
    if done.returncode or figures.pop("code", 1):
        raise RunFailedError(done.stderr)
    return Parts(**figures)


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures each command once, with one process and with two workers, by processor time."""
    known = os.environ.get("STACKTRACES_MACHINE")
    image = machine_in(pathlib.Path(known)) if known else machine.make(folder, _PART)[1]
    size = f"{image.file.stat().st_size >> 30} GB"
    found = []
    for command in COMMANDS:
        one, two = run(image, command, 1), run(image, command, 2)
        what = f"`{command}`, {size}"
        serial = (two.before + two.after) / one.processor
        seconds = f"{two.before:.1f} s + {two.after:.1f} s / {one.processor:.1f} s"
        found.append(Line(what, "one process: serial share", serial, None, AT_MOST, seconds))
        shares = f"workers {two.workers:.1f} s; on 2: {two.simulated(2) / one.processor:.2f}"
        ratio = two.simulated(8) / one.processor
        found.append(Line("the same", "simulated on 8 processors", ratio, ON_EIGHT, AT_MOST, shares))
    return found


def machine_in(folder: pathlib.Path) -> Image:
    """Returns the machine that `benchmarks.machine` left in a folder."""
    return Image(folder / "image.raw", folder / "symbols", folder / "cache")


def table(image: Image, commands: List[str], runs: int) -> str:
    """Returns the figures of some commands as a Markdown table."""
    rows = [
        "| command | clock, two workers / one process | processor seconds: one process; two workers: "
        "before + after + workers | serial share | simulated on 2 | on 8 | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for command in commands:
        pairs = [(run(image, command, 1), run(image, command, 2)) for _ in range(runs)]
        clocks = [two.clock / one.clock for one, two in pairs]
        one = min((pair[0] for pair in pairs), key=lambda parts: parts.processor)
        two = min((pair[1] for pair in pairs), key=lambda parts: parts.processor)
        rows.append(
            f"| `{command}` | {statistics.median(clocks):.2f} ({min(clocks):.2f} to {max(clocks):.2f}) "
            f"| {one.processor:.1f}; {two.before:.1f} + {two.after:.1f} + {two.workers:.1f} "
            f"| {(two.before + two.after) / one.processor:.2f} "
            f"| {two.simulated(2) / one.processor:.2f} | {two.simulated(8) / one.processor:.2f} "
            f"| {two.memory:.0f} MB, one process {one.memory:.0f} MB |"
        )
        print(rows[-1], flush=True)
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="with the image of benchmarks.machine")
    parser.add_argument("commands", nargs="*", help="of the plugins; all of the list if none is named")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"pairs of each command, {RUNS} by default")
    arguments = parser.parse_args()
    image = machine_in(arguments.folder.resolve())
    now = datetime.datetime.now(datetime.timezone.utc)
    load = os.getloadavg()
    found = table(image, arguments.commands or list(COMMANDS), arguments.runs)
    size = image.file.stat().st_size >> 30
    busy = f"load {load[0]:.1f} at the begin and {os.getloadavg()[0]:.1f} at the end"
    print(f"\n{now:%Y-%m-%d}, {os.cpu_count()} processors, {busy}; an image of {size} GB\n\n{found}")


if __name__ == "__main__":
    main()
