# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Measures `windows.tracefindings` in machines with several seeds and shares of missing pages.

One seed says what that seed does, and no more: what is quoted are the median and the 10th and 90th
percentile of many. `RESULTS` has what the last measurement gave, for each machine, kernel and share; the
page of `windows.tracefindings` has its table, made from that file.
"""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

from . import planting
from .machines import MACHINES
from .planting import Answer, Draw
from .techniques import Technique

RESULTS = pathlib.Path(__file__).parent / "measured.json"
SHARES = (0.0, 0.05, 0.15, 0.25)
KERNELS = ("win10-x64", "win11-x64")
PLANTED_IN = "desktop"
"""The machine in which techniques are planted."""
OFTEN = 0.5
"""A technique is named as missed if it is not found above `low` in this share of the draws."""


class Spread(NamedTuple):
    """The 10th percentile, the median and the 90th percentile of some numbers."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Returns the spread of numbers, by the nearest rank."""
    ascending = sorted(values)
    low, median, high = (
        ascending[max(math.ceil(share * len(ascending)) - 1, 0)] for share in (0.1, 0.5, 0.9)
    )
    return Spread(low, median, high)


def measure(
    kernel: str, share: float, seeds: Sequence[int], rooms: Dict[str, List[Technique]], jobs: int
) -> Iterator[Dict[str, Any]]:
    """Yields what one cell of the table gives: of each machine as it is, and of each room of techniques.

    Args:
        kernel: of the machines
        share: of the pages, that is missing
        seeds: which pages; without missing pages one is enough
        rooms: techniques by the name of what they have in common
        jobs: processes at a time
    """
    used = list(seeds) if share else [0]
    for machine in MACHINES:
        answers = list(planting.ask([Draw(machine, kernel, share, seed) for seed in used], (), jobs))
        yield {
            "of": machine,
            "kernel": kernel,
            "share": share,
            "seeds": len(used),
            "processes": answers[0].processes,
            "missing": spread([answer.missing for answer in answers]),
            "above": spread([len(answer.above) for answer in answers]),
            "alarms": _alarms(answers),
        }
    for room, techniques in rooms.items():
        planted = [Draw(PLANTED_IN, kernel, share, seed) for seed in used]
        yield of_room(room, list(planting.ask(planted, techniques, jobs)))


def of_room(room: str, answers: Sequence[Answer]) -> Dict[str, Any]:
    """What the draws of one cell gave for a room of techniques, in percent of its techniques."""
    draw = answers[0].draw
    count = len(answers[0].shown)
    found: Dict[str, int] = {each.name: 0 for each in answers[0].shown}
    for answer in answers:
        for each in answer.shown:
            found[each.name] += each.above_low
    return {
        "of": room,
        "kernel": draw.kernel,
        "share": draw.share,
        "seeds": len(answers),
        "techniques": count,
        "above": spread(
            [_percent(sum(each.above_low for each in answer.shown), count) for answer in answers]
        ),
        "first": spread(
            [_percent(sum(each.among_first for each in answer.shown), count) for answer in answers]
        ),
        "missed": [name for name, times in found.items() if times < OFTEN * len(answers)],
    }


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole)


def _alarms(answers: Sequence[Answer]) -> Dict[str, int]:
    """How many draws have an innocent row above `low`, by its check and program, the most frequent first."""
    counts: Dict[str, int] = {}
    for answer in answers:
        for name in {f"{row['Finding']} {row['Process']}" for row in answer.above}:
            counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def table() -> List[List[str]]:
    """The rows of the page's table: the last measurement, a line for each cell and what was measured."""
    rows = []
    for cell in json.loads(RESULTS.read_text(encoding="utf-8")):
        unit = " %" if "techniques" in cell else ""
        of = f"{cell['of']}, {cell['techniques']} techniques" if unit else f"{cell['of']}, innocent rows"
        rows.append(
            [
                of,
                cell["kernel"],
                f"{round(100 * cell['share'])} %",
                str(cell["seeds"]),
                _in_words(Spread(*cell["above"]), unit),
                _in_words(Spread(*cell["first"]), unit) if unit else "-",
            ]
        )
    return rows


def sentence() -> str:
    """Returns the sentences that README quotes of the last measurement: a desktop with few missing pages."""
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))
    share = min(cell["share"] for cell in cells if cell["share"])
    few = [cell for cell in cells if cell["share"] == share]
    found = next(cell for cell in few if "techniques" in cell)
    clean = next(cell for cell in few if cell["of"] == PLANTED_IN)
    above, alarms = _in_words(Spread(*found["above"]), " %"), _in_words(Spread(*clean["above"]), "")
    return (
        f"On forged images with {round(100 * share)} % of the pages missing, {above} of "
        f"{found['techniques']} published techniques give a finding above `low`.\n"
        f"A desktop of {clean['processes']} processes gives {alarms} false alarms "
        f"(median of {found['seeds']} seeds, 10th to 90th percentile): "
        "[all figures](docs/tracefindings.md#machines-in-use)."
    )


def _in_words(values: Spread, unit: str) -> str:
    return f"{values.median}{unit} ({values.low} to {values.high})"
