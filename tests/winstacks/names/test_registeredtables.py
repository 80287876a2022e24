# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Function tables in the memory of a process: walks through generated code are sure by them.

The layout of Windows is forged from its public declaration only. Wine's layout was measured on programs that
Wine ran; here it is forged.
"""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List

import pytest
from volatility3.plugins.windows import callstacks

from tests.forge import context
from tests.forge.paging import State
from tests.support import grid
from tests.support.callstackimages import GETTER_RVA, HEAD_RVA
from tests.support.findingimages import PRIVATE, TID, X64, FindingImage, found
from tests.support.only import only
from winstacks.names import registeredtables

INTERRUPTED = PRIVATE + 0x20
RECORD, ENTRIES = 0xE00, 0xE40
"""Where the unwind data and the entries lie in the forged code's memory."""
SIZE = 0x1000
HANDLER_ONLY = bytes((1 | 1 << 3, 0, 0, 0))
"""An UNWIND_INFO with an exception handler and no codes, which HotSpot registers for all of its code."""
NO_FRAME = bytes((1, 0, 0, 0))

WINDOWS = "<QQQQQQQQQQII"
"""Links, FunctionTable, TimeStamp, MinimumAddress, MaximumAddress, BaseAddress, Callback, Context,
OutOfProcessCallbackDll, Type, EntryCount."""
WINE = "<QQQQQIIQQ"
"""Links, base, end, table, count, max_count, callback, context."""


def windows_element(count: int = 1, callback: int = 0) -> bytes:
    values = PRIVATE + ENTRIES, 0, PRIVATE, PRIVATE + SIZE, PRIVATE, callback, 0, 0, 0, count
    return struct.pack(WINDOWS, 0, 0, *values)


def wine_element(count: int = 1) -> bytes:
    return struct.pack(WINE, 0, 0, PRIVATE, PRIVATE + SIZE, PRIVATE + ENTRIES, count, count, 0, 0)


def registering(name: str, element: bytes, record: bytes) -> FindingImage:
    """A process that registered a function table for its code, in which a thread was interrupted."""
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(INTERRUPTED)
    space, head = forged.app.space, forged.stacks.modules["ntdll"].base + HEAD_RVA
    space.write(PRIVATE + RECORD, record)
    space.write(PRIVATE + ENTRIES, struct.pack("<III", 0, RECORD, RECORD))
    node = space.allocate(0x100)
    space.write(node, struct.pack("<QQ", head, head) + element[16:])
    space.write(head, struct.pack("<QQ", node, node))
    return forged


def frames(forged: FindingImage, folder: pathlib.Path) -> List[Dict[str, Any]]:
    opened = context.open_image(forged.image(), folder)
    rows = grid.run(opened, callstacks.CallStacks, tid=[TID])
    return next(node.children for node in rows if node.row["Part"] == "user")


@pytest.mark.parametrize("name", X64)
def test_the_caller_of_registered_code_is_sure(name: str, tmp_path: pathlib.Path) -> None:
    found_frames = frames(registering(name, windows_element(), NO_FRAME), tmp_path)
    assert (found_frames[0]["Backing"], found_frames[0]["How"]) == ("private", "trap")
    assert found_frames[1]["How"] == "unwind"
    assert not any(row["Status"] for row in found_frames)


@pytest.mark.parametrize(
    ("element", "record"),
    [
        (windows_element(count=0), NO_FRAME),
        (windows_element(count=0xFFFFFFFF), NO_FRAME),
        (windows_element(count=0, callback=PRIVATE), NO_FRAME),
        (windows_element(), HANDLER_ONLY),
    ],
    ids=["no entries", "too many entries", "a callback", "a handler only"],
)
def test_tables_that_tell_nothing_leave_a_guess(
    element: bytes, record: bytes, tmp_path: pathlib.Path
) -> None:
    found_frames = frames(registering("win10-x64", element, record), tmp_path)
    assert found_frames[1]["How"] == "scan"
    assert found_frames[1]["Status"] == "unsure"


def test_a_callback_is_named() -> None:
    forged = FindingImage("win10-x64")
    callback = forged.stacks.modules["kernelbase"].base + 0x1000
    row = only(found(registering("win10-x64", windows_element(0, callback), NO_FRAME).image(), "unbacked"))
    assert row["Innocent"].startswith("function table with the callback kernelbase")


@pytest.mark.parametrize(
    ("element", "how"),
    [
        (wine_element(), "unwind"),
        (windows_element(), "unwind"),
        (wine_element(registeredtables.MAX_ENTRIES + 1), "scan"),
        (windows_element(registeredtables.MAX_ENTRIES + 1), "scan"),
    ],
    ids=["Wine's", "Windows'", "Wine's with too many entries", "Windows' with too many entries"],
)
def test_the_head_is_found_by_proof(
    element: bytes, how: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wine's ntdll has no function that returns the head; a ring with an element of another kind is none."""
    monkeypatch.setattr(registeredtables, "_GETTER", "RtlOfNoKind")
    assert frames(registering("win10-x64", element, NO_FRAME), tmp_path)[1]["How"] == how


def test_the_head_is_found_by_proof_if_the_getter_is_not_in_the_image(tmp_path: pathlib.Path) -> None:
    forged = registering("win10-x64", windows_element(), NO_FRAME)
    ntdll = forged.stacks.modules["ntdll"]
    assert ntdll.section is not None
    forged.app.space.set_state(ntdll.base + GETTER_RVA, 0x1000, State.PROTOTYPE)
    ntdll.section.set_state(GETTER_RVA, 0x1000, State.PAGEFILE)
    assert frames(forged, tmp_path)[1]["How"] == "unwind"


def test_the_search_for_the_head_is_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring through many pointers of ntdll would be walked from each of them."""
    monkeypatch.setattr(registeredtables, "_GETTER", "RtlOfNoKind")
    monkeypatch.setattr(registeredtables, "MAX_PROVEN", 1)
    found_frames = frames(registering("win10-x64", wine_element(), NO_FRAME), tmp_path)
    assert found_frames[1]["How"] == "unwind"
    monkeypatch.setattr(registeredtables, "MAX_DATA", 0)
    (tmp_path / "none").mkdir()
    assert frames(registering("win10-x64", wine_element(), NO_FRAME), tmp_path / "none")[1]["How"] == "scan"
