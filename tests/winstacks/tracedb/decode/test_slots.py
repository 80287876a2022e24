# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The index array alone."""

from __future__ import annotations

import struct
from typing import List, Optional

import pytest

from winstacks.memory.decode.ranges import Extents
from winstacks.tracedb.decode.header import Bounds
from winstacks.tracedb.decode.linked import Slots, index_slots, truncate

START, END = 0x10000, 0x10050
POINTERS = list(range(0xA, 0, -1))
MEMORY = struct.pack("<10Q", *POINTERS)
USED = Bounds(0x1000, 0x2000, START, END, True, True)


def test_number_one_lies_last() -> None:
    assert index_slots(Extents([(START, MEMORY)]), USED, 8) == [Slots(1, tuple(range(1, 11)))]


def test_holes_keep_the_numbers_apart() -> None:
    """A slot of which a part is missing is not read."""
    memory = Extents([(START, MEMORY[:0x1C]), (START + 0x2C, MEMORY[0x2C:])])
    assert index_slots(memory, USED, 8) == [Slots(1, (1, 2, 3, 4)), Slots(8, (8, 9, 10))]
    assert index_slots(Extents([(START + 4, MEMORY[4:8])]), USED, 8) == []


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([[5, None, None], [None, None]], [[5]]),
        ([[None, 6, None]], [[None, 6]]),
        ([[7, 8], [9]], [[7, 8], [9]]),
        ([[None], [None, None]], []),
        ([], []),
    ],
)
def test_cut(entries: List[List[Optional[int]]], left: List[List[Optional[int]]]) -> None:
    slots, first = [], 1
    for entry in entries:
        slots.append(Slots(first, (0x40,) * len(entry)))
        first += len(entry) + 3
    truncate(slots, entries)
    assert entries == left
    assert [len(slot.pointers) for slot in slots] == [len(pointers) for pointers in left]
