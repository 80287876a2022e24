# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The flat tables against the rows of the plugins from which they take their stacks."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import List

from . import images, results, stacks
from .images import Image
from .listing import FEW, FULL, cost
from .measure import in_turns
from .results import Line

_GOAL = 1.2


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures windows.traces and windows.traceframes."""
    few, full = images.database(folder, FEW), images.database(folder, FULL)
    threads = stacks.threads(folder, 100, 100)
    found = _beside(few, "std", "windows.stacktracedb", f"{FEW:,} traces")
    found += _beside(threads, "kernel user wow64", "windows.callstacks", "10,000 threads in 100 processes")
    rows = FEW * images.DEPTH
    framed, floor = in_turns(
        [
            partial(cost, few, "windows.traceframes --kinds std", "jsonl"),
            partial(cost, few, f"windows.floor.Floor --like traceframes --rows {rows}", "jsonl"),
        ],
        3,
    )
    what = f"`windows.traceframes -r jsonl`, {FEW:,} traces"
    found.append(results.ratio(what, "floor", framed.seconds, floor.seconds, 1.1))
    (dump,) = in_turns([partial(cost, full, "windows.traces --kinds std --dump")], 2)
    what = f"`windows.traces --dump`, {FULL:,} traces"
    return [*found, results.memory(what, "memory", dump.memory, 600, f"MB; {dump.seconds:.0f} s")]


def _beside(image: Image, kinds: str, plugin: str, things: str) -> List[Line]:
    """Compares the two tables with what a plugin prints of the same stacks, in one row each and in all."""
    options = f"--kinds {kinds}"
    stacks_only, folded, framed, plain = in_turns(
        [
            partial(cost, image, f"windows.traces {options}", "jsonl"),
            partial(cost, image, f"{plugin} --fold", "jsonl"),
            partial(cost, image, f"windows.traceframes {options}", "jsonl"),
            partial(cost, image, plugin, "jsonl"),
        ],
        3,
    )
    found = []
    for name, ours in (("traces", stacks_only), ("traceframes", framed)):
        what = f"`windows.{name} -r jsonl`, {things}"
        found.append(results.ratio(what, f"`{plugin}`", ours.seconds, plain.seconds, _GOAL))
        figures = f"{ours.memory:.0f} MB / {plain.memory:.0f} MB"
        found.append(
            Line("the same", "its memory", ours.memory / plain.memory, _GOAL, results.AT_MOST, figures)
        )
    what = f"`windows.traces -r jsonl`, {things}"
    found.append(results.ratio(what, f"`{plugin} --fold`", stacks_only.seconds, folded.seconds, None))
    return found
