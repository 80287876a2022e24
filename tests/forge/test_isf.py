# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Symbol tables: paths of members, what a pruned table keeps, what is written."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import isf
from tests.forge.isf import Isf, Json


def base(name: str) -> Json:
    return {"kind": "base", "name": name}


def struct(name: str, kind: str = "struct") -> Json:
    return {"kind": kind, "name": name}


def pointer(subtype: Json) -> Json:
    return {"kind": "pointer", "subtype": subtype}


def array(count: int, subtype: Json) -> Json:
    return {"kind": "array", "count": count, "subtype": subtype}


def fields(size: int, kind: str = "struct", **members: tuple[int, Json]) -> Json:
    listed = {name: {"offset": offset, "type": what} for name, (offset, what) in members.items()}
    return {"kind": kind, "size": size, "fields": listed}


BITS = {"kind": "bitfield", "bit_position": 3, "bit_length": 5, "type": base("unsigned long")}
TYPES = {
    "_LINK": fields(16, Flink=(0, pointer(struct("_LINK"))), Blink=(8, pointer(struct("_LINK")))),
    "_INNER": fields(
        24, "union", Bits=(4, BITS), Links=(0, struct("_LINK")), Kind=(20, struct("_KIND", "enum"))
    ),
    "_OUTER": fields(
        256,
        Short=(2, base("short")),
        Inner=(8, struct("_INNER", "union")),
        Table=(32, array(4, array(2, struct("_INNER", "union")))),
        Other=(224, pointer(struct("_OTHER"))),
        Kinds=(232, pointer(struct("_FAR", "enum"))),
    ),
    "_OTHER": fields(4, Value=(0, base("unsigned long"))),
    "_UNRELATED": fields(4, Value=(0, base("unsigned long"))),
}
ENUMS = {
    name: {"base": "int", "size": 4, "constants": {"A": 1, "B": 7}} for name in ("_KIND", "_FAR", "_UNUSED")
}


@pytest.fixture
def table() -> Isf:
    return isf.new("x.pdb", "ab" * 16, 8, {"One": 0x10, "Two": 0x20}, TYPES, ENUMS, age=3)


def test_members_of_members(table: Isf) -> None:
    assert table.offset("_OUTER", "Inner.Links.Blink") == 16
    assert table.offset("_OUTER", "Table[2][1].Links.Flink") == 32 + 2 * 48 + 24
    assert table.offset("_OUTER", "Table[9]") == 32 + 9 * 48
    assert table.size("_OUTER") == 256 and table.size("unsigned short") == 2


def test_what_a_place_says(table: Isf) -> None:
    short = table.place("_OUTER", "Short")
    assert (short.size, short.kind, short.signed) == (2, "base", True)
    bits = table.place("_OUTER", "Inner.Bits")
    assert (bits.offset, bits.size, bits.bits) == (12, 4, (3, 5))
    whole = table.place("_OUTER", "Table")
    assert (whole.size, whole.length) == (192, 4)
    assert table.element(whole).size == 48
    other = table.place("_OUTER", "Other")
    assert (other.kind, other.name, other.size) == ("pointer", "_OTHER", 8)
    assert table.place("_INNER", "Kind").kind == "enum"
    assert table.constant("_KIND", "B") == 7


@pytest.mark.parametrize("path", ["Nothing", "Short.Inner", "Inner.Nothing", "Short[1]", "Other.Value"])
def test_no_such_path(table: Isf, path: str) -> None:
    assert not table.has("_OUTER", path)
    with pytest.raises(KeyError):
        table.place("_OUTER", path)


def test_first_of_several(table: Isf) -> None:
    assert table.first("_OUTER", "Nothing", "Short", "Inner") == "Short"
    assert table.first("_NOTHING", "Short") is None
    assert table.first_symbol("Nothing", "Two", "One") == "Two"
    assert table.symbol("Two") == 0x20


def test_pruned_keeps_what_is_embedded(table: Isf) -> None:
    small = table.pruned(["_OUTER", "_MISSING"], ["Two", "Missing"])
    assert set(small.types) == {"_OUTER", "_INNER", "_LINK"}
    assert set(small.symbols) == {"Two"}
    assert set(small.enums) == {"_KIND", "_FAR"}
    assert small.place("_OUTER", "Other").name == "void"
    assert small.place("_LINK", "Flink").name == "_LINK"
    assert table.place("_OUTER", "Other").name == "_OTHER", "the whole table is as it was"
    assert set(table.pruned([]).symbols) == {"One", "Two"}


def test_identity(table: Isf) -> None:
    assert (table.pdb, table.guid, table.age) == ("x.pdb", "AB" * 16, 3)
    renamed = table.renamed("cd" * 16)
    assert (renamed.pdb, renamed.guid, renamed.age) == ("x.pdb", "CD" * 16, 1)
    assert table.guid == "AB" * 16


def test_files(table: Isf, tmp_path: pathlib.Path) -> None:
    installed = table.install(tmp_path)
    assert installed == tmp_path / "windows" / "x.pdb" / ("AB" * 16 + "-3.json")
    packed = table.save(tmp_path / "t.json.xz")
    assert isf.load(installed).data == isf.load(packed).data == table.data
    assert packed.read_bytes() == table.save(tmp_path / "again.json.xz").read_bytes()
    assert packed.stat().st_size < installed.stat().st_size


def test_pointers_of_32_bits() -> None:
    table = isf.new("x.pdb", "0" * 32, 4, user_types={"_P": fields(8, Next=(4, pointer(base("void"))))})
    assert table.pointer_size == table.place("_P", "Next").size == 4


@pytest.mark.shared
def test_real_table(shared_dir: pathlib.Path) -> None:
    name = "ntkrnlmp.pdb/5278AFF86C341677D7D7835C85B7B844-1.json.xz"
    table = isf.load(shared_dir / "isf" / "symbols" / "windows" / name)
    # Offsets of 19041, as tools that hard-code them give them.
    assert table.offset("_EPROCESS", "ActiveProcessLinks") == 0x448
    assert table.offset("_ETHREAD", "Tcb.ApcState.ApcListHead[1].Blink") == 0x98 + 0x18
    assert (table.pdb, table.age) == ("ntkrnlmp.pdb", 1)
