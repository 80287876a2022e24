# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Memory for many databases, which are worked through one at a time, and for rows that go out at once.

The rows have a benchmark of their own: the image with a thousand databases takes many times as long to make.
"""

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
_TRACES, _MORE_TRACES = 20_000, 80_000
"""Both are more than the rows of a part of a Parquet file, which are held together."""
_RENDERERS = ("jsonl", "parquet", "csv", "quick", "none")
"""Renderers to which rows go as they are made. The others come back to rows, and the grid keeps all."""
_MOST_OF_A_ROW = 250
"""Bytes that may be held for each further row: a kept row takes some 2,000."""


def rows(folder: pathlib.Path) -> List[Line]:
    """Measures the memory for a few traces and for many."""
    few, many = (images.database(folder, count) for count in (_TRACES, _MORE_TRACES))
    found = []
    for renderer in _RENDERERS:
        less, more = (cost(image, "windows.traces", renderer).memory for image in (few, many))
        further = _MORE_TRACES - _TRACES
        found.append(
            Line(
                f"`windows.traces -r {renderer}`, {_MORE_TRACES:,} rows less {_TRACES:,}",
                "memory of a row",
                max(more - less, 0) * _MEGABYTE / further,
                _MOST_OF_A_ROW,
                AT_MOST,
                f"bytes; {more:.0f} MB less {less:.0f} MB",
            )
        )
    return found


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
