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
from .machines import MACHINES, names_of
from .planting import Answer, Draw
from .techniques import Technique, rooms

RESULTS = pathlib.Path(__file__).parent / "measured.json"
SHARES = (0.0, 0.05, 0.15, 0.25)
KERNELS = ("win10-x64", "win11-x64", "win10-x86")
PLANTED_IN = "desktop"
"""The machine in which techniques are planted."""
OFTEN = 0.5
"""A technique is named as missed if it is not found above `low`, or not among the first rows, in this share
of the draws."""
ALL = "all techniques"
"""The cell of the techniques of all rooms."""

FEW = 0.01
"""The share of draws that may be worse than what the suite accepts."""

Rooms = Dict[str, List[Technique]]


class Spread(NamedTuple):
    """The 10th percentile, the median and the 90th percentile of some numbers."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Returns the spread of numbers, by the nearest rank."""
    return Spread(*(percentile(values, share) for share in (0.1, 0.5, 0.9)))


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the number that a share of some numbers does not exceed, by the nearest rank."""
    ascending = sorted(values)
    return ascending[max(math.ceil(share * len(ascending)) - 1, 0)]


def measure(
    kernels: Sequence[str],
    shares: Sequence[float],
    seeds: Sequence[int],
    folder: pathlib.Path,
    jobs: int,
) -> Iterator[pathlib.Path]:
    """Measures draw after draw, and yields the files of each: what was interrupted goes on where it stopped.

    A seed is finished before the next one begins: what was measured until then has all shares and kernels.

    Args:
        kernels: of the machines
        shares: of the pages, that are missing
        seeds: which pages; without missing pages one is enough
        folder: for the files; what is there already is not measured again
        jobs: processes at a time
    """
    folder.mkdir(parents=True, exist_ok=True)
    left = [
        (draw, of)
        for draw, of in _asked(kernels, shares, seeds)
        if not all((folder / _name(name, draw)).exists() for name in of)
    ]
    questions = [planting.Question(draw, list(itertools.chain(*of.values()))) for draw, of in left]
    for (_, of), answer in zip(left, planting.ask(questions, jobs)):
        for name, techniques in of.items():
            names = {technique.name for technique in techniques}
            own = answer._replace(shown=[each for each in answer.shown if each.name in names])
            file = folder / _name(name, answer.draw)
            unfinished = file.with_suffix(".new")
            unfinished.write_text(json.dumps(part_of(name, own), ensure_ascii=False), encoding="utf-8")
            unfinished.replace(file)
            yield file


def _asked(
    kernels: Sequence[str], shares: Sequence[float], seeds: Sequence[int]
) -> Iterator[Tuple[Draw, Rooms]]:
    """Yields each draw with what it is of: a machine as it is, or the rooms of techniques, all at once."""
    places = list(itertools.product([0], [share for share in shares if not share], kernels))
    places += itertools.product(seeds, [share for share in shares if share], kernels)
    for seed, share, kernel in places:
        for machine in names_of(kernel):
            yield Draw(machine, kernel, share, seed), {machine: []}
        yield Draw(PLANTED_IN, kernel, share, seed), rooms(kernel)


def _name(of: str, draw: Draw) -> str:
    return f"{of.replace(' ', '-')}_{draw.kernel}_{round(100 * draw.share)}_{draw.seed}.json"


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
    for (kernel, share, _), planted in [item for item in parts.items() if "shown" in item[1][0]]:
        parts.setdefault((kernel, share, ALL), []).extend(planted)
    order = {name: place for place, name in enumerate((*MACHINES, *rooms(KERNELS[0])))}
    ordered = sorted(parts, key=lambda key: (*key[:2], order.get(key[2], len(order)), key[2]))
    return [cell_of(_whole_draws(parts[key]) if key[2] == ALL else parts[key]) for key in ordered]


def _whole_draws(parts: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Returns a part for each draw with the techniques of all its rooms."""
    draws: Dict[int, Dict[str, Any]] = {}
    for part in parts:
        draw = draws.setdefault(part["seed"], {**part, "of": ALL, "shown": {}})
        draw["shown"] = {**draw["shown"], **part["shown"]}
    return list(draws.values())


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
            "worst": percentile([len(part["alarms"]) for part in parts], 1 - FEW),
            "alarms": _alarms(parts),
        }
    count = len(first["shown"])
    above, early, whole = (
        spread([_percent(_count(part, place), count) for part in parts]) for place in range(3)
    )
    worst = percentile([_percent(_count(part, 0), count) for part in parts], FEW)
    missed, behind = (
        [
            name
            for name in first["shown"]
            if sum(part["shown"][name][place] for part in parts) < OFTEN * len(parts)
        ]
        for place in range(2)
    )
    return {
        **cell,
        "techniques": count,
        "above": above,
        "first": early,
        "whole": whole,
        "worst": worst,
        "missed": missed,
        "behind": behind,
    }


def _count(part: Dict[str, Any], place: int) -> int:
    """How many techniques of a draw have a row above `low` (0), among the first (1), or their stacks (2)."""
    return sum(each[place] for each in part["shown"].values())


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


def missed() -> List[List[str]]:
    """The rows of the page's table of what falls short: the techniques that most draws of a cell miss, and
    those that most draws have behind the first rows."""
    return [
        [
            *(cell["of"], cell["kernel"], f"{round(100 * cell['share'])} %"),
            *("; ".join(cell[name]) or "none" for name in ("missed", "behind")),
        ]
        for cell in json.loads(RESULTS.read_text(encoding="utf-8"))
        if "missed" in cell and cell["of"] != ALL
    ]


def is_old() -> bool:
    """Whether the last measurement lacks what later ones count."""
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))
    return any("techniques" in cell and "whole" not in cell for cell in cells)


def _few(cells: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The cells of the first kernel with the least share of missing pages."""
    first = [cell for cell in cells if cell["kernel"] == KERNELS[0] and cell["share"]]
    return [cell for cell in first if cell["share"] == min(each["share"] for each in first)]


def lacking(cells: Sequence[Dict[str, Any]]) -> List[str]:
    """Returns what README and the suite's tests quote, and the cells lack."""
    known = {cell["of"] for cell in _few(cells)}
    return [name for name in (*MACHINES, *rooms(KERNELS[0])) if name not in known]


def sentence() -> str:
    """Returns the sentences that README quotes of the last measurement: a desktop with few missing pages."""
    few = _few(json.loads(RESULTS.read_text(encoding="utf-8")))
    found, later = (cell for cell in few if "techniques" in cell and cell["of"] != ALL)
    clean = next(cell for cell in few if cell["of"] == PLANTED_IN)
    share = clean["share"]
    above, alarms = _in_words(Spread(*found["above"]), " %"), _in_words(Spread(*clean["above"]), "")
    return (
        f"On forged images with {round(100 * share)} % of the pages missing, {above} of "
        f"{found['techniques']} published techniques give a finding above `low`.\n"
        f"Of {later['techniques']} that were forged after the rules it is "
        f"{_in_words(Spread(*later['above']), ' %')}.\n"
        f"A desktop of {clean['processes']} processes gives {alarms} false alarms, "
        f"{clean['worst']} in the worst draw (median of {clean['seeds']} seeds, 10th to 90th percentile): "
        "[all figures](docs/tracefindings.md#machines-in-use)."
    )


def _in_words(values: Spread, unit: str) -> str:
    return f"{values.median}{unit} ({values.low} to {values.high})"
