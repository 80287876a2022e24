# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Entries name values by column; the renderer gives them the form of the column."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import pytest
from volatility3.framework.renderers import format_hints

from tests.support.only import only
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import AddressSpace
from winstacks.process.objectheaders import ObjectInfo
from winstacks.rows.entries import EntryRows, ShownEntry, object_cells
from winstacks.rows.frames import FramePrinter
from winstacks.rows.grid import NOT_APPLICABLE, NOT_AVAILABLE, UNREADABLE, Grid, Row
from winstacks.stacklist.frames import LINKED_OVER

GRID = Grid.for_plugin("handletraces")
SPACE = AddressSpace(None, "app.exe", Machine.AMD64, "layer", eprocess=1)
BODY = 0xFFFF8000_00001000


def shown(entry: ShownEntry, *frames: Any, fold: bool = False) -> List[Tuple[int, Dict[str, Any]]]:
    printed = EntryRows(GRID, FramePrinter(Machine.AMD64), ("Handle", "Object"), ("PID", "ByPID"), fold)
    rows: List[Row] = list(printed.rows(entry, frames))
    return [(depth, dict(zip(GRID.names, cells))) for depth, cells in rows]


def test_the_type_of_a_column_decides_about_its_cell() -> None:
    cells = {"Handle": 4, "ByPID": 8, **object_cells(ObjectInfo(BODY, "File", None, ()))}
    depth, row = only(shown(ShownEntry(SPACE, status(StatusCode.FREED), cells)))
    assert (depth, row["Status"], row["Process"], row["Arch"]) == (0, "freed", "app.exe", "x64")
    assert isinstance(row["Handle"], format_hints.Hex) and row["Handle"] == 4
    assert isinstance(row["Object"], format_hints.Hex) and row["Object"] == BODY & 0xFFFF_FFFFFFFF
    assert (type(row["ByPID"]), row["ByPID"]) == (int, 8)


def test_none_is_the_absent_value_of_the_column() -> None:
    gap = ShownEntry(SPACE, cells={"ByPID": None, "ByTID": None, "Object": NOT_AVAILABLE})
    _, row = only(shown(gap))
    assert (row["PID"], row["ByPID"], row["ByTID"]) == (UNREADABLE, UNREADABLE, NOT_APPLICABLE)
    assert row["Object"] is NOT_AVAILABLE
    assert row["Handle"] is row["Unbacked"] is row["Stack"] is NOT_APPLICABLE
    assert object_cells(None) == dict.fromkeys(("Object", "ObjectType", "ObjectName"))


def test_the_rows_of_frames_follow_what_is_below_and_repeat_the_key() -> None:
    below: Row = (1, ("below",))
    entry = ShownEntry(SPACE, cells={"Handle": 4, "ByPID": 8}, below=(below,))
    first, between, *frames = shown(entry, LINKED_OVER, LINKED_OVER)
    assert between == (1, {"PID": "below"})
    assert [(depth, row["Frame"], row["Handle"]) for depth, row in frames] == [(1, 0, 4), (1, 1, 4)]
    assert {row["ByPID"] for _, row in frames} == {NOT_APPLICABLE}
    assert [depth for depth, _ in shown(entry, LINKED_OVER, fold=True)] == [0, 1]
    assert first[1]["Stack"] is NOT_APPLICABLE
    assert shown(entry, LINKED_OVER, fold=True)[0][1]["Stack"] == LINKED_OVER.shown


def test_a_column_that_the_plugin_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="LockType"):
        shown(ShownEntry(SPACE, cells={"LockType": ""}))
