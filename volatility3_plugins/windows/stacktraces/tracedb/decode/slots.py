# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The index array of a database: number i is stored at EntryIndexArray - i * pointer size."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from ...base.decode.extents import Extents
from . import entries as stdentries
from .bounds import Bounds


class Slots(NamedTuple):
    """Index slots in a row that are present: the number of the first, and what they hold, in index order."""

    first: int
    pointers: Tuple[int, ...]


def index_slots(memory: Extents, used: Bounds, size: int) -> List[Slots]:
    """Returns the index slots that are present."""
    found = []
    for low, high in memory.covered(used.upper_start, used.upper_end):
        last = (used.upper_end - low) // size
        first = -(-(used.upper_end - high) // size) + 1
        if first <= last:
            start = used.upper_end - last * size
            found.append(Slots(first, stdentries.pointers(memory, start, last - first + 1, size)[::-1]))
    return found[::-1]


def cut(slots: List[Slots], entries: List[List[Optional[int]]]) -> None:
    """Drops what follows the last slot that leads to an entry, where it is not known where the slots end."""
    while slots:
        while entries[-1] and entries[-1][-1] is None:
            entries[-1].pop()
        if entries[-1]:
            slots[-1] = Slots(slots[-1].first, slots[-1].pointers[: len(entries[-1])])
            return
        slots.pop()
        entries.pop()
