# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""stackfleet: Parquet against Volatility's renderer, two workers for many images, rare stacks."""

from __future__ import annotations

import pathlib
import sys
import time
from functools import partial
from typing import List

from tests.conftest import ROOT
from tests.support.fleetimages import GENERATIONS, Machine, new_fleet

from . import images, largelake, results
from .images import Image
from .listing import FEW, FULL, cost
from .measure import Cost, Run, in_turns, measured
from .results import Line

_ROWS = 1 + images.DEPTH
"""Rows of a trace: its own, and one for each frame."""

_IMAGES = 40
_MACHINES, _STACKS = 2_000, 5_000
"""Images of the large lake, and stacks of each: `python -m benchmarks.largelake` makes one of any size."""


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures all of it."""
    return [*_parquet(folder), *_workers(folder), *_rare(folder)]


def _parquet(folder: pathlib.Path) -> List[Line]:
    few, full = images.database(folder, FEW), images.database(folder, FULL)
    ours, stacks, frames = in_turns(
        [
            partial(_fleet, folder, full),
            partial(cost, few, "windows.traces", "parquet"),
            partial(cost, few, "windows.traceframes", "parquet"),
        ],
        2,
    )
    mine, theirs = ours.seconds / FULL / _ROWS, (stacks.seconds + frames.seconds) / FEW / _ROWS
    what = f"`stackfleet run`, {FULL:,} traces with {FULL * images.DEPTH:,} frames, time of a row"
    detail = f"{mine * 1e6:.1f} µs / {theirs * 1e6:.1f} µs, {ours.seconds:.1f} s in all"
    return [
        Line(what, f"`vol -r parquet`, {FEW:,}", theirs / mine, 5, results.AT_LEAST, detail),
        results.memory("the same", "memory of the process", ours.memory, 600),
    ]


def _fleet(folder: pathlib.Path, image: Image) -> Cost:
    """Runs stackfleet on one image; what it costs has all its processes in it."""
    lake = folder / f"lake-{time.monotonic_ns()}"
    return _run("run", image.file, "-o", lake, "--workers", 1, *_options(image.symbols, image.cache)).cost


def _options(symbols: pathlib.Path, cache: pathlib.Path) -> List[object]:
    return ["--symbol-dirs", symbols, "--cache-path", cache, "--offline"]


def _run(*arguments: object) -> Run:
    return measured([sys.executable, "-m", "stackfleet", *map(str, arguments)], cwd=ROOT)


def _workers(folder: pathlib.Path) -> List[Line]:
    images = new_fleet(folder / "images")
    for number in range(_IMAGES):
        images.add(Machine(number, GENERATIONS[number % len(GENERATIONS)], own=50))
    images.ready()
    took = {}
    for workers in (1, 2):
        begin = time.monotonic()
        lake = folder / f"lake-of-{workers}"
        _run("run", *images.paths, "-o", lake, "--workers", workers, *images.options)
        took[workers] = time.monotonic() - begin
    detail = f"{took[2]:.1f} s / {took[1]:.1f} s of the clock"
    return [
        Line(f"two workers, {_IMAGES} images", "one worker", took[2] / took[1], 0.6, results.AT_MOST, detail)
    ]


def _rare(folder: pathlib.Path) -> List[Line]:
    lake = folder / "large"
    largelake.make(str(lake), _MACHINES, _STACKS)
    largelake.drop_caches(lake)
    begin = time.monotonic()
    ran = _run("rare", lake, "--output", folder / "rare")
    took = time.monotonic() - begin
    what = f"`stackfleet rare`, {_MACHINES:,} machines, {_MACHINES * _STACKS:,} stacks"
    detail = f"s of the clock; {ran.cost.seconds:.1f} s of processors"
    return [
        Line(what, "seconds", took, 15, results.AT_MOST, detail),
        results.memory("the same", "memory", ran.cost.memory, 2000),
    ]
