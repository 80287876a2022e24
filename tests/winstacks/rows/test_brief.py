# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Texts that are cut: never wider than they may be, and what says most of them stays."""

from __future__ import annotations

import json
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.framework.renderers import format_hints

from winstacks.rows import brief
from winstacks.rows.brief import cut_stack, cut_symbol, cut_text, shares, wrapped

WORDS = st.text("abcXYZ_09@?$:", min_size=1, max_size=300)
OFFSETS = st.one_of(st.just(""), st.integers(0, (1 << 64) - 1).map("+{:#x}".format))
SYMBOLS = st.one_of(
    st.builds("{}!{}{}".format, WORDS, WORDS, OFFSETS),
    st.builds("{}{}".format, WORDS, OFFSETS),
    st.builds("<unloaded:{}>{}".format, WORDS, OFFSETS),
    st.sampled_from(["<private>", "<unmapped>", "<no-module>", "<user>", "<zero>"]),
)
WIDTHS = st.integers(0, 130)


@given(st.text(max_size=200), WIDTHS)
def test_a_text_keeps_its_start_and_its_end(text: str, width: int) -> None:
    shown = cut_text(text, width)
    assert len(shown) == min(len(text), width)
    if len(text) > width >= 3:
        start, end = shown.split("…") if text.count("…") == 0 else (shown[:1], shown[-1:])
        assert text.startswith(start)
        assert text.endswith(end)


@given(WORDS, WORDS, OFFSETS, WIDTHS)
def test_module_and_offset_of_a_symbol_stay(module: str, function: str, offset: str, width: int) -> None:
    symbol = f"{module}!{function}{offset}"
    shown = cut_symbol(symbol, width)
    assert len(shown) == min(len(symbol), width)
    if len(f"{module}!…{offset}") <= width:
        assert shown.startswith(f"{module}!")
    if len(f"m!…{offset}") <= width:
        assert shown.endswith(offset)
        assert "!" in shown


@given(SYMBOLS, WIDTHS)
def test_no_symbol_is_wider(symbol: str, width: int) -> None:
    shown = cut_symbol(symbol, width)
    assert len(shown) == min(len(symbol), width)
    assert (shown == symbol) == (len(symbol) <= width)


@given(st.lists(SYMBOLS, min_size=1, max_size=20), WIDTHS)
def test_first_and_last_frames_of_a_stack_stay(frames: List[str], width: int) -> None:
    stack = "; ".join(frames)
    shown = cut_stack(stack, width)
    assert len(shown) <= width
    if len(stack) <= width:
        assert shown == stack
        return
    if len(f"{frames[0]}; …; {frames[-1]}") <= width and len(frames) > 2:
        first, last = (part.split("; ") for part in shown.split("; …; "))
        assert frames[: len(first)] == first
        assert frames[-len(last) :] == last
        assert len(first) - len(last) in (0, 1)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (99, "Ntfs!NtfsCommonCreate+0x71; ntdll!A+0x1; nt!IofCallDriver+0x59; ntdll!RtlUserThreadStart+0x21"),
        (76, "Ntfs!NtfsCommonCreate+0x71; ntdll!A+0x1; …; ntdll!RtlUserThreadStart+0x21"),
        (60, "Ntfs!NtfsCommonCreate+0x71; …; ntdll!RtlUserThreadStart+0x21"),
        (40, "Ntfs!Ntf…ate+0x71; …; ntdll!Rtl…art+0x21"),
    ],
)
def test_a_stack(width: int, shown: str) -> None:
    whole = "Ntfs!NtfsCommonCreate+0x71; ntdll!A+0x1; nt!IofCallDriver+0x59; ntdll!RtlUserThreadStart+0x21"
    assert cut_stack(whole, width) == shown


@given(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.integers(-5, 400))
def test_shares_are_fair(wanted: List[int], room: int) -> None:
    given_ = shares(wanted, room)
    assert all(0 <= part <= want for part, want in zip(given_, wanted))
    assert sum(given_) <= max(room, 0)
    if sum(wanted) <= room:
        assert given_ == wanted
    short = [part for part, want in zip(given_, wanted) if part < want]
    assert max(short, default=0) - min(short, default=0) <= 1


NAMES = ("PID", "Process", "Database", "Symbol", "Source", "Status")
LONG = "ntoskrnl!" + "f" * 400 + "+0x1f"


def rows(*below: Tuple[object, ...]) -> List[Tuple[int, Tuple[object, ...]]]:
    key = (4, "System", format_hints.Hex(0x1000))
    made: List[Tuple[int, Tuple[object, ...]]] = [(0, (*key, "nt!a", "pdb", ""))]
    return [*made, *((1, (*key, *cells)) for cells in below)]


def test_cells_hold_all_and_show_less() -> None:
    columns = ("PID", "Process", "Database", "Symbol", "Status")
    grid = brief.tree(NAMES, columns, iter(rows((LONG, "pdb", "unreadable"))))
    assert [column.name for column in grid.columns] == list(columns)
    found: List[List[object]] = []
    grid.populate(lambda node, _: found.append(list(node.values)), None)
    (first, second) = found
    assert json.loads(json.dumps(second)) == [4, "System", 0x1000, LONG, "unreadable"]
    assert [f"{cell}" for cell in first] == ["4", "System", "0x1000", "nt!a", ""]
    assert [f"{cell}" for cell in second[:3]] == ["", "", ""]
    assert f"{second[4]}" == "unreadable"
    shown = f"{second[3]}"
    assert shown.startswith("ntoskrnl!ffff")
    assert shown.endswith("fff+0x1f")
    line = " | ".join(["**", "PID", "Process", "Database", shown, "unreadable"])
    assert len(line) == brief.WIDTH


@given(st.lists(st.text("abc ", min_size=1, max_size=30).map(str.strip).filter(bool)), st.integers(40, 60))
def test_a_status_is_wrapped_between_words(words: List[str], width: int) -> None:
    status = ", ".join(words)
    lines = wrapped(status, width).split("\n")
    assert max(map(len, lines)) <= width
    assert " ".join(lines) == status


def test_a_status_is_whole_even_if_the_line_gets_longer() -> None:
    columns = ("PID", "Symbol", "Status")
    grid = brief.tree(NAMES, columns, iter(rows((LONG, "pdb", "x" * 150))))
    found: List[List[object]] = []
    grid.populate(lambda node, _: found.append(list(node.values)), None)
    assert f"{found[1][2]}" == "x" * 150
    assert len(f"{found[1][1]}") == 12
