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

from tests.support.only import rows_of
from winstacks.columns import dictionary
from winstacks.memory.decode.text import ShortText
from winstacks.rows import brief
from winstacks.rows.brief import (
    cut_stack,
    cut_symbol,
    cut_text,
    name_lines,
    shares,
    stack_lines,
    symbol_lines,
    wrapped,
    wrapped_evidence,
)
from winstacks.rows.grid import typed

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
    if 0 < width < len(symbol):
        assert "…" in shown


@pytest.mark.parametrize(
    ("symbol", "width", "shown"),
    [
        ("<private> 0x1d2b00002c4", 15, "… 0x1d2b00002c4"),
        # No room is left for the mark of omitted characters.
        ("<private> 0x1d2b00002c4", 14, "<privat…0002c4"),
        ("updater!main+0x1234567", 13, "…!…+0x1234567"),
        ("updater!main+0x1234567", 12, "update…34567"),
    ],
)
def test_a_symbol_of_which_little_more_than_the_offset_has_room(symbol: str, width: int, shown: str) -> None:
    assert cut_symbol(symbol, width) == shown


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
def test_shares_are_fair(widths: List[int], room: int) -> None:
    parts = shares(widths, room)
    assert all(0 <= part <= want for part, want in zip(parts, widths))
    assert sum(parts) <= max(room, 0)
    if sum(widths) <= room:
        assert parts == widths
    short = [part for part, want in zip(parts, widths) if part < want]
    assert max(short, default=0) - min(short, default=0) <= 1


COLUMNS = typed(
    map(dictionary.COLUMNS.__getitem__, ("PID", "Process", "Database", "Symbol", "Source", "Status"))
)
LONG = "ntoskrnl!" + "f" * 400 + "+0x1f"


def rows(*below: Tuple[object, ...]) -> List[Tuple[int, Tuple[object, ...]]]:
    key = (4, "System", format_hints.Hex(0x1000))
    first: List[Tuple[int, Tuple[object, ...]]] = [(0, (*key, "nt!a", "pdb", ""))]
    return [*first, *((1, (*key, *cells)) for cells in below)]


def test_cells_hold_all_and_show_less() -> None:
    columns = ("PID", "Process", "Database", "Symbol", "Status")
    grid = brief.tree(COLUMNS, columns, iter(rows((LONG, "pdb", "unreadable"))))
    assert [column.name for column in grid.columns] == list(columns)
    found: List[List[object]] = []
    grid.populate(lambda node, _: found.append(list(node.values)), None)
    first, second = rows_of(2, found)
    assert json.loads(json.dumps(second)) == [4, "System", 0x1000, LONG, "unreadable"]
    assert [f"{cell}" for cell in first] == ["4", "System", "0x1000", "nt!a", ""]
    assert [f"{cell}" for cell in second[:3]] == ["", "", ""]
    assert f"{second[4]}" == "unreadable"
    shown = f"{second[3]}"
    assert shown.startswith("ntoskrnl!ffff")
    assert shown.endswith("fff+0x1f")
    line = " | ".join(["**", "PID", "Process", "Database", shown, "unreadable"])
    assert len(line) == brief.WIDTH


@given(st.lists(st.text("abc,", min_size=1, max_size=30)), st.integers(0, 60))
def test_a_text_is_wrapped_between_words(words: List[str], width: int) -> None:
    text = " ".join(words)
    lines = wrapped(text, width).split("\n")
    assert max(map(len, lines)) <= max(width, *map(len, words), 0)
    assert " ".join(lines) == text


@given(st.lists(st.text("abc;,", min_size=1, max_size=30), min_size=1), st.integers(30, 60))
def test_no_word_of_an_evidence_is_cut_that_fits_a_line(words: List[str], width: int) -> None:
    text = " ".join(words)
    assert wrapped_evidence(text, width).replace("\n", " ") == text


@given(WORDS, st.integers(20, 60))
def test_an_evidence_of_a_long_name_stays_in_its_column(name: str, width: int) -> None:
    lines = wrapped_evidence(f"called by {name}", width).split("\n")
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("called by")


@given(st.integers(0, (1 << 64) - 1), st.integers(18, 40))
def test_an_address_behind_a_symbol_is_never_cut(address: int, width: int) -> None:
    symbol = f"<private> {address:#x}"
    shown = symbol_lines(symbol, width)
    assert shown.replace("\n", " ") == symbol
    assert max(map(len, shown.split("\n"))) <= width


@given(st.lists(SYMBOLS, min_size=2, max_size=9), st.integers(40, 130))
def test_the_ends_of_a_stack_are_whole_if_each_fits_a_line(frames: List[str], width: int) -> None:
    lines = stack_lines("; ".join(frames), width).split("\n")
    assert max(map(len, lines)) <= width
    if len(frames[0]) + len("; …;") <= width:
        assert lines[0].startswith(frames[0])
    if len(lines) > 1 and len(frames[-1]) <= width:
        assert lines[-1] == frames[-1]


@given(st.one_of(SYMBOLS, st.builds("{} {:#x}".format, SYMBOLS, st.integers(0, (1 << 64) - 1))), WIDTHS)
def test_a_symbol_is_cut_only_if_a_part_of_it_fits_no_line(symbol: str, width: int) -> None:
    module, bang, rest = symbol.rpartition("!")
    lines = symbol_lines(symbol, width).split("\n")
    if max(len(module) + len(bang), len(rest)) <= width:
        assert "".join(lines).replace(" ", "") == symbol.replace(" ", "")
    assert max(map(len, lines)) <= max(width, 18)


def test_the_caller_in_another_module_is_shown() -> None:
    frames = [
        "ntdll!NtWaitForSingleObject+0x14",
        "ntdll!RtlEnterCriticalSection+0x62",
        "spooler!count_jobs+0x1d",
    ]
    frames += ["spooler!rotate_log+0x38", "ntdll!RtlUserThreadStart+0x21"]
    stack = "; ".join(frames)
    assert stack_lines(stack, len(stack)) == stack
    assert stack_lines(stack, 100) == f"{frames[0]}; …; {frames[2]}; …; {frames[-1]}"
    assert stack_lines(stack, 50).split("\n") == [f"{frames[0]}; …;", f"{frames[2]}; …;", frames[-1]]
    alone = "; ".join(
        ["nt!KiSwapContext+0x20", "nt!KiSwapThread+0x20", *["nt!A"] * 9, "nt!KiSystemCall64+0x20"]
    )
    assert stack_lines(alone, 70) == cut_stack(alone, 70)


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, ["ntdll!RtlInitializeCriticalSectionEx", "+0x5d; …;", "ntdll!RtlUserThreadStart+0x21"]),
        (35, ["ntdll!", "RtlInitializeCriticalSectionEx", "+0x5d; …;", "ntdll!RtlUserThreadStart+0x21"]),
        (
            20,
            [
                "ntdll!RtlInitialize",
                "CriticalSectionEx",
                "+0x5d; …;",
                "ntdll!",
                "RtlUserThreadStart",
                "+0x21",
            ],
        ),
        (12, ["…!…+0x5d; …;", "ntdll!", "RtlUser", "ThreadStart", "+0x21"]),
    ],
)
def test_the_ends_of_a_stack_are_broken_between_their_parts(width: int, shown: List[str]) -> None:
    stack = "ntdll!RtlInitializeCriticalSectionEx+0x5d; ntdll!A; ntdll!RtlUserThreadStart+0x21"
    assert stack_lines(stack, width).split("\n") == shown


def test_a_name_is_wrapped_between_its_parts() -> None:
    path = r"\Device\HarddiskVolume3\Users\ann\store.db"
    assert name_lines(path, 20) == "\\Device\n\\HarddiskVolume3\n\\Users\\ann\\store.db"
    assert name_lines(path, 60) == path
    assert name_lines("legacy.exe Pid 5120", 15) == "legacy.exe Pid\n5120"


@given(st.text("abc\\ ", max_size=90), st.integers(3, 40))
def test_no_line_of_a_name_is_wider(name: str, width: int) -> None:
    assert max(map(len, name_lines(name, width).split("\n"))) <= width


def test_a_short_form_is_shown_and_the_whole_is_kept() -> None:
    row = (4, "System", format_hints.Hex(0), ShortText("<private>", "<private> 0x1d2b00002c4"), "none", "")
    grid = brief.tree(COLUMNS, ("PID", "Symbol"), iter([(0, row)]))
    found: List[List[object]] = []
    grid.populate(lambda node, _: found.append(list(node.values)), None)
    assert f"{found[0][1]}" == "<private> 0x1d2b00002c4"
    assert json.dumps(found[0]) == '[4, "<private>"]'


def test_chosen_columns_are_not_shortened() -> None:
    grid = brief.chosen(COLUMNS, ("Status", "Symbol", "PID"), iter(rows((LONG, "pdb", "unreadable"))))
    found: List[List[object]] = []
    grid.populate(lambda node, _: found.append(list(node.values)), None)
    assert [column.name for column in grid.columns] == ["Status", "Symbol", "PID"]
    assert found[1] == ["unreadable", LONG, 4]
    assert f"{found[1][1]}" == LONG


def test_a_status_is_whole_even_if_the_line_gets_longer() -> None:
    columns = ("PID", "Symbol", "Status")
    grid = brief.tree(COLUMNS, columns, iter(rows((LONG, "pdb", "x" * 150))))
    found: List[List[object]] = []
    grid.populate(lambda node, _: found.append(list(node.values)), None)
    assert f"{found[1][2]}" == "x" * 150
    assert len(f"{found[1][1]}") == 12
