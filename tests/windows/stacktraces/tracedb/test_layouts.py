# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our symbol tables: valid, and the layouts that they give."""

from __future__ import annotations

import json
import pathlib

import pytest
from volatility3 import schemas
from volatility3.framework import contexts
from volatility3.plugins.windows.stacktraces.base import tables
from volatility3.plugins.windows.stacktraces.tracedb import layouts

from tests.conftest import ROOT
from tests.forge.std_layouts import ALL, layout
from tests.support import stddata

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
    made = layout(name, arch, kernel)
    (read,) = (each for each in stddata.of(arch).std if each.name == name)
    members = {member.name: (member.offset, member.size) for member in read.members}
    written = {
        field.replace("Lock", "LockRoutine"): place
        for field, place in made.fields.items()
        if field != "FreeLists"
    }
    assert {field: members[field] for field in written} == written
    assert (read.buckets, read.size, read.pointer_size) == (made.buckets, made.declared, made.pointer)
    assert read.bucket_strides[kernel and made.lists] == made.stride
    assert (read.entry.back_trace, read.entry.max_depth) == (made.head, 32)


@pytest.mark.parametrize("arch", ["x64", "x86"])
def test_loaded_once_per_context(arch: str) -> None:
    context = contexts.Context()
    first = layouts.load(context, "plugins", arch)
    count = len(list(context.symbol_space))
    assert layouts.load(context, "plugins", arch) == first
    assert len(list(context.symbol_space)) == count == len(first.std) + 2
    assert [each.name for each in first.std][:2] == ["6.1", "6.0"]


def test_missing_table_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(tables, "_BESIDE", tmp_path)
    with pytest.raises(tables.MissingTableError, match=r"windows/stacktraces/std-6\.1-x64"):
        layouts.load(contexts.Context(), "plugins", "x64")
