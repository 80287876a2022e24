# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Cells that depend on a status: on its words, never on what is found in its text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, Optional

import pytest

from tests.support.only import only
from winstacks.columns.words import THREAD
from winstacks.commands.handletraces import HandleTraces
from winstacks.handles.events import HandleEvent
from winstacks.handles.lister import ActingSpaces
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import NOTHING, Status, StatusItem, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.image import AddressSpace
from winstacks.names.symbolizer import Name
from winstacks.rows import traps
from winstacks.rows.entries import EntryRows
from winstacks.rows.frames import FramePrinter, folded
from winstacks.rows.grid import NOT_APPLICABLE, NOT_AVAILABLE, UNPARSABLE, UNREADABLE, Grid
from winstacks.stacklist.frames import SpaceFrames
from winstacks.traps.state import TrapState

SPACE = AddressSpace(1000, "app.exe", Machine.AMD64, "layer")


class AddressNamer:
    """What stands for the names of a space."""

    def name(self, address: int, return_address: bool = True) -> Name:
        return Name(f"{address:#x}", "none", NOTHING, "none")


def space_frames() -> SpaceFrames:
    """Frames of which only the names are known."""
    return SpaceFrames(_standing(AddressNamer()), _standing((None, None)), lambda: None)


class Image:
    """What stands for an image, and for what names its frames."""

    machine = Machine.AMD64
    status = NOTHING
    kernel = SPACE._replace(pid=0, kernel=True)

    @property
    def image(self) -> Any:
        return self

    def service(self, _: object) -> Any:
        return self

    def for_space(self, space: AddressSpace) -> SpaceFrames:
        return space_frames()


def _standing(what: object) -> Any:
    """Returns what stands for something else, without its type."""
    return what


def cells(grid: Grid, row: Any) -> Dict[str, Any]:
    return dict(zip(grid.names, row))


def state(row_status: Status, tid: Optional[int] = None, **registers: int) -> Dict[str, Any]:
    """The row of a trap frame."""
    found = TrapState(SPACE, tid, THREAD, 0x1000, "", "", registers, (), "", row_status)
    return cells(traps.GRID, traps.TrapRows(_standing(Image())).row(found))


@pytest.mark.parametrize(
    ("expected_status", "absent"),
    [
        (status(StatusCode.UNREADABLE), UNREADABLE),
        (status(StatusCode.PARTLY_UNREADABLE, StatusCode.UNREADABLE), UNREADABLE),
        (status(StatusCode.NOT_A_TRAP_FRAME), UNPARSABLE),
        (status(StatusCode.PARTLY_UNREADABLE, StatusCode.NOT_A_TRAP_FRAME), UNPARSABLE),
    ],
)
def test_a_frame_that_is_none_is_not_unreadable(expected_status: Status, absent: object) -> None:
    """The thread of the last one is partly unreadable, the bytes at the frame's place are there."""
    row = state(expected_status, 1004)
    assert {row["TrapKind"], row["Mode"], row["Rip"], row["Rax"], row["Dr7"]} == {absent}
    assert row["TID"] == 1004


def test_a_register_that_was_not_saved_is_neither() -> None:
    assert state(status(StatusCode.UNREADABLE), Rip=1)["Rax"] is NOT_AVAILABLE


@pytest.mark.parametrize(
    ("expected_status", "tid"),
    [
        (StatusCode.UNREADABLE, UNREADABLE),
        (StatusCode.PARTLY_UNREADABLE, UNREADABLE),
        (StatusCode.PAGE_TABLES_UNREADABLE, NOT_APPLICABLE),
        (StatusCode.THREAD_LIST_DAMAGED, NOT_APPLICABLE),
    ],
)
def test_a_thread_without_an_id(expected_status: StatusCode, tid: object) -> None:
    assert state(status(expected_status))["TID"] is tid


def test_only_a_freed_trace_is_overwritten() -> None:
    printer = FramePrinter(Machine.AMD64)
    for freed, faults in ((True, "overwritten"), (False, "unreadable")):
        found = space_frames().stack((1, None), freed)
        assert [printer[frame][-1] for frame in found] == ["", faults]
        assert folded(found) == f"0x1; <{faults}>"


def test_an_event_of_a_process_that_is_unknown_has_the_names_of_the_kernel() -> None:
    spaces = ActingSpaces(_standing(Image()), [SPACE])
    assert spaces.space_of(HandleEvent(SPACE)) == SPACE
    assert spaces.space_of(HandleEvent(SPACE, by_pid=SPACE.pid)) == SPACE
    assert spaces.space_of(HandleEvent(SPACE, by_pid=2000)) == Image.kernel


def test_the_words_of_an_event_are_those_of_its_row() -> None:
    event = HandleEvent(SPACE, 4, status=status(StatusItem(StatusCode.UNKNOWN_TYPE, 7), StatusCode.FREED))
    grid = Grid.for_plugin("handletraces")
    printed = EntryRows(grid, FramePrinter(Machine.AMD64), HandleTraces.key, HandleTraces.unreadable, False)
    entry = HandleTraces.entry(_standing(SimpleNamespace()), event)
    row = only(printed.rows(entry))
    assert cells(grid, row[1])["Status"] == "unknown type 7, freed"
