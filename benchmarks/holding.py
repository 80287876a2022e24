# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether an image with many databases is worked through one database at a time."""

from __future__ import annotations

import pathlib
from functools import partial
from typing import List

from . import images
from .listing import cost
from .measure import in_turns
from .results import AT_MOST, Line

FEW, MANY, ENTRIES = 10, 1000, 2000
COMMANDS = ("windows.stacktracedb --index 1", "windows.stacktracedb --find nothing", "windows.gflags")
_ENTRY = 0x90
_MEGABYTE = 1 << 20


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures the memory for ten and for a thousand processes, each with a database."""
    few_processes, many_processes = (images.processes(folder, count, ENTRIES) for count in (FEW, MANY))
    total = (MANY - FEW) * ENTRIES * _ENTRY / _MEGABYTE
    found = []
    for command in COMMANDS:
        less, more, opened_less, opened_more = in_turns(
            [
                partial(cost, few_processes, command),
                partial(cost, many_processes, command),
                partial(cost, few_processes, "windows.pslist"),
                partial(cost, many_processes, "windows.pslist"),
            ],
            1,
        )
        rise = more.memory - less.memory
        theirs = opened_more.memory - opened_less.memory
        found.append(
            Line(
                f"`{command}`, {MANY:,} databases less {FEW}",
                f"memory; {total:.0f} MB of entries",
                rise,
                total / 4,
                AT_MOST,
                f"MB; `windows.pslist` {theirs:.0f} MB",
            )
        )
    return found
