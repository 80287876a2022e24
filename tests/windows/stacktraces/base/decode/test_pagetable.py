# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs of pages in a page table."""

from __future__ import annotations

import struct
from typing import List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.plugins.windows.stacktraces.base.decode import pagetable

PRESENT_WITH_FLAGS = 0x8000000000000063
ABSENT = 0x0000123400000880


def table(entries: List[int], size: int) -> bytes:
    return struct.pack(f"<{len(entries)}{'Q' if size == 8 else 'I'}", *entries)


@pytest.mark.parametrize("size", [4, 8])
def test_frames_in_a_row_are_one_run(size: int) -> None:
    entries = [0, 0x5063, 0x6063, 0x7867, 0x9063, 0x880, 0, 0xA063]
    found = list(pagetable.runs(table(entries, size), size, 1, 7))
    assert found == [(3, 0x5000), (1, 0x9000), (2, None), (1, 0xA000)]


def test_flags_above_the_frame_do_not_count() -> None:
    assert list(pagetable.runs(table([PRESENT_WITH_FLAGS | 0x1F000], 8), 8, 0, 1)) == [(1, 0x1F000)]
    assert pagetable.target(PRESENT_WITH_FLAGS | 0x1F000, 8) == 0x1F000


@pytest.mark.parametrize(
    ("entry", "size", "found"),
    [
        *((0x5063, 8, True), (PRESENT_WITH_FLAGS | 0x5000, 8, False), (0x80005063, 4, True)),
        # In transition: MM_READWRITE, MM_EXECUTE_READ, MM_EXECUTE_READWRITE.
        *((0x5800 | 4 << 5, 8, False), (0x5800 | 3 << 5, 8, True), (0x5800 | 6 << 5, 4, True)),
    ],
)
def test_what_may_be_executed(entry: int, size: int, found: bool) -> None:
    assert pagetable.executable(entry, size) == found


def test_no_pages_are_no_runs() -> None:
    assert list(pagetable.runs(b"", 8, 0, 0)) == []


@given(frames=st.lists(st.one_of(st.none(), st.integers(1, 6)), max_size=60))
def test_runs_say_of_each_page_what_its_entry_says(frames: List[Optional[int]]) -> None:
    entries = [ABSENT if frame is None else PRESENT_WITH_FLAGS | frame << 12 for frame in frames]
    pages: List[Optional[int]] = []
    runs: List[Tuple[int, Optional[int]]] = list(pagetable.runs(table(entries, 8), 8, 0, len(entries)))
    for count, start in runs:
        pages += [None if start is None else (start >> 12) + number for number in range(count)]
    assert pages == frames
    for (count, start), (_, following) in zip(runs, runs[1:]):
        assert following != (None if start is None else start + 0x1000 * count)
