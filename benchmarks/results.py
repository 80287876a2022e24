# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The lines of the tables that the benchmarks make, and the file that they are written to."""

from __future__ import annotations

import os
import pathlib
import platform
from typing import List, NamedTuple, Optional, Sequence

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


def write(tables: Sequence[str]) -> None:
    """Writes the results of a whole run, with the notes below."""
    machine = (
        f"Python {platform.python_version()}, Volatility {constants.PACKAGE_VERSION}, "
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} processors"
    )
    parts: List[str] = [
        "# What the plugins cost\n",
        "Written by `python3 -m benchmarks`; the definitions are below. Seconds are processor time (user\n"
        "and system) of the cheapest of several runs that took turns.\n",
        f"{machine}.\n",
        *(f"{table}\n" for table in tables),
        NOTES.read_text(encoding="utf-8"),
    ]
    FILE.write_text("\n".join(parts), encoding="utf-8")
