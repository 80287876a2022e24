# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Cells that depend on a status: on its words, never on what is found in its text."""

from __future__ import annotations

from typing import Any, Dict, Optional

import pytest

from winstacks.handles.rings import HandleEvent
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import NOTHING, Said, Status, Word, status
from winstacks.memory.image import AddressSpace
from winstacks.names.symbolizer import Name
from winstacks.rows import frames, handles, traps
from winstacks.rows.frames import StackCells
from winstacks.rows.grid import NOT_APPLICABLE, NOT_AVAILABLE, UNPARSABLE, UNREADABLE, Grid
from winstacks.traps.state import THREAD, State

SPACE = AddressSpace(1000, "app.exe", Machine.AMD64, "layer")


class SpaceNames:
    """What stands for the names of a space; `asked` counts the addresses that were asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def name(self, address: int, return_address: bool = True) -> Name:
        self.asked += 1
        return Name(f"{address:#x}", "none", NOTHING, "none")


class Names:
    """What stands for a symboliser and for an image."""

    machine = Machine.AMD64
    kernel = SPACE._replace(pid=0, kernel=True)

    def __init__(self) -> None:
        self._spaces: Dict[AddressSpace, SpaceNames] = {}

    @property
    def image(self) -> Any:
        return self

    @property
    def asked(self) -> int:
        return sum(each.asked for each in self._spaces.values())

    def names(self, space: AddressSpace) -> Any:
        return self._spaces.setdefault(space, SpaceNames())


def _standing(what: object) -> Any:
    """Returns what stands for something else, without its type."""
    return what


def cells(grid: Grid, row: Any) -> Dict[str, Any]:
    return dict(zip(grid.names, row))


def state(said: Status, tid: Optional[int] = None, **registers: int) -> Dict[str, Any]:
    """The row of a trap frame."""
    found = State(SPACE, tid, THREAD, 0x1000, "", "", registers, (), "", said)
    return cells(traps.GRID, traps.TrapRows(_standing(Names())).row(found))


@pytest.mark.parametrize(
    ("said", "absent"),
    [
        (status(Word.UNREADABLE), UNREADABLE),
        (status(Word.PARTLY_UNREADABLE, Word.UNREADABLE), UNREADABLE),
        (status(Word.NOT_A_TRAP_FRAME), UNPARSABLE),
        (status(Word.PARTLY_UNREADABLE, Word.NOT_A_TRAP_FRAME), UNPARSABLE),
    ],
)
def test_a_frame_that_is_none_is_not_unreadable(said: Status, absent: object) -> None:
    """The thread of the last one is partly unreadable, the bytes at the frame's place are there."""
    row = state(said, 1004)
    assert {row["TrapKind"], row["Mode"], row["Rip"], row["Rax"], row["Dr7"]} == {absent}
    assert row["TID"] == 1004


def test_a_register_that_was_not_saved_is_neither() -> None:
    assert state(status(Word.UNREADABLE), Rip=1)["Rax"] is NOT_AVAILABLE


@pytest.mark.parametrize(
    ("said", "tid"),
    [
        (Word.UNREADABLE, UNREADABLE),
        (Word.PARTLY_UNREADABLE, UNREADABLE),
        (Word.PAGE_TABLES_UNREADABLE, NOT_APPLICABLE),
        (Word.THREAD_LIST_DAMAGED, NOT_APPLICABLE),
    ],
)
def test_a_thread_without_an_id(said: Word, tid: object) -> None:
    assert state(status(said))["TID"] is tid


def test_only_a_freed_trace_is_overwritten() -> None:
    stacks = StackCells(Machine.AMD64, _standing(SpaceNames()))
    assert [frame.cells[-1] for frame in stacks.of((1, None), freed=True)] == ["", "overwritten"]
    assert [frame.cells[-1] for frame in stacks.of((1, None))] == ["", "unreadable"]
    assert stacks.folded((1, None), freed=True) == "0x1; <overwritten>"
    assert stacks.folded((1, None)) == "0x1; <unreadable>"


def test_the_cells_of_a_space_are_kept_for_the_last_few_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_SPACES", 2)
    names = _standing(Names())
    spaces = [SPACE._replace(pid=pid) for pid in (1000, 2000, 3000)]
    rows = handles.HandleRows(names, names, spaces)
    for pid, asked in [(1000, 1), (1000, 1), (2000, 2), (1000, 2), (3000, 3), (1000, 3), (2000, 4)]:
        (frame,) = rows.frames(HandleEvent(SPACE, by_pid=pid, frames=(0x10,)))
        assert frame.cells[1] == "0x10"
        assert names.asked == asked


def test_an_event_of_a_process_that_is_unknown_has_the_names_of_the_kernel() -> None:
    names = _standing(Names())
    rows = handles.HandleRows(names, names, ())
    event = HandleEvent(SPACE, 4, frames=(None,), status=status(Said(Word.UNKNOWN_TYPE, 7), Word.FREED))
    found = rows.frames(event)
    assert [frame.cells[-1] for frame in found] == ["overwritten"]
    assert cells(handles.HANDLES, rows.event(event, found))["Status"] == "unknown type 7, freed"
