# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our symbol tables: valid, and the layouts that they give."""

from __future__ import annotations

import json
import pathlib
from typing import List

import pytest
from volatility3 import schemas

from tests.conftest import ROOT
from tests.forge.std_layouts import ALL, layout
from tests.support import bare, stddata
from tests.support.only import only
from winstacks.memory import tables
from winstacks.tracedb.decode import proof
from winstacks.tracedb.decode.layout import StdLayout
from winstacks.tracedb.model import Layouts

TABLES = sorted((ROOT / "symbols" / "windows" / "stacktraces").glob("*.json"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_table_is_valid(path: pathlib.Path) -> None:
    pytest.importorskip("jsonschema")
    table = json.loads(path.read_text())
    assert table["metadata"]["format"] == "6.2.0"
    assert schemas.validate(table, use_cache=False)


@pytest.mark.parametrize("name, arch, kernel", ALL)
def test_offsets_are_those_of_the_writer(name: str, arch: str, kernel: bool) -> None:
    """Two lists of offsets were made apart from each other; the writer's is checked on real databases."""
    new_layout = layout(name, arch, kernel)
    read = only(member for member in stddata.layouts_of(arch).std if member.name == name)
    database = read.types["_STACK_TRACE_DATABASE"]
    members = {member: database.field(member)[:2] for member in database.names}
    assert set(read.names) <= set(members)
    written = {
        field.replace("Lock", "LockRoutine"): place
        for field, place in new_layout.fields.items()
        if field != "FreeLists"
    }
    assert {field: members[field] for field in written} == written
    assert (read.buckets, read.size, read.pointer_size) == (
        new_layout.buckets,
        new_layout.declared,
        new_layout.pointer,
    )
    assert read.bucket_strides[kernel and new_layout.lists] == new_layout.stride
    assert (read.entry.head_size, read.entry.max_depth) == (new_layout.head, 32)


@pytest.mark.parametrize(
    "arch, order", [("x64", ["6.1", "6.0", "5.2"]), ("x86", ["6.1", "6.0", "5.1", "5.2"])]
)
def test_layouts_are_tried_by_members_then_by_version(arch: str, order: List[str]) -> None:
    known = stddata.layouts_of(arch).std
    assert [member.name for member in proof._ordered(known)[0]] == order
    newest = next(member for member in known if member.name == "6.1")
    later = tuple(StdLayout(name, newest.types, newest.pointer_size) for name in ("6.9", "10.0", "6.10"))
    tried, length = proof._ordered([*known, *later])
    assert [member.name for member in tried] == ["10.0", "6.10", "6.9", *order]
    assert length == newest.buckets


@pytest.mark.parametrize("pointer_size", [4, 8])
def test_loaded_once_per_context(pointer_size: int) -> None:
    image = bare.image(pointer_size)
    first = Layouts(image, image.machine)
    count = len(list(image.context.symbol_space))
    again = Layouts(image, image.machine)
    assert [member.name for member in again.std] == [member.name for member in first.std]
    assert len(list(image.context.symbol_space)) == count == len(first.std) + 2
    assert [member.name for member in first.std][:2] == ["6.1", "6.0"]


def test_missing_table_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(tables, "_BESIDE", [tmp_path])
    with pytest.raises(tables.MissingTableError, match=r"windows/stacktraces/std-\*-x64 are missing"):
        Layouts(bare.image(8), bare.MACHINES[8])
