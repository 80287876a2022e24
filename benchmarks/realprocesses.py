# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of real programs: stacks against StackWalk64, findings above `low`, time and memory.

    python3 -m benchmarks.realprocesses FOLDER [NAME...]

A folder has NAME.dmp, a dump with all memory, and NAME.json, the walks of StackWalk64 while all threads were
suspended: `{"threads": [{"tid": ..., "walked": [[address, sp], ...]}]}`. CONTRIBUTING.md has the commands
that make such dumps. A thread is idle if it waits in a system call, else busy. A walk of StackWalk64 that
does not end where threads begin is not whole, and is no truth.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import tempfile
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from winstacks.stacklist.shown import shown_numbers

from . import results
from .images import Image
from .measure import Cost, vol
from .results import Line

FOLDER = "STACKTRACES_DUMPS"
"""The variable of the environment with a folder of such dumps, for `python3 -m benchmarks`."""

MOST_MEMORY = 200
"""Megabytes, for a process of any size."""
MOST_SECONDS = 10
IDLE_GOAL, BUSY_GOAL = 0.95, 0.85
LOW = "low"

Row = Dict[str, Any]


class Compared(NamedTuple):
    """A dump against the truth: counts of threads, frames and findings, and what the commands cost.

    Attributes:
        idle, busy: threads whose truth is whole
        idle_equal, busy_equal: of these, threads with the same frames, sure or not; of a deep stack those
            that the command shows
        sure: sure frames of all these threads
        wrong: sure frames that are not in the truth
        alarms: findings above `low`
        stacks, findings: cost of minidump.callstacks and minidump.tracefindings
    """

    name: str
    idle: int
    idle_equal: int
    busy: int
    busy_equal: int
    sure: int
    wrong: int
    alarms: int
    stacks: Cost
    findings: Cost


def compare(path: pathlib.Path, folder: pathlib.Path) -> Compared:
    """Reads a dump with our plugins and compares their rows with the truth beside the dump.

    Args:
        path: the dump
        folder: for Volatility's cache
    """
    dump = Image(path, _made(folder / "symbols"), _made(folder / "cache"))
    stacks = vol(dump, "minidump.callstacks", renderer="jsonl", keep=True)
    checked = vol(dump, "minidump.tracefindings", renderer="jsonl", keep=True)
    walked: Dict[int, List[Row]] = {}
    for row in rows_of(stacks.output):
        if row["Part"] == "user" and row["Frame"] is not None and row["Address"]:
            walked.setdefault(row["TID"], []).append(row)
    counts = dict.fromkeys(("idle", "idle_equal", "busy", "busy_equal", "sure", "wrong"), 0)
    truth = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["threads"]
    ends = _ends(walked.values())
    for thread in truth:
        expected = [address for address, _ in thread["walked"] if address]
        found = walked.get(thread["tid"], [])
        if not expected or expected[-1] not in ends:
            continue
        sure = [row["Address"] for row in found if "unsure" not in (row["Status"] or "")]
        counts["sure"] += len(sure)
        counts["wrong"] += len(set(sure) - set(expected))
        kind = "idle" if found and _waits(found[0]) else "busy"
        counts[kind] += 1
        counts[f"{kind}_equal"] += equal(found, expected)
    alarms = sum(row["Severity"] not in (None, LOW) for row in rows_of(checked.output))
    return Compared(path.stem, **counts, alarms=alarms, stacks=stacks.cost, findings=checked.cost)


def equal(found: Sequence[Row], expected: Sequence[int]) -> bool:
    """Returns whether the rows of a stack are what a command shows of the frames of a walk.

    Commands leave out the middle of a deep stack. The numbers of the frames show how deep the stack is.
    """
    shown = [(number, expected[number]) for number in shown_numbers(len(expected))]
    return [(row["Frame"], row["Address"]) for row in found] == shown


def _made(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    return folder


def rows_of(output: str) -> Iterator[Row]:
    """Yields the rows of the renderer `jsonl`, with the rows below them."""
    for line in output.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            yield row
            yield from row.get("__children") or ()


def _waits(row: Row) -> bool:
    """Returns whether the innermost frame of a thread is behind a system call."""
    function = (row["Symbol"] or "").partition("!")[2]
    return function.startswith(("Nt", "Zw")) and "+" in function


def _ends(stacks: Iterable[Sequence[Row]]) -> List[int]:
    """Returns the addresses in the function of ntdll in which threads begin."""
    every = (row for rows in stacks for row in rows)
    return [row["Address"] for row in every if "ntdll!RtlUserThreadStart" in (row["Symbol"] or "")]


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures the dumps of the folder that the environment names; nothing without one."""
    named = os.environ.get(FOLDER)
    return [] if not named else as_lines(_compared(pathlib.Path(named), (), folder))


def _compared(dumps: pathlib.Path, names: Sequence[str], folder: pathlib.Path) -> Iterator[Compared]:
    for path in sorted(dumps.glob("*.dmp")):
        usable = path.with_suffix(".json").exists() and path.stat().st_size
        if usable and (not names or path.stem in names):
            yield compare(path, folder)


def as_lines(compared: Iterable[Compared]) -> List[Line]:
    """Returns the figures of several dumps: their worst cost, and the sums of their threads."""
    found = list(compared)
    if not found:
        return []
    lines_found = []
    for kind, goal in (("idle", IDLE_GOAL), ("busy", BUSY_GOAL)):
        every = sum(getattr(item, kind) for item in found)
        equal = sum(getattr(item, f"{kind}_equal") for item in found)
        share = equal / every if every else 1.0
        what = f"{kind} threads of {len(found)} real programs with the frames of StackWalk64"
        lines_found.append(Line(what, "all", share, goal, results.AT_LEAST, f"{equal} / {every}"))
    wrong, sure = sum(item.wrong for item in found), sum(item.sure for item in found)
    lines_found.append(
        Line("sure frames that StackWalk64 has not", "0", wrong, 0, results.AT_MOST, f"of {sure}")
    )
    for command in ("stacks", "findings"):
        costs = [getattr(item, command) for item in found]
        name = "callstacks" if command == "stacks" else "tracefindings"
        seconds, memory = max(cost.seconds for cost in costs), max(cost.memory for cost in costs)
        what = f"`minidump.{name}`, the dearest of them"
        lines_found.append(Line(what, "seconds", seconds, MOST_SECONDS, results.AT_MOST, "s"))
        lines_found.append(results.memory(what, "memory", memory, MOST_MEMORY))
    return lines_found


def _text(item: Compared) -> str:
    return (
        f"{item.name}: idle {item.idle_equal} of {item.idle} equal, busy {item.busy_equal} of {item.busy}; "
        f"sure frames {item.sure}, {item.wrong} not in the truth; {item.alarms} findings above low; "
        f"callstacks {item.stacks.seconds:.1f} s {item.stacks.memory:.0f} MB, "
        f"tracefindings {item.findings.seconds:.1f} s {item.findings.memory:.0f} MB"
    )


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Prints a line for each dump, and the table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="a folder with NAME.dmp and NAME.json")
    parser.add_argument("names", nargs="*", help="dumps to compare; all by default")
    given = parser.parse_args(arguments)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for item in _compared(given.folder, given.names, pathlib.Path(folder)):
            print(_text(item), flush=True)
            found.append(item)
    print(results.table(as_lines(found)))


if __name__ == "__main__":
    main()
