# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures at addresses: whatever is missing on the way, the result is None."""

from __future__ import annotations

import struct
from typing import Dict, List, Optional

import pytest

from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.structure import Field, MissingMemberError, Structure, Structures
from winstacks.memory.decode.view import View

OUTER, INNER, TEXT = 0x1000, 0x2000, 0x3000
MEMBERS: Dict[str, Dict[str, Field]] = {
    "_OUTER": {"Inner": Field(0, 8), "Absent": Field(8, 8), "Name": Field(16, 16), "Old": Field(0, 4)},
    "_INNER": {"Value": Field(4, 4)},
}
RUNS = [
    (OUTER, struct.pack("<QQHHIQ", INNER, 0xDEAD0000, 4, 6, 0, TEXT)),
    (INNER, struct.pack("<II", 1, 77)),
    (TEXT, "ab".encode("utf-16-le")),
]


def _made(name: str) -> Optional[Structure]:
    return Structure(name, 32, MEMBERS[name].get) if name in MEMBERS else None


TYPES = Structures(_made)


@pytest.fixture
def reported() -> List[str]:
    return []


def at(name: str, address: Optional[int], reported: List[str]) -> View:
    return View(Memory.over(Extents(RUNS), 8), TYPES.find(name), address, reported.append)


def test_members_chain(reported: List[str]) -> None:
    outer = at("_OUTER", OUTER, reported)
    assert at("_INNER", outer["Inner"], reported)["Value"] == 77
    assert outer.first("New", "Old") == INNER
    assert outer.place("Absent") == OUTER + 8
    assert outer.data("Old") == struct.pack("<I", INNER)
    assert outer.text("Name") == "ab"
    assert outer.text("Name", limit=2) == "a"


@pytest.mark.parametrize(
    ("name", "address", "path"),
    [
        ("_INNER", None, "Value"),
        ("_INNER", 0, "Value"),
        ("_INNER", 0xDEAD0000, "Value"),
        ("_INNER", INNER, "NoSuchMember"),
        ("_NO_SUCH_TYPE", INNER, "Value"),
    ],
)
def test_what_is_missing_stays_absent(
    name: str, address: Optional[int], path: str, reported: List[str]
) -> None:
    view = at(name, address, reported)
    assert (view[path], view.first(path, "Other"), view.data(path), view.text(path)) == (None,) * 4
    assert at("_INNER", view[path], reported)["Value"] is None
    assert reported == []


def test_a_null_page_that_an_attacker_fills_is_not_read() -> None:
    memory = Memory.over(Extents([(0, bytes(range(64)))]), 8)
    assert memory.number(4, 4) is not None
    assert memory.member(0, MEMBERS["_INNER"]["Value"]) is None


def test_what_the_symbols_lack_is_a_value(reported: List[str]) -> None:
    view = at("_OUTER", OUTER, reported)
    assert view.lack("Inner") == ""
    assert view.lack("New", "Newer") == "_OUTER has no member New or Newer"
    assert at("_GONE", OUTER, reported).lack("Inner") == "the symbol tables have no _GONE"
    assert reported == []
    assert (view.lacks("New", "Inner"), view.lacks("New")) == (False, True)
    assert reported == ["_OUTER has no member New"]


def test_a_structure_that_the_tables_lack_raises_where_a_member_is_needed() -> None:
    structure = TYPES.find("_GONE", "_LOST")
    assert (structure.known, structure.size, structure.has("Inner")) == (False, 0, False)
    assert TYPES.find("_GONE", "_INNER").known
    with pytest.raises(MissingMemberError, match="have no _GONE or _LOST"):
        structure.offset("Inner")
