# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our tables of heap structures against public symbols, and which of them a process' heaps are read with."""

from __future__ import annotations

import json
import pathlib
from typing import List, Tuple

import jsonschema
import pytest
from volatility3 import schemas
from volatility3.plugins.windows.stacktraces.base.spaces import AddressSpaces
from volatility3.plugins.windows.stacktraces.heaps import layouts as loader

from tests.forge import context, isf, kernels
from tests.forge.kernel import Kernel
from tests.support import heaptypes

TABLES = sorted(heaptypes.TABLES.glob("heap-*.json"))

_KERNEL, _NTDLL, _WNTDLL = "ntkrnlmp.pdb", "ntdll.pdb", "wntdll.pdb"
PUBLIC: List[Tuple[str, str, str]] = [
    ("heap-6.0-x64", _KERNEL, "339E74133576439CBCDF7E0229DA3773"),
    ("heap-6.0-x64", _NTDLL, "6192BFDB9F04442995FFCB0BE95172E1"),
    ("heap-6.2-x64", _KERNEL, "06A508F37B81478E855A3542E272C084"),
    ("heap-6.2-x64", _KERNEL, "2E6DEB6CFD444100AC0E803337A56E8E"),
    ("heap-6.2-x64", _KERNEL, "06F33B5BE23EF96AC9D93825124DAA16"),
    ("heap-6.2-x64", _KERNEL, "5278AFF86C341677D7D7835C85B7B844"),
    ("heap-6.2-x64", _KERNEL, "0C3FB08B9223E2EFB08FA14331050B26"),
    ("heap-6.2-x64", _KERNEL, "0B0A89438BE7729EB33FD00A7D6FA816"),
    ("heap-6.2-x64", _NTDLL, "13B64B553003FA22AB7CCD36A3A5431F"),
    ("heap-6.2-x64", _NTDLL, "E1871A04CD5CECCF719D9442628056C8"),
    ("heap-6.2-x86", _WNTDLL, "6B2BD108307BDD8EC619AEA4FB75E833"),
    ("heap-5.1-x86", "ntkrnlpa.pdb", "30B5FB31AE7E4ACAABA750AA241FF331"),
    ("heap-page-x64", _NTDLL, "6192BFDB9F04442995FFCB0BE95172E1"),
    ("heap-page-x64", _NTDLL, "E1871A04CD5CECCF719D9442628056C8"),
    ("heap-page-x86", _WNTDLL, "6B2BD108307BDD8EC619AEA4FB75E833"),
    ("heap-segment-x64", _KERNEL, "06F33B5BE23EF96AC9D93825124DAA16"),
    ("heap-segment-x64", _KERNEL, "5278AFF86C341677D7D7835C85B7B844"),
    ("heap-segment-x86", _WNTDLL, "6B2BD108307BDD8EC619AEA4FB75E833"),
]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_tables_are_valid(path: pathlib.Path) -> None:
    schema = pathlib.Path(schemas.__file__).with_name("schema-6.2.0.json")
    jsonschema.Draft7Validator(json.loads(schema.read_text())).validate(json.loads(path.read_text()))
    assert json.loads(path.read_text())["metadata"]["producer"]["comment"]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "pdb", "guid"), PUBLIC)
def test_tables_agree_with_public_symbols(name: str, pdb: str, guid: str, shared_dir: pathlib.Path) -> None:
    ours = isf.load(heaptypes.TABLES / f"{name}.json")
    (path,) = (shared_dir / "isf" / "symbols" / "windows" / pdb).glob(f"{guid}-*.json.xz")
    public = isf.load(path)
    compared = 0
    for type_name, described in ours.types.items():
        for member in described["fields"] if public.has_type(type_name) else ():
            if public.has(type_name, member):
                mine, theirs = ours.place(type_name, member), public.place(type_name, member)
                assert (mine.offset, mine.size) == (theirs.offset, theirs.size), f"{type_name}.{member}"
                compared += 1
    assert compared > 15


@pytest.mark.parametrize(
    ("kernel", "wow64", "name"),
    [
        ("xp-x86", False, "5.1-x86"),
        ("win7-x86", False, "6.0-x86"),
        ("win7-x64", False, "6.0-x64"),
        ("win10-x86", False, "6.2-x86"),
        ("win10-x64", False, "6.2-x64"),
        ("win11-x64", False, "6.2-x64"),
        ("win10-x64", True, "6.2-x86"),
        ("win7-x64", True, "6.2-x86"),
    ],
)
def test_layout_that_is_tried_first(kernel: str, wow64: bool, name: str, tmp_path: pathlib.Path) -> None:
    """A native process' is the kernel's own; of a 32-bit half ours, the one that a heap confirms."""
    known = kernels.load(kernel)
    made = Kernel(known.table, **known.options())
    process = made.process("app.exe", pid=1000)
    if wow64:
        process.wow64()
    opened = context.open_image(made.image(), tmp_path)
    spaces = AddressSpaces.list_spaces(opened.context, opened.kernel, [1000])
    space = next(each for each in spaces if each.wow64 == wow64)
    table = opened.context.modules[opened.kernel].symbol_table_name
    types = loader.load(opened.context, "test", table, space)
    assert types.layouts.nt[0] == heaptypes.heap(name)
    generations = {"x64": ["6.2", "6.0", "5.2"], "x86": ["6.2", "6.0", "5.1"]}[space.arch]
    ours = [heaptypes.heap(f"{each}-{space.arch}") for each in generations]
    assert list(types.layouts.nt[0 if wow64 else 1 :]) == ours
    wide = space.arch == "x64"
    assert (types.process_heap, types.heap_count, types.heaps) == (
        (0x30, 0xE8, 0xF0) if wide else (0x18, 0x88, 0x90)
    )
