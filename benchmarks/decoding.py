# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decoding a database against reading its bytes, against framework objects, and on scattered pages."""

from __future__ import annotations

import json
import pathlib
from functools import partial
from typing import List

from . import images, results
from .images import Image
from .measure import Cost, in_turns, vol
from .results import Line

ENTRIES = 100_000
_REPEATS = 9


def work(image: Image, what: str) -> Cost:
    """Runs a piece of work of `plugins/windows/work.py`; the seconds are those of the work alone."""
    run = vol(
        image, "windows.work.Work", "--pid", str(images.PID), "--what", what, renderer="json", keep=True
    )
    (row,) = json.loads(run.output)
    return Cost(row["Seconds"], run.cost.memory)


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures the decoding of 100,000 entries of 16 frames."""
    whole = images.database(folder, ENTRIES)
    scattered = images.database(folder, ENTRIES, scattered=True)
    bulk, ours, objects, apart = in_turns(
        [
            partial(work, whole, "bulk"),
            partial(work, whole, "decode"),
            partial(work, whole, "objects"),
            partial(work, scattered, "decode"),
        ],
        _REPEATS,
    )
    what = f"decode {ENTRIES:,} STD entries × {images.DEPTH} frames"
    return [
        results.ratio(what, "bulk read", ours.seconds, bulk.seconds, 5),
        results.times_faster("the same", "an object per entry and frame", ours.seconds, objects.seconds, 500),
        results.ratio("the same on scattered pages", "contiguous", apart.seconds, ours.seconds, 1.5),
    ]
