# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A machine as users have it: every plugin, and all together against what users run first."""

from __future__ import annotations

import pathlib
import time
from functools import partial
from typing import List

from . import machine, results
from .listing import cost
from .measure import in_turns
from .results import Line

OURS = (
    "windows.stacktracedb --fold",
    "windows.trapframes",
    "windows.callstacks --fold",
    "windows.locks --fold",
    "windows.handletraces --fold",
    "windows.objecttraces --fold",
    "windows.heaptraces --fold",
    "windows.gflags",
    "windows.traces",
)
THEIRS = ("windows.pslist", "windows.threads", "windows.dlllist", "windows.handles", "windows.modules")
WHOLE = {
    "windows.tracefindings": 250,
    "windows.waits": 250,
    "windows.traceframes": 250,
    "windows.tracegraph": None,
    "windows.tracereport": None,
}
"""Commands that work on all stacks, and the most memory of each in MB: a page needs all stacks at once."""
MOST_SECONDS, MOST_MEMORY = 180, 250
_THREADS = THEIRS.index("windows.threads")
_OF_THREADS = {"windows.callstacks --fold": 0.09, "windows.traces": 0.4, "windows.tracefindings": 0.4}
"""Goals for the time of commands, as a part of what `windows.threads` takes."""


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures the plugins on the machine, once each."""
    started = time.monotonic()
    _, image = machine.make(folder, dump=True)
    spent = time.monotonic() - started
    dump = image._replace(file=folder / machine.DUMP)
    commands = (*OURS, *WHOLE, *THEIRS)
    *costs, dumped = in_turns(
        [*(partial(cost, image, command) for command in commands), partial(cost, dump, OURS[2])], 1
    )
    measured = dict(zip(commands, costs))
    ours, theirs = ([measured[command] for command in group] for group in (OURS, THEIRS))
    all_ours, all_theirs = (sum(measurement.seconds for measurement in group) for group in (ours, theirs))
    named = "`, `".join(their.split(".")[1] for their in THEIRS)
    found = [
        Line(
            "to make the machine of 32 GB, raw and as a crash dump",
            "seconds",
            spent,
            MOST_SECONDS,
            results.AT_MOST,
            "s of the clock",
        ),
        results.ratio(f"all {len(OURS)} plugins below", f"`{named}`", all_ours, all_theirs, 1),
    ]
    for name, element in zip(OURS, ours):
        found.append(results.ratio(f"`{name}`", "those five", element.seconds, all_theirs))
        found.append(results.memory("the same", "memory", element.memory, MOST_MEMORY))
    for name, most in WHOLE.items():
        found.append(results.memory(f"`{name}`", "memory", measured[name].memory, most))
    of_threads = theirs[_THREADS].seconds
    for name, goal in _OF_THREADS.items():
        seconds = measured[name].seconds
        found.append(results.ratio(f"`{name}`", "`windows.threads`", seconds, of_threads, goal))
    for name, element in zip(THEIRS, theirs):
        found.append(results.ratio(f"`{name}`", "the five", element.seconds, all_theirs))
        found.append(results.memory("the same", "memory", element.memory, None))
    found.append(
        results.ratio(f"`{OURS[2]}` of the `.dmp`", "of the raw image", dumped.seconds, ours[2].seconds)
    )
    return found
