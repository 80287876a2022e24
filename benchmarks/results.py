# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The lines of the tables that the benchmarks make, and the file that they are written to."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import time
from typing import Dict, List, NamedTuple, Optional, Sequence

from volatility3.framework import constants

FILE = pathlib.Path(__file__).resolve().parent / "RESULTS.md"
NOTES = pathlib.Path(__file__).resolve().parent / "NOTES.md"

AT_MOST, AT_LEAST = "≤", "≥"


class Line(NamedTuple):
    """One thing that was measured.

    Attributes:
        what: was measured
        against: what it is compared with
        value: the ratio or figure
        goal: what it should be; None if it is for information only
        direction: whether the goal is the most or the least
        details: the figures behind the value
    """

    what: str
    against: str
    value: float
    goal: Optional[float]
    direction: str
    details: str

    @property
    def met(self) -> bool:
        """Whether the goal is met; a line without goal has nothing to miss."""
        if self.goal is None:
            return True
        return self.value <= self.goal if self.direction == AT_MOST else self.value >= self.goal


def ratio(what: str, against: str, ours: float, theirs: float, goal: Optional[float] = None) -> Line:
    """A ratio of processor times in seconds, which should be at most so much."""
    return Line(what, against, ours / theirs, goal, AT_MOST, f"{ours:.3g} s / {theirs:.3g} s")


def times_faster(what: str, against: str, ours: float, theirs: float, goal: float) -> Line:
    """The same the other way round: how many times faster ours is, which should be at least so much."""
    return Line(what, against, theirs / ours, goal, AT_LEAST, f"{theirs:.3g} s / {ours:.3g} s")


def memory(what: str, against: str, megabytes: float, goal: Optional[float], details: str = "") -> Line:
    """The most memory that was held, in megabytes."""
    return Line(what, against, megabytes, goal, AT_MOST, details or "MB")


def table(lines: Sequence[Line]) -> str:
    """Returns lines as a Markdown table."""
    rows = ["| what | against | measured | goal | | figures |", "|---|---|---|---|---|---|"]
    for line in lines:
        goal = "" if line.goal is None else f"{line.direction} {line.goal:g}"
        verdict = "" if line.goal is None else "met" if line.met else "**missed**"
        rows.append(
            f"| {line.what} | {line.against} | {line.value:.3g} | {goal} | {verdict} | {line.details} |"
        )
    return "\n".join(rows)


class Circumstances:
    """When and where something is measured, and what else the machine does (a context).

    Attributes:
        text: a sentence, once the context has ended
    """

    def __enter__(self) -> Circumstances:
        self._began, self._start = time.time(), time.monotonic()
        self._used, self._own = _used(), _own()
        self.text = ""
        return self

    def __exit__(self, *_: object) -> None:
        took = time.monotonic() - self._start
        moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self._began))
        where = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} processors"
        used = _used()
        if used is None or self._used is None:
            others = "what else the machine did is unknown"
        else:
            busy = max(used - self._used - (_own() - self._own), 0.0) / took
            others = f"{busy:.1f} of them busy with other work"
        self.text = (
            f"{moment}, {took:.0f} s; Python {platform.python_version()}, "
            f"Volatility {constants.PACKAGE_VERSION}; {where}, {others}."
        )


def _own() -> float:
    """Returns the processor seconds of this process and of all that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _used() -> Optional[float]:
    """Returns the processor seconds that all processes have used since the machine started, None if unknown.

    Source: proc(5), `/proc/stat`: user, nice, system, idle, iowait, irq, softirq in ticks.
    """
    try:
        words = pathlib.Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq = map(int, words[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def sections(page: str, names: Sequence[str]) -> Dict[str, str]:
    """Returns the sections of a page that benchmarks have written, by their names, without their headings."""
    parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    known = zip(parts[1::2], parts[2::2])
    return {heading: text.strip() for heading, text in known if heading in names}


def write(measured: Dict[str, str], names: Sequence[str], file: pathlib.Path = FILE) -> None:
    """Writes what was measured into the page. What was measured earlier stays, and the notes come last.

    Args:
        measured: texts of sections by the names of benchmarks
        names: all benchmarks, in the order of the page
    """
    known = sections(file.read_text(encoding="utf-8"), names) if file.exists() else {}
    known.update(measured)
    parts: List[str] = [
        "# What the plugins cost\n",
        "Written by `python3 -m benchmarks [NAME...]`, which replaces the sections that it measures and\n"
        "says when, where and beside how much other work. Definitions and notes are below. Seconds are\n"
        "processor time (user and system) of the cheapest of several runs that took turns.\n",
        *(f"## {name}\n\n{known[name]}\n" for name in names if name in known),
        NOTES.read_text(encoding="utf-8"),
    ]
    file.write_text("\n".join(parts), encoding="utf-8")
