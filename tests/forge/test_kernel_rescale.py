# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""32-bit layouts computed from 64-bit ones: by hand, and against real pairs of tables."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Tuple

import pytest

from tests.forge import isf, kernel_layouts, kernel_tables
from tests.forge.isf import Isf
from tests.forge.kernel_rescale import Rescaler, pointer_sized_members

WIDE = """
_LIST_ENTRY 10
  0 Flink _LIST_ENTRY*
  8 Blink _LIST_ENTRY*
_OUTER 58
  00 Small ushort
  08 Links _LIST_ENTRY
  18 Count ulonglong
  20 Time ulonglong
  28 Byte uchar
  30 Many void*[3]
  48 Code ulong
  48 First ulong:1@0
  50 Last _LIST_ENTRY*
_FLAGS 8
  0 Charge ulonglong:51@0
  0 NoChange ulonglong:1@51
  0 Protection ulonglong:5@52
  0 Private ulonglong:7@57
_SHARED 18
  00 Time ulonglong
  08 Where ulonglong
  10 Tail uchar
"""


def table(text: str, pointer_size: int) -> Isf:
    return isf.new("x.pdb", "0" * 32, pointer_size, user_types=kernel_layouts.parse(text))


def rescaled(name: str, known: str = "", fixed: Tuple[str, ...] = ()) -> Isf:
    integers = {("_OUTER", "Time"): "unsigned long long"}
    rescaler = Rescaler(table(WIDE, 8), kernel_layouts.parse(known), integers, fixed)
    assert rescaler.add(name)
    return isf.new("x.pdb", "0" * 32, 4, user_types=rescaler.types)


def offsets(isf: Isf, name: str) -> Dict[str, int]:
    return {member: isf.offset(name, member) for member in isf.types[name]["fields"]}


def test_pointers_integers_arrays_and_alignment() -> None:
    rescaled_table = rescaled("_OUTER")
    assert offsets(rescaled_table, "_OUTER") == {
        "Small": 0,
        "Links": 4,
        "Count": 0xC,
        "Time": 0x10,
        "Byte": 0x18,
        "Many": 0x1C,
        "Code": 0x28,
        "First": 0x28,
        "Last": 0x2C,
    }
    assert rescaled_table.size("_OUTER") == 0x30
    assert rescaled_table.size("_LIST_ENTRY") == 8
    assert rescaled_table.place("_OUTER", "Count").size == 4
    assert rescaled_table.place("_OUTER", "Time").size == 8


def test_bit_fields_of_a_unit_that_shrinks() -> None:
    rescaled_table = rescaled("_FLAGS")
    assert {
        member: rescaled_table.place("_FLAGS", member).bits
        for member in rescaled_table.types["_FLAGS"]["fields"]
    } == {
        "Charge": (0, 19),
        "NoChange": (19, 1),
        "Protection": (20, 5),
        "Private": (25, 7),
    }
    assert rescaled_table.size("_FLAGS") == 4


def test_a_type_that_is_the_same_on_both() -> None:
    rescaled_table = rescaled("_SHARED", fixed=("_SHARED",))
    assert (rescaled_table.size("_SHARED"), rescaled_table.place("_SHARED", "Where").size) == (0x18, 8)


def test_a_known_type_is_taken_and_its_gaps_are_filled() -> None:
    rescaled_table = rescaled("_OUTER", "_OUTER 100\n  40 Links\n  50 Code\n  60 Own ulonglong\n")
    assert offsets(rescaled_table, "_OUTER") == {"Links": 0x40, "Code": 0x50, "First": 0x50, "Own": 0x60}
    assert rescaled_table.size("_OUTER") == 0x100
    assert rescaled_table.place("_OUTER", "Links").size == 8
    assert rescaled_table.place("_OUTER", "Own").size == 8
    assert rescaled_table.place("_OUTER", "First").bits == (0, 1)


def test_an_unknown_type() -> None:
    assert not Rescaler(table(WIDE, 8), {}, {}, ()).add("_NONE")


def test_what_integers_are_is_learnt_from_pairs() -> None:
    narrow = table("_SHARED 10\n  0 Time ulonglong\n  8 Where ulong\n  c Tail uchar\n", 4)
    found = pointer_sized_members([(table(WIDE, 8), narrow)])
    assert found == {
        ("_SHARED", "Time"): "unsigned long long",
        ("_SHARED", "Where"): "unsigned long",
    }


@pytest.mark.shared
def test_against_a_pair_of_real_tables(shared_dir: pathlib.Path) -> None:
    """Most structures of the 64-bit ntdll come out as the 32-bit one's."""
    symbols = shared_dir / "isf" / "symbols"
    wide, narrow = (kernel_tables.real_table(symbols, f"17763-ntdll-{arch}") for arch in ("x64", "x86"))
    rescaler = Rescaler(wide, {}, pointer_sized_members([(wide, narrow)]), ())
    for name in set(wide.types) & set(narrow.types):
        rescaler.add(name)
    right = [name for name in rescaler.types if _same(rescaler.types[name], narrow.types.get(name))]
    assert len(right) > 0.8 * len(rescaler.types)
    assert {"_LIST_ENTRY", "_UNICODE_STRING", "_CLIENT_ID", "_LDR_DATA_TABLE_ENTRY"} <= set(right)


def _same(computed: Any, real: Any) -> bool:
    if real is None or computed["size"] != real["size"]:
        return False
    there = real["fields"]
    return all(m in there and f["offset"] == there[m]["offset"] for m, f in computed["fields"].items())
