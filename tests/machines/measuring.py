# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Measures `windows.tracefindings` in machines with several seeds and shares of missing pages.

One seed says what that seed does, and no more: what is quoted are the median and the 10th and 90th
percentile of many. `RESULTS` has what the last measurement gave, for each machine, kernel and share; the
page of `windows.tracefindings` has its table, made from that file.
"""

from __future__ import annotations

import itertools
import json
import math
import pathlib
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

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
    kernels: Sequence[str],
    shares: Sequence[float],
    seeds: Sequence[int],
    rooms: Dict[str, List[Technique]],
    folder: pathlib.Path,
    jobs: int,
) -> Iterator[pathlib.Path]:
    """Measures draw after draw, and yields the file of each: what was interrupted goes on where it stopped.

    Args:
        kernels: of the machines
        shares: of the pages, that are missing
        seeds: which pages; without missing pages one is enough
        rooms: techniques by the name of what they have in common
        folder: for the files; what is there already is not measured again
        jobs: processes at a time
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked: List[Tuple[str, str, Sequence[Technique]]] = [(machine, machine, ()) for machine in MACHINES]
    asked += [(room, PLANTED_IN, techniques) for room, techniques in rooms.items()]
    for kernel, share, (of, machine, techniques) in itertools.product(kernels, shares, asked):
        files = {seed: folder / _name(of, kernel, share, seed) for seed in (seeds if share else [0])}
        left = [Draw(machine, kernel, share, seed) for seed, file in files.items() if not file.exists()]
        for answer in planting.ask(left, techniques, jobs):
            file = files[answer.draw.seed]
            unfinished = file.with_suffix(".new")
            unfinished.write_text(json.dumps(part_of(of, answer), ensure_ascii=False), encoding="utf-8")
            unfinished.replace(file)
            yield file


def _name(of: str, kernel: str, share: float, seed: int) -> str:
    return f"{of.replace(' ', '-')}_{kernel}_{round(100 * share)}_{seed}.json"


def part_of(of: str, answer: Answer) -> Dict[str, Any]:
    """Returns what is kept of one answer.

    Args:
        of: the machine, or the room of techniques
    """
    draw = answer.draw
    part: Dict[str, Any] = {"of": of, "kernel": draw.kernel, "share": draw.share, "seed": draw.seed}
    if answer.shown:
        shown = {each.name: [each.above_low, each.among_first, each.in_image] for each in answer.shown}
        return {**part, "shown": shown}
    alarms = [f"{row['Finding']} {row['Process']}" for row in answer.above]
    return {**part, "processes": answer.processes, "missing": answer.missing, "alarms": alarms}


def joined(folder: pathlib.Path) -> List[Dict[str, Any]]:
    """Returns the cells of the table, made of the files of all draws in a folder."""
    parts: Dict[Tuple[str, float, str], List[Dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.json")):
        part = json.loads(file.read_text(encoding="utf-8"))
        parts.setdefault((part["kernel"], part["share"], part["of"]), []).append(part)
    order = {name: place for place, name in enumerate(MACHINES)}
    ordered = sorted(parts, key=lambda key: (*key[:2], order.get(key[2], len(order)), key[2]))
    return [cell_of(parts[key]) for key in ordered]


def cell_of(parts: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """Returns what the draws of one cell gave: innocent rows, or the percent of a room's techniques."""
    first = parts[0]
    cell = {"of": first["of"], "kernel": first["kernel"], "share": first["share"], "seeds": len(parts)}
    if "shown" not in first:
        return {
            **cell,
            "processes": first["processes"],
            "missing": spread([part["missing"] for part in parts]),
            "above": spread([len(part["alarms"]) for part in parts]),
            "alarms": _alarms(parts),
        }
    count = len(first["shown"])
    above, early, whole = (
        spread([_percent(sum(each[place] for each in part["shown"].values()), count) for part in parts])
        for place in range(3)
    )
    missed = [
        name for name in first["shown"] if sum(part["shown"][name][0] for part in parts) < OFTEN * len(parts)
    ]
    return {**cell, "techniques": count, "above": above, "first": early, "whole": whole, "missed": missed}


def _percent(part: int, whole: int) -> int:
    return round(100 * part / whole)


def _alarms(parts: Sequence[Dict[str, Any]]) -> Dict[str, int]:
    """How many draws have an innocent row above `low`, by its check and program, the most frequent first."""
    counts: Dict[str, int] = {}
    for part in parts:
        for name in set(part["alarms"]):
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
                _in_words(Spread(*cell["whole"]), unit) if "whole" in cell else "-",
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
