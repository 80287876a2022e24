# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code that a process made at run time is unwound by the function tables that its dump has of it."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from volatility3.plugins.minidump import callstacks, info

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.support.processdumps import Dumped, OpenedDump

UPDATER, INTERRUPTED = 4312, 4320
RECORDS = 0x1D2C0000000
"""Where the unwind data lies: within 4 GB of the code."""

Row = Dict[str, Any]
Entries = Sequence[Tuple[int, int, int]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


def stack(path: pathlib.Path) -> List[Row]:
    """The frames of the thread that was interrupted in code of no module."""
    rows = OpenedDump(path).rows(callstacks.CallStacks, tid=[INTERRUPTED])
    return [row for depth, row in rows if depth]


def written(
    opened: Opened, path: pathlib.Path, tables: Sequence[Tuple[int, int, int, Entries]], record: bytes
) -> pathlib.Path:
    dumped = Dumped(opened, UPDATER, more=[(RECORDS, record.ljust(16, b"\0"))])
    dumped.writer.function_tables(tables)
    path.write_bytes(dumped.writer.bytes())
    return path


@pytest.fixture(scope="module")
def guessed(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> List[Row]:
    """The stack without tables: the frame above the code is a guess, which is right here."""
    found = stack(written(opened, tmp_path_factory.mktemp("guessed") / "app.dmp", [], b""))
    assert [row["How"] for row in found[:2]] == ["trap", "scan"]
    return found


def record(guessed: List[Row]) -> bytes:
    """The UNWIND_INFO of a function with the frame that the code has."""
    size = guessed[1]["Sp"] - 8 - guessed[0]["Sp"]
    if not size:
        return bytes((1, 0, 0, 0))
    return struct.pack("<BBBBBBH", 1, 4, 2, 0, 4, 1, size // 8)


def test_the_caller_is_sure(opened: Opened, guessed: List[Row], tmp_path: pathlib.Path) -> None:
    base = guessed[0]["Address"] & ~0xFFFF
    entries = ((0, 0x10000, RECORDS - base),)
    path = written(opened, tmp_path / "app.dmp", [(base, base + 0x10000, base, entries)], record(guessed))
    found = stack(path)
    assert [row["Address"] for row in found] == [row["Address"] for row in guessed]
    assert {row["How"] for row in found[1:]} == {"unwind"}
    assert not any(row["Status"] for row in found)
    assert found[0]["Backing"] == "private"


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("another range", lambda base: (base + 0x100000, base + 0x110000, base, ((0, 0x10000, 4),))),
        ("no entry", lambda base: (base, base + 0x10000, base, ((0xF000, 0xF010, 4),))),
        ("empty range", lambda base: (base + 0x10000, base, base, ((0, 0x10000, 4),))),
        ("unwind data that is not there", lambda base: (base, base + 0x10000, base, ((0, 0x10000, 4),))),
        ("base behind the code", lambda base: (base, base + 0x10000, base + 0x20000, ((0, 0x10000, 4),))),
    ],
)
def test_what_says_nothing_of_the_code(
    opened: Opened, guessed: List[Row], tmp_path: pathlib.Path, what: str, change: Any
) -> None:
    base = guessed[0]["Address"] & ~0xFFFF
    found = stack(written(opened, tmp_path / "app.dmp", [change(base)], record(guessed)))
    assert [row["Address"] for row in found] == [row["Address"] for row in guessed]
    assert all("unsure" in row["Status"] for row in found[1:]), what


def test_the_first_of_tables_that_overlap_counts(
    opened: Opened, guessed: List[Row], tmp_path: pathlib.Path
) -> None:
    base = guessed[0]["Address"] & ~0xFFFF
    first = (base, base + 0x10000, base, ((0, 0x10000, RECORDS - base),))
    second = (base, base + 0x20000, base, ((0, 0x20000, 4),))
    path = written(opened, tmp_path / "app.dmp", [first, second], record(guessed))
    assert {row["How"] for row in stack(path)[1:]} == {"unwind"}
    statuses = {row["Member"]: row["Status"] for _, row in OpenedDump(path).rows(info.Info)}
    assert statuses["FunctionTableStream"] == "1 memory ranges overlap"
