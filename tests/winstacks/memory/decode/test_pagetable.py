# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs of pages in a page table."""

from __future__ import annotations

import struct
from typing import List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode import pagetable

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


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        # Present: MM_EXECUTE_READ, MM_EXECUTE_READWRITE (one processor, several), MM_EXECUTE_WRITECOPY.
        *((0x5021, 3), (0x5063, 6), (0x5821, 6), (0x5221, 7)),
        *((1 << 63 | 0x5021, 1), (1 << 63 | 0x5821, 4), (1 << 63 | 0x5221, 5)),
        # In transition, with MM_GUARD_PAGE; in the page file; a prototype; never touched.
        *(
            (0x5800 | 3 << 5, 3),
            (0x5800 | 0x16 << 5, 0x16),
            (7 << 32 | 4 << 5, None),
            (0x5C00, None),
            (0, None),
        ),
    ],
)
def test_the_protection_of_a_page_in_memory(entry: int, found: Optional[int]) -> None:
    assert pagetable.protection(entry) == found


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        # Present: for reading, copied when written, written (one processor, several).
        *((0x5021, False), (0x5221, False), (0x5063, True), (0x5821, True)),
        # In transition: the five kinds of access, MM_READWRITE and MM_EXECUTE_READWRITE last.
        *((0x5800 | access << 5, access in (4, 6)) for access in (3, 5, 7, 4, 6)),
    ],
)
def test_what_all_may_write_of_a_section(entry: int, found: bool) -> None:
    assert pagetable.writable(entry) == found


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


LOOK_IN_THE_VAD = 0xFFFFFFFF00000000 | 1 << 10 | 1 << 5
PROTOTYPE_PTE = 0xFFFFC00010002018
PROTOTYPE_PTE_86 = 0xA8001018


@pytest.mark.parametrize(
    ("entry", "size", "found"),
    [
        # Valid; in a large page; in transition; the same with what Windows 10 sets against L1TF.
        *((0x8A00000012345121, 8, 0x12345000), (0x12345021, 4, 0x12345000), (0x122000A1, 8, None)),
        *((0x123458E0, 8, 0x12345000), (0x123458E0, 4, 0x12345000), (0x2000000123458E0, 8, 0x12345000)),
        # In the page file; demand zero; in the file (the subsection's address on x64, PAE and x86).
        *((7 << 32 | 7 << 5, 8, None), (7 << 12 | 7 << 5, 4, None), (7 << 5, 8, None)),
        *((0xE00012345678 << 16 | 0x4E0, 8, None), (0x86123458 << 32 | 0x4E0, 8, None)),
        (0x98765C20, 4, None),
    ],
)
def test_a_prototype_pte_leads_to_memory_or_not(entry: int, size: int, found: Optional[int]) -> None:
    assert pagetable.in_section(entry, size) == found


@pytest.mark.parametrize(
    ("entry", "size", "pointer_size", "leads"),
    [
        *((0, 8, 8, True), (0, 4, 4, True), (LOOK_IN_THE_VAD, 8, 8, True), (LOOK_IN_THE_VAD, 8, 4, True)),
        ((PROTOTYPE_PTE & (1 << 48) - 1) << 16 | 0x4E0, 8, 8, True),
        ((PROTOTYPE_PTE & (1 << 48) - 1) + 8 << 16 | 0x4E0, 8, 8, False),
        (PROTOTYPE_PTE_86 << 32 | 0x3C00, 8, 4, True),
        (PROTOTYPE_PTE_86 + 8 << 32 | 0x3C00, 8, 4, False),
        (0x98765C20, 4, 4, True),
        # A page of its own: valid, in transition, in the page file, demand zero.
        *((0x5067, 8, 8, False), (0x5880, 8, 8, False), (7 << 32 | 0x80, 8, 8, False), (0x80, 4, 4, False)),
    ],
)
def test_a_process_without_a_page_of_its_own_has_the_sections(
    entry: int, size: int, pointer_size: int, leads: bool
) -> None:
    prototype = PROTOTYPE_PTE if pointer_size == 8 else PROTOTYPE_PTE_86
    assert pagetable.leads_to_section(entry, size, pointer_size, prototype) is leads
