# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pages: what it costs to make that of a full database, and to open it in a browser."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import List, Tuple

from tests.support.browser import Browser

from . import images, results
from .listing import FULL, cost
from .measure import arguments_of, in_turns, launched
from .results import AT_MOST, Line

_MEGABYTE = 1_000_000
_GOAL = 2.5
_PAGE_GOAL = 25
_REPEATS = 5


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures windows.tracegraph and windows.tracereport."""
    full = images.database(folder, FULL)
    graph, report, folded = in_turns(
        [
            partial(cost, full, "windows.tracegraph --kinds std"),
            partial(cost, full, "windows.tracereport"),
            partial(cost, full, "windows.stacktracedb --fold", "jsonl"),
        ],
        2,
    )
    written = folder / "written"
    written.mkdir()
    launched([*arguments_of(full, "quick"), "-o", str(written), "windows.tracegraph"], full.cache)
    page = written / "tracegraph.html"
    size = page.stat().st_size
    empty = folder / "empty.html"
    empty.write_text(
        f'<!DOCTYPE html><script type="application/json">{"0" * size}</script>', encoding="utf-8"
    )
    ours, theirs = _opened(folder, page, empty)
    what, fold = f"`windows.tracegraph`, {FULL:,} traces", "`stacktracedb --fold -r jsonl`"
    return [
        results.ratio(what, fold, graph.seconds, folded.seconds, _GOAL),
        results.ratio("`windows.tracereport`, the same", fold, report.seconds, folded.seconds, _GOAL),
        results.memory(what, "memory", graph.memory, 600, f"MB; {fold} {folded.memory:.0f}"),
        results.memory(what, "size of the page", size / _MEGABYTE, _PAGE_GOAL, "MB"),
        Line(
            "to open this page",
            "an empty page of the same bytes",
            ours / theirs,
            None,
            AT_MOST,
            f"{ours:.0f} ms / {theirs:.0f} ms",
        ),
    ]


def _opened(folder: pathlib.Path, *pages: pathlib.Path) -> Tuple[float, ...]:
    """Returns how many milliseconds pages take until they are drawn: of several times the shortest."""
    profile = folder / "profile"
    profile.mkdir()
    least = [float("inf")] * len(pages)
    with Browser(profile) as browser:
        for _ in range(_REPEATS):
            for place, path in enumerate(pages):
                opened = browser.open(path)
                load_time = opened.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
                least[place] = min(least[place], float(load_time))
                opened.close()
    return tuple(least)
