# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""stackfleet: Parquet against Volatility's renderer, two workers for many images, rare stacks."""

from __future__ import annotations

import pathlib
import random
import subprocess
import sys
import time
from functools import partial
from typing import Any, List

import pyarrow as pa

from stackfleet.columns import SCHEMAS
from stackfleet.layout import TRACES
from tests.conftest import ROOT
from tests.support import fleetlakes
from tests.support.fleetimages import GENERATIONS, Machine, new_fleet

from . import images, results
from .images import Image
from .listing import FEW, FULL, cost
from .measure import Cost, Run, in_turns, measured
from .results import Line

_ROWS = 1 + images.DEPTH
"""Rows of a trace: its own, and one for each frame."""

_IMAGES = 40
_STACKS, _KEYS, _FILES = 10_000_000, 3_000_000, 2_000
_HOSTS = 500
_SETS = 200


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
    said = f"{mine * 1e6:.1f} µs / {theirs * 1e6:.1f} µs, {ours.seconds:.1f} s in all"
    return [
        Line(what, f"`vol -r parquet`, {FEW:,}", theirs / mine, 5, results.AT_LEAST, said),
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
    made = new_fleet(folder / "images")
    for number in range(_IMAGES):
        made.add(Machine(number, GENERATIONS[number % len(GENERATIONS)], own=50))
    made.ready()
    took = {}
    for workers in (1, 2):
        begin = time.monotonic()
        lake = folder / f"lake-of-{workers}"
        _run("run", *made.paths, "-o", lake, "--workers", workers, *made.options)
        took[workers] = time.monotonic() - begin
    said = f"{took[2]:.1f} s / {took[1]:.1f} s of the clock"
    return [
        Line(f"two workers, {_IMAGES} images", "one worker", took[2] / took[1], 0.6, results.AT_MOST, said)
    ]


def _rare(folder: pathlib.Path) -> List[Line]:
    lake = folder / "large"
    synthetic(lake)
    drop_caches(lake)
    begin = time.monotonic()
    ran = _run("rare", lake, "--output", folder / "rare")
    took = time.monotonic() - begin
    what = f"`stackfleet rare`, {_STACKS:,} stacks, {_KEYS:,} keys, {_FILES:,} files"
    said = f"s of the clock; {ran.cost.seconds:.1f} s of processors"
    return [
        Line(what, "seconds", took, 15, results.AT_MOST, said),
        results.memory("the same", "memory", ran.cost.memory, 2000),
    ]


def synthetic(folder: pathlib.Path) -> None:
    """Writes a lake of rows that are made up: some keys are on all hosts, most on one or two."""
    lake, chance = fleetlakes.new_lake(folder), random.Random(1)
    each = _STACKS // _FILES
    common = _KEYS // 10
    for number in range(_FILES):
        # Half of the stacks of a host are its own, which its images share.
        own = [
            common + (number % _HOSTS * 5400 + chance.randrange(5600)) % (_KEYS - common)
            for _ in range(each // 2)
        ]
        keys = [*own, *(int(common * chance.random() ** 3) for _ in range(each - len(own)))]
        rows = pa.table(_columns(f"i{number}", keys), schema=SCHEMAS[TRACES])
        versions = [{"Version": each, "Module": f"m{each}"} for each in range(100 + number % 3)]
        sets = [
            {"ModuleSet": each + 1, "Versions": [each % 40, each % 70, each % 103]} for each in range(_SETS)
        ]
        tables = {"traces": rows, "modules": versions, "modulesets": sets}
        fleetlakes.add(lake, f"i{number}", host=f"pc-{number % _HOSTS}", **tables)


def _columns(image_id: str, keys: List[int]) -> Any:
    count = len(keys)
    known = {
        "ImageId": [image_id] * count,
        "TraceId": [f"std:0:{key:x}:x64::{number:x}" for number, key in enumerate(keys)],
        "StackKey": [f"{key * 0x9E3779B97F4A7C15 & (1 << 128) - 1:032x}" for key in keys],
        "ShapeKey": [f"{key // 50:032x}" for key in keys],
        "Stack": [f"m{key % 40}!Function{key % 9973}+0x1d; nt!NtCreateFile+0x79" for key in keys],
        "ModuleSet": [key % _SETS + 1 for key in keys],
        "Count": [1] * count,
        "Schema": [1] * count,
        "PID": [0] * count,
        "Unbacked": [0] * count,
        "Incomplete": [False] * count,
    }
    same = {"Kind": "std", "Process": "nt", "Arch": "x64", "KeyQuality": "exact", "Status": ""}
    known.update({name: [value] * count for name, value in same.items()})
    return {
        field.name: pa.array(known.get(field.name, [None] * count), field.type) for field in SCHEMAS[TRACES]
    }


def drop_caches(folder: pathlib.Path) -> None:
    """Lets the system forget what files hold, as far as it does so without rights."""
    for path in folder.rglob("*.parquet"):
        subprocess.run(
            ["dd", f"of={path}", "oflag=nocache", "conv=notrunc,fdatasync", "count=0"], stderr=-3, check=False
        )
