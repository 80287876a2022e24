# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How the cost of each plugin grows with what the image holds."""

from __future__ import annotations

import math
import pathlib
from functools import partial
from typing import Callable, List, NamedTuple, Sequence

from . import images, owners, stacks
from .images import Image
from .listing import cost
from .measure import Cost, in_turns
from .results import AT_MOST, Line

Make = Callable[[pathlib.Path, int], Image]


class Series(NamedTuple):
    """A plugin, and images with 1, 10 and 100 times as much for it."""

    command: str
    unit: str
    smallest: int
    make: Make


SERIES = (
    Series("windows.stacktracedb --fold", "entries", 1_640, images.database),
    Series("windows.gflags", "processes", 10, partial(images.processes, entries=64)),
    Series("windows.trapframes", "threads", 100, stacks.spread_threads),
    Series("windows.callstacks", "threads", 100, stacks.spread_threads),
    Series("windows.locks", "locks", 100, owners.locks),
    Series("windows.handletraces", "events", 100, owners.handles),
    Series("windows.objecttraces", "objects", 100, owners.objects),
    Series("windows.heaptraces", "blocks", 1_000, owners.blocks),
)


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures every plugin on three images, and what it takes to open each."""
    return [line for series in SERIES for line in _grown(folder, series)]


def _grown(folder: pathlib.Path, series: Series) -> List[Line]:
    sizes = [series.smallest, 10 * series.smallest, 100 * series.smallest]
    runs = [_net(series.make(folder, size), series.command) for size in sizes]
    seconds, memory = ([run[part] for run in runs] for part in (0, 1))
    what = f"`{series.command}`, {', '.join(f'{size:,}' for size in sizes)} {series.unit}"
    return [
        Line(what, "exponent of time", _exponent(seconds), 1.05, AT_MOST, _figures(seconds, "s")),
        Line("", "exponent of memory", _exponent(memory), 1.05, AT_MOST, _figures(memory, "MB")),
    ]


def _net(image: Image, command: str) -> Cost:
    """What a plugin costs beyond opening the image."""
    ours, opening = in_turns([partial(cost, image, command), partial(cost, image, "windows.info")], 3)
    return Cost(ours.seconds - opening.seconds, ours.memory - opening.memory)


def _exponent(values: Sequence[float]) -> float:
    """The exponent between the second and the third value: the first is mostly what every run costs."""
    return math.log10(max(values[2], 1e-3) / max(values[1], 1e-3))


def _figures(values: Sequence[float], unit: str) -> str:
    return ", ".join(f"{value:.3g} {unit}" for value in values) + " beyond `windows.info`"
