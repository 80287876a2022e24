# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The column Stack of --brief: the frames that tell a stack from its neighbours are kept."""

from __future__ import annotations

from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.winstacks.rows.test_brief import SYMBOLS
from winstacks.rows.briefstacks import Stacks

ROOTS = ["KERNEL32!BaseThreadInitThunk+0x14", "ntdll!RtlUserThreadStart+0x21"]
ALLOCATING = ["ntdll!RtlAllocateHeap+0x1f", "ucrtbase!malloc+0x36", "indexd!token_pool_alloc+0x1b"]
WORKER = ["indexd!worker+0x40"]


def stack(*frames: str) -> str:
    return "; ".join(frames)


LEAKS = [
    stack(*ALLOCATING, "indexd!parse_title+0x12", "indexd!reload_config+0x80", *WORKER, *ROOTS),
    stack(*ALLOCATING, "indexd!parse_body+0x2f", "indexd!add_document+0x44", *WORKER, *ROOTS),
    stack("ntdll!RtlInitializeCriticalSectionEx+0x5d", "indexd!open_log+0x9", *WORKER, *ROOTS),
]


def counted(stacks: List[str]) -> Stacks:
    known = Stacks()
    for text in stacks:
        known.add(text)
    return known


@pytest.mark.parametrize(
    ("number", "width", "shown"),
    [
        (0, 60, "…; indexd!parse_title+0x12; indexd!reload_config+0x80; …"),
        (1, 60, "…; indexd!parse_body+0x2f; indexd!add_document+0x44; …"),
        (2, 60, "…; indexd!open_log+0x9; …"),
    ],
)
def test_two_leaks_through_one_allocator_are_told_apart(number: int, width: int, shown: str) -> None:
    line = counted(LEAKS).lines(LEAKS[number], width).replace("\n", " ")
    assert all(frame in line for frame in shown.split("; ") if frame != "…")
    assert not any(root in line for root in ROOTS)


def test_equal_stacks_count_once() -> None:
    known = counted([LEAKS[0]] * 5 + LEAKS[1:])
    assert known.lines(LEAKS[0], 60) == counted(LEAKS).lines(LEAKS[0], 60)


def test_code_in_no_file_is_kept_first() -> None:
    hidden = stack("ntdll!NtDelayExecution+0x14", "<private> 0x1d2b00002c4", *WORKER, *ROOTS)
    waiting = hidden.split("; ")[:2]
    others = [stack(*waiting, f"app!f{number}", *ROOTS) for number in range(9)]
    lines = counted([hidden, *others]).lines(hidden, 40).split("\n")
    assert "<private> 0x1d2b00002c4" in " ".join(lines)


def test_a_list_of_one_stack_keeps_the_program() -> None:
    lines = counted(LEAKS[:1]).lines(LEAKS[0], 70)
    assert lines.split("\n") == [
        "…; indexd!token_pool_alloc+0x1b;",
        "indexd!parse_title+0x12;",
        "indexd!reload_config+0x80; …",
    ]


def test_a_stack_that_fits_is_whole() -> None:
    assert counted(LEAKS).lines(LEAKS[0], len(LEAKS[0])) == LEAKS[0]


@given(st.lists(st.lists(SYMBOLS, min_size=1, max_size=12), min_size=1, max_size=6), st.integers(20, 200))
def test_no_line_is_wider_and_the_order_of_frames_is_kept(stacks: List[List[str]], width: int) -> None:
    texts = ["; ".join(frames) for frames in stacks]
    known = counted(texts)
    for text, frames in zip(texts, stacks):
        lines = known.lines(text, width).split("\n")
        assert max(map(len, lines)) <= max(width, 20)
        if len(lines) == 1:
            shown = [frame for frame in lines[0].split("; ") if frame != "…"]
            rest = iter(frames)
            if len(frames) > 1:
                assert all(frame in rest for frame in shown)
