# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The checks of windows.tracefindings against the list of the stacks that they look at."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import List

from . import images, results, stacks
from .images import Image
from .listing import FEW, cost
from .measure import in_turns
from .results import Line

_GOAL = 1.3
"""So often the time of windows.traces; with --scan that, and Volatility's own scans."""


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures all checks together, without and with --scan."""
    threads = stacks.threads(folder, 100, 100)
    found = _beside(threads, "10,000 threads in 100 processes")
    return found + _beside(images.database(folder, FEW), f"{FEW:,} traces")


def _beside(image: Image, things: str) -> List[Line]:
    ours, scanned, listed, processes, threads = in_turns(
        [
            partial(cost, image, "windows.tracefindings", "jsonl"),
            partial(cost, image, "windows.tracefindings --scan", "jsonl"),
            partial(cost, image, "windows.traces", "jsonl"),
            partial(cost, image, "windows.psscan", "jsonl"),
            partial(cost, image, "windows.thrdscan", "jsonl"),
        ],
        3,
    )
    what = f"`windows.tracefindings`, {things}"
    allowed = _GOAL * listed.seconds + processes.seconds + threads.seconds
    return [
        results.ratio(what, "`windows.traces`", ours.seconds, listed.seconds, _GOAL),
        results.ratio(
            f"`windows.tracefindings --scan`, {things}",
            f"{_GOAL} of `windows.traces`, with `windows.psscan` and `windows.thrdscan`",
            scanned.seconds,
            allowed,
            1.0,
        ),
    ]
