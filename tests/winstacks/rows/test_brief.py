# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Texts that are cut: never wider than they may be, and what says most of them stays."""

from __future__ import annotations

import json
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.framework import renderers
from volatility3.framework.renderers import format_hints

from tests.support.only import rows_of
from winstacks.columns import dictionary
from winstacks.memory.decode.text import ShortText
from winstacks.rows import brief, briefgrid
from winstacks.rows.brief import (
    cut_symbol,
    cut_text,
    name_lines,
    shares,
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


def populate(grid: Any, found: List[List[object]], renderer: str = "PrettyTextRenderer") -> None:
    """Takes the rows of a grid as a renderer of Volatility does."""

    def visitor(node: Any, _: object) -> None:
        found.append(list(node.values))

    visitor.__qualname__ = f"{renderer}.render.<locals>.visitor"
    grid.populate(visitor, None)


def test_cells_hold_all_and_show_less() -> None:
    columns = ("PID", "Process", "Database", "Symbol", "Status")
    grid = briefgrid.tree(COLUMNS, columns, iter(rows((LONG, "pdb", "unreadable"))))
    assert [column.name for column in grid.columns] == list(columns)
    found: List[List[object]] = []
    populate(grid, found)
    first, second = rows_of(2, found)
    assert json.loads(json.dumps(second)) == [4, "System", 0x1000, LONG, "unreadable"]
    assert [f"{cell}" for cell in first] == ["4", "System", "0x1000", "nt!a", ""]
    assert [f"{cell}" for cell in second[:3]] == ["", "", ""]
    assert f"{second[4]}" == "unreadable"
    shown = f"{second[3]}"
    assert shown.startswith("ntoskrnl!ffff")
    assert shown.endswith("fff+0x1f")
    line = " | ".join(["**", "PID", "Process", "Database", shown, "unreadable"])
    assert len(line) == briefgrid.WIDTH


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


@given(st.one_of(SYMBOLS, st.builds("{} {:#x}".format, SYMBOLS, st.integers(0, (1 << 64) - 1))), WIDTHS)
def test_a_symbol_is_cut_only_if_a_part_of_it_fits_no_line(symbol: str, width: int) -> None:
    module, bang, rest = symbol.rpartition("!")
    lines = symbol_lines(symbol, width).split("\n")
    if max(len(module) + len(bang), len(rest)) <= width:
        assert "".join(lines).replace(" ", "") == symbol.replace(" ", "")
    assert max(map(len, lines)) <= max(width, 18)


def test_a_symbol_may_be_an_address_only() -> None:
    assert symbol_lines(" 0x7ffe", 3).strip() == "0x7ffe"


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
    grid = briefgrid.tree(COLUMNS, ("PID", "Symbol"), iter([(0, row)]))
    found: List[List[object]] = []
    populate(grid, found)
    assert f"{found[0][1]}" == "<private> 0x1d2b00002c4"
    assert json.dumps(found[0]) == '[4, "<private>"]'


def test_chosen_columns_are_not_shortened() -> None:
    grid = briefgrid.chosen(COLUMNS, ("Status", "Symbol", "PID"), iter(rows((LONG, "pdb", "unreadable"))))
    found: List[List[object]] = []
    populate(grid, found)
    assert [column.name for column in grid.columns] == ["Status", "Symbol", "PID"]
    assert found[1] == ["unreadable", LONG, 4]
    assert f"{found[1][1]}" == LONG


def test_a_status_is_whole_even_if_the_line_gets_longer() -> None:
    columns = ("PID", "Symbol", "Status")
    grid = briefgrid.tree(COLUMNS, columns, iter(rows((LONG, "pdb", "x" * 150))))
    found: List[List[object]] = []
    populate(grid, found)
    assert f"{found[1][2]}" == "x" * 150
    assert len(f"{found[1][1]}") == 14


def test_other_renderers_show_each_text_in_one_line() -> None:
    columns = ("PID", "Process", "Database", "Symbol", "Status")
    grid = briefgrid.tree(COLUMNS, columns, iter(rows((LONG, "pdb", "one, " * 40))))
    found: List[List[object]] = []
    populate(grid, found, "QuickTextRenderer")
    _, second = rows_of(2, found)
    assert [f"{cell}" for cell in second] == ["4", "System", "0x1000", LONG, "one, " * 40]


def test_a_column_without_a_value_is_left_out_where_it_is_printed() -> None:
    absent = renderers.NotApplicableValue()
    row = (4, absent, absent, "nt!a", "pdb", absent)
    for renderer, names in (
        ("PrettyTextRenderer", ["PID", "Symbol", "Status"]),
        ("JsonRenderer", ["PID", "Process", "Symbol", "Status"]),
    ):
        grid = briefgrid.tree(COLUMNS, ("PID", "Process", "Symbol", "Status"), iter([(0, row)]))
        found: List[List[object]] = []
        populate(grid, found, renderer)
        assert [column.name for column in grid.columns] == names
        assert len(found[0]) == len(names)


def test_columns_leave_until_the_others_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    columns = ("PID", "Process", "Database", "Symbol", "Status")
    for width, names in ((80, columns), (50, ("PID", "Process", "Symbol", "Status"))):
        monkeypatch.setenv("COLUMNS", str(width))
        caplog.clear()
        grid = briefgrid.tree(COLUMNS, columns, iter(rows((LONG, "pdb", "unreadable"))), "stacktracedb")
        found: List[List[object]] = []
        populate(grid, found)
        assert tuple(column.name for column in grid.columns) == names
        line = " | ".join(["**", *(f"{cell}".split("\n")[0] for cell in found[0])])
        assert len(line) <= width
        said = [record.getMessage() for record in caplog.records]
        assert said == (
            []
            if width == 80
            else [
                "50 characters have no room for Database: "
                "a wider terminal (or the variable COLUMNS) shows them"
            ]
        )


@pytest.mark.parametrize(
    ("text", "width"), [("", 120), ("0", 120), ("x", 120), ("80", 80), ("200", 200), ("9", 40)]
)
def test_the_width_of_a_line(text: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", text)
    assert briefgrid.line_width() == width


def test_a_range_is_broken_between_its_ends() -> None:
    assert brief.wrapped_evidence("VAD 0xe100000000-0xe100000fff", 16) == "VAD\n0xe100000000-\n0xe100000fff"
    assert brief.longest_piece("0xe100000000-0xe100000fff") == len("0xe100000000-")


def test_a_word_is_broken_behind_its_underscores() -> None:
    assert wrapped_evidence("wait_in_dispatcher", 10) == "wait_in_\ndispatcher"
    assert wrapped_evidence("unbacked", 10) == "unbacked"
    assert wrapped_evidence("VAD PAGE_EXECUTE_READWRITE; 6", 14) == "VAD\nPAGE_EXECUTE_\nREADWRITE; 6"
