# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The plugins against Volatility's renderer and against Volatility's own plugins."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import List

from . import images, results, stacks
from .decoding import work
from .images import Image
from .measure import Cost, in_turns, vol
from .results import Line

FEW, FULL = 10_000, 164_554
"""Entries; of 16 frames, no more than the latter fit into the 24 MB that ntdll reserves by default."""
_MEGABYTE = 1 << 20
_RECORD = 0x110
"""Bytes of RTL_PROCESS_BACKTRACE_INFORMATION on x64."""


def cost(image: Image, command: str, renderer: str = "quick") -> Cost:
    """Runs a plugin with its options."""
    return vol(image, *command.split(), renderer=renderer).cost


def databases(folder: pathlib.Path) -> List[Line]:
    """Measures windows.stacktracedb."""
    few, full = images.database(folder, FEW), images.database(folder, FULL)
    named, floor = in_turns(
        [
            partial(cost, few, "windows.stacktracedb", "jsonl"),
            partial(cost, few, f"windows.floor.Floor --rows {FEW} --children {images.DEPTH}", "jsonl"),
        ],
        5,
    )
    folded, fold_floor = in_turns(
        [
            partial(cost, full, "windows.stacktracedb --fold", "jsonl"),
            partial(cost, full, f"windows.floor.Floor --rows {FULL} --frames {images.DEPTH}", "jsonl"),
        ],
        9,
    )
    dump, bulk, dumping = in_turns(
        [
            partial(work, full, "dump"),
            partial(work, full, "bulk"),
            partial(cost, full, "windows.stacktracedb --dump"),
        ],
        5,
    )
    size = FULL * _RECORD / _MEGABYTE
    fold = f"`--fold -r jsonl`, {FULL:,} entries"
    return [
        results.ratio(
            f"`windows.stacktracedb -r jsonl`, {FEW:,} entries", "floor", named.seconds, floor.seconds, 1.1
        ),
        results.ratio(fold, "floor", folded.seconds, fold_floor.seconds, 1.3),
        results.memory(fold, "memory", folded.memory, 600, f"MB; floor {fold_floor.memory:.0f}"),
        results.ratio("`--dump` of the same", "bulk read", dump.seconds, bulk.seconds, 10),
        results.memory("`--dump` of the same", "memory beyond the dump", dumping.memory - size, 150),
    ]


def grids(folder: pathlib.Path) -> List[Line]:
    """Measures the grid of our plugins against Volatility's, on constant rows."""
    image, found = images.database(folder, FEW), []
    for renderer in ("quick", "jsonl", "csv"):
        floor = f"windows.floor.Floor --rows 2000 --children {stacks.FRAMES} --like callstacks"
        ours, theirs = in_turns(
            [partial(cost, image, f"{floor} --ours", renderer), partial(cost, image, floor, renderer)], 3
        )
        what = f"`-r {renderer}`, 62,000 constant rows of `windows.callstacks` in our grid"
        found.append(results.ratio(what, "in Volatility's", ours.seconds, theirs.seconds))
        found.append(results.memory("the same", "memory", ours.memory, None, f"MB / {theirs.memory:.0f} MB"))
    return found


def filters(folder: pathlib.Path) -> List[Line]:
    """Measures what filters leave of the cost."""
    full = images.database(folder, FULL)
    many_processes = images.processes(folder, 1000, 64)
    everything, index, find, opening = in_turns(
        [
            partial(cost, full, "windows.stacktracedb --fold"),
            partial(cost, full, "windows.stacktracedb --fold --index 5"),
            partial(cost, full, "windows.stacktracedb --fold --find *!Function00003+*"),
            partial(cost, full, "windows.info"),
        ],
        5,
    )
    one, all_processes, opening_many = in_turns(
        [
            partial(cost, many_processes, f"windows.stacktracedb --fold --pid {images.PID + 400}"),
            partial(cost, many_processes, "windows.stacktracedb --fold"),
            partial(cost, many_processes, "windows.info"),
        ],
        2,
    )
    net, net_many = everything.seconds - opening.seconds, all_processes.seconds - opening_many.seconds
    return [
        results.ratio(f"`--index`, one of {FULL:,} entries", "all", index.seconds - opening.seconds, net),
        results.ratio("`--find`, few of them", "all", find.seconds - opening.seconds, net),
        results.ratio("`--pid`, one of 1,000 processes", "all", one.seconds - opening_many.seconds, net_many),
    ]


def threads(folder: pathlib.Path) -> List[Line]:
    """Measures windows.trapframes, windows.callstacks and windows.waits."""
    image = stacks.threads(folder, 100, 100)
    frames, calls, waits, registers, theirs = in_turns(
        [
            partial(cost, image, "windows.trapframes"),
            partial(cost, image, "windows.callstacks"),
            partial(cost, image, "windows.waits"),
            partial(cost, image, "windows.debugregisters"),
            partial(cost, image, "windows.threads"),
        ],
        5,
    )
    return [
        results.ratio(
            "`windows.trapframes`, 10,000 threads in 100 processes",
            "`windows.threads`",
            frames.seconds,
            theirs.seconds,
            0.5,
        ),
        results.ratio("the same", "`windows.debugregisters`", frames.seconds, registers.seconds, 1),
        results.ratio(
            f"`windows.callstacks`, same image, {stacks.FRAMES} frames each",
            "`windows.threads`",
            calls.seconds,
            theirs.seconds,
            0.4,
        ),
        results.ratio(
            "`windows.waits`, same image", "`windows.callstacks`", waits.seconds, calls.seconds, 1.1
        ),
    ]


def flags(folder: pathlib.Path) -> List[Line]:
    """Measures windows.gflags."""
    found = []
    for entries, databases in ((0, "none with a database"), (64, "each with a database")):
        image = images.processes(folder, 1000, entries)
        ours, theirs = in_turns(
            [partial(cost, image, "windows.gflags"), partial(cost, image, "windows.pslist")], 3
        )
        what = f"`windows.gflags`, 1,000 processes, {databases}"
        found.append(results.ratio(what, "`windows.pslist`", ours.seconds, theirs.seconds, 3))
    return found
