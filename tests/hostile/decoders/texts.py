# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Text and numbers of an image or a dump that are put into words: names, codes, Status, keys."""

from __future__ import annotations

import struct
from typing import Iterator, List

from tests.support.plainstructures import structures
from winstacks.memory.decode.memory import MAX_STRING, Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING, StatusItem, status, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.memory.decode.statustext import parsed
from winstacks.memory.decode.structure import Field
from winstacks.memory.decode.view import View
from winstacks.names.decode import grounds, shortnames
from winstacks.process.decode.globalflags import abbreviate
from winstacks.stacklist.decode import bugchecks, exceptioncodes, keys

from .target import Target

_LINES = 64
_BASE = 0x10000


def _names(data: bytes, whole: bytes) -> None:
    """Lines of text: each is a function, a file name, a module; each pair of them a short name and a long."""
    names = data.decode("utf-8", "replace").split("\n")[:_LINES]
    parts = []
    for number, name in enumerate(names):
        other = names[number - 1]
        for kernel in (True, False):
            assert grounds.is_ground(name, kernel) in (True, False)
            grounds.is_first(other, name, kernel)
        if shortnames.is_short_name_of(name, other):
            assert len(name) <= 12 and "~" in name
        parts.append(keys.in_module(name, number or None, len(other), number, doubted=len(name) % 2 == 1))
    made = keys.stack_keys([*parts, keys.elsewhere(names[0]), keys.UNREADABLE])
    assert made.stack is not None and len(made.stack) == len(made.shape or "") == 32
    assert made == keys.stack_keys([*parts, keys.elsewhere(names[0]), keys.UNREADABLE])
    assert keys.trace_id("thread", 0, 1, "x64", names[0], 1, 2).startswith("thread:0:1:x64:")


def _name_seeds() -> List[bytes]:
    lines = ("RtlUserThreadStart", "ntdll.dll", "_BaseThreadInitThunk@12", "Program Files", "PROGRA~1")
    return ["\n".join((*lines, "PspSystemThreadStartup", "nt", "longname.html", "LO1A2B~1.HTM")).encode()]


def _codes(data: bytes, whole: bytes) -> None:
    """Bug checks, exceptions and flags of any number are a line of text."""
    values = struct.unpack_from(f"<{len(data) // 4}I", data)[:_LINES]
    for number, value in enumerate(values):
        check = bugchecks.bug_check(value)
        assert check.shown.isprintable() and len(check.parameters) == 4
        assert -1 <= bugchecks.context_parameter(value) < 4
        said = exceptioncodes.exception_words(value, values[number + 1 : number + 4])
        assert said.isprintable() and abbreviate(value).isprintable()


def _code_seeds() -> List[bytes]:
    codes = (0xD1, 0x3B, 0x1000007E, 0xC0000005, 1, 0x10, 0xC0000006, 0, 0x20, 0xC000009A, 0xC0000409, 2)
    return [struct.pack(f"<{len(codes) + 2}I", *codes, 0xE06D7363, 0x3200)]


def _status(data: bytes, whole: bytes) -> None:
    """A Status that is read from a text has this text."""
    shown = data.decode("utf-8", "replace")
    found = parsed(shown)
    assert found is None or (text(found) == shown and shown.isprintable() and shown.isascii())
    assert found is not None or not whole or data != whole


def _status_seeds() -> List[bytes]:
    items = (
        StatusItem(StatusCode.CONTRADICTED, None, ("Cid.UniqueProcess", "Flink")),
        StatusItem(StatusCode.BYTES_UNREAD, 77),
        StatusItem(StatusCode.HOLDS_THE_ADDRESS, -5),
    )
    found = [status(*items), status(StatusCode.FREED, StatusCode.LIMIT), NOTHING]
    return [text(each).encode() for each in found]


_STRUCTURE = {
    "Name.Length": Field(0, 2),
    "Name": Field(0, 16),
    "Flags": Field(0x10, 4, shift=3, mask=0x1F),
    "Count": Field(0x14, 4, signed=True),
    "Next": Field(0x18, 8),
    "Characters": Field(0x20, 16),
}


def _view(data: bytes, whole: bytes) -> None:
    """Structures that lead to each other; whatever is missing is None."""
    memory = Memory.over(Extents([(_BASE, data)]), 8)
    types = structures({"_NODE": (0x30, _STRUCTURE)})
    reported: List[str] = []
    view = View(memory, types["_NODE"], _BASE, reported.append)
    for _ in range(_LINES):
        name, flags, count = view.text("Name.Length"), view["Flags"], view.first("Absent", "Count")
        assert name is None or 2 * len(name) <= MAX_STRING
        assert flags is None or 0 <= flags < 32
        assert count is None or -1 << 31 <= count < 1 << 31
        characters, following = view.data("Characters"), view["Next"]
        assert characters is None or len(characters) == 16
        assert view.lacks("Absent") and not view.lacks("Absent", "Next")
        view = View(memory, types["_NODE"], following, reported.append)
    assert set(reported) == {"_NODE has no member Absent"}


def _views() -> List[bytes]:
    """Two nodes that lead to each other, and their names."""
    nodes = [
        struct.pack("<HH4xQIiQ16s", 10, 12, _BASE + 0x60, 0xA8, -1, _BASE + following, b"x" * 16)
        for following in (0x30, 0)
    ]
    return [b"".join(nodes) + "nodes\0".encode("utf-16-le")]


def targets() -> Iterator[Target]:
    yield Target("names", _name_seeds, _names)
    yield Target("codes", _code_seeds, _codes)
    yield Target("statustext", _status_seeds, _status)
    yield Target("view", _views, _view)
