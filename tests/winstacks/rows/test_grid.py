# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rows by the names of their columns."""

from __future__ import annotations

import itertools
from typing import List, Tuple

import pytest

from winstacks.columns.tables import TABLES
from winstacks.rows import grid
from winstacks.rows.frames import FrameCells
from winstacks.rows.grid import NOT_APPLICABLE, Grid

GRIDS = [Grid.for_plugin(plugin) for plugin in TABLES]

SMALL = Grid("PID", "Address", "Source", "Status", "Symbol", "Frame", "Backing")
OTHER = Grid("Frame", "Lock", "Symbol", "Source", "File output")


@pytest.mark.parametrize("count", range(4))
def test_a_row_has_its_cells_where_their_columns_are(count: int) -> None:
    for names in itertools.permutations(SMALL.names, count):
        row = SMALL.maker(*names)(*range(count))
        cells = dict(zip(SMALL.names, row))
        assert len(row) == len(SMALL.names)
        assert [cells.pop(name) for name in names] == list(range(count))
        assert set(map(id, cells.values())) == {id(NOT_APPLICABLE)}


def test_a_name_may_have_a_space() -> None:
    maker = OTHER.maker("File output", "Symbol")
    assert maker("a.bin", "nt") == (NOT_APPLICABLE, NOT_APPLICABLE, "nt", NOT_APPLICABLE, "a.bin")


@pytest.mark.parametrize("names", [("PID", "TID"), ("PID", "PID"), ("pid",)])
def test_a_column_that_is_not_there_or_comes_twice_is_an_error(names: Tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no column, or one that comes twice"):
        SMALL.maker(*names)
    with pytest.raises(ValueError, match="no column, or one that comes twice"):
        SMALL.frames_maker(*names)


def test_frames_are_numbered_and_stand_below() -> None:
    found = list(SMALL.frames_maker("PID")(4, frames()))
    assert found == [(1, (4, n * 16, "export", "", f"s{n}", n, "image")) for n in range(3)]


def test_a_grid_takes_names_of_the_dictionary_only() -> None:
    with pytest.raises(KeyError, match="FrameAddress"):
        Grid("PID", "FrameAddress")


def frames() -> List[FrameCells]:
    return [(n * 16, f"s{n}", "export", "image", "") for n in range(3)]


def test_what_makes_a_row_is_compiled_once() -> None:
    assert SMALL.maker("PID", "Frame") is SMALL.maker("PID", "Frame")
    assert SMALL.maker("PID", "Frame") is not SMALL.maker("Frame", "PID")


def test_absent_values() -> None:
    assert (grid.or_not_applicable(None), grid.or_not_applicable(0), grid.or_not_applicable("")) == (
        NOT_APPLICABLE,
        0,
        "",
    )
    assert (grid.or_unreadable(None), grid.or_unreadable(0)) == (grid.UNREADABLE, 0)


@pytest.mark.parametrize("own", GRIDS)
def test_columns_have_names_of_their_own(own: Grid) -> None:
    assert len(set(own.names)) == len(own.columns)
    assert own.tree(iter(())).columns
