# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our tables of heap structures against public symbols, and which of them a process' heaps are read with."""

from __future__ import annotations

import json
import pathlib
from typing import Dict, List, Tuple

import jsonschema
import pytest
from volatility3 import schemas

from tests.forge import context, heap_layouts, isf, kernels
from tests.forge.heaps import NtHeap
from tests.forge.kernel import Kernel
from tests.support import heapforms, heaptypes, newbuild
from tests.support.only import only
from winstacks.heaps import lister
from winstacks.heaps.decode.block import Block
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.contents import find_heaps
from winstacks.heaps.decode.layout import FrontEnd, HeapLayout, generation, nt_layouts
from winstacks.heaps.decode.ntblocks import heap_blocks
from winstacks.heaps.decode.ntheap import read_heap
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.structure import Field, Structures
from winstacks.process.spaces import AddressSpaces

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
    ("heap-page-6.1-x64", _NTDLL, "6192BFDB9F04442995FFCB0BE95172E1"),
    ("heap-page-6.1-x64", _NTDLL, "E1871A04CD5CECCF719D9442628056C8"),
    ("heap-page-6.1-x86", _WNTDLL, "6B2BD108307BDD8EC619AEA4FB75E833"),
    ("heap-segment-10.0.17763-x64", _KERNEL, "06F33B5BE23EF96AC9D93825124DAA16"),
    ("heap-segment-10.0.17763-x64", _KERNEL, "5278AFF86C341677D7D7835C85B7B844"),
    ("heap-segment-10.0.17763-x86", _WNTDLL, "6B2BD108307BDD8EC619AEA4FB75E833"),
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
    path = only((shared_dir / "isf" / "symbols" / "windows" / pdb).glob(f"{guid}-*.json.xz"))
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
    new_kernel = Kernel(known.table, **known.options())
    process = new_kernel.process("app.exe", pid=1000)
    if wow64:
        process.wow64()
    opened = context.open_image(new_kernel.image(), tmp_path)
    spaces = AddressSpaces.list_spaces(opened.image, [1000])
    found = next(space for space in spaces if space.wow64 == wow64)
    arch = found.arch
    types = lister.load_layouts(opened.image, found.machine)
    assert places(types.nt[0], name) == places(heaptypes.heap(name), name)
    ours = types.nt[0 if wow64 else 1 :]
    names = [f"{generation}-{arch}" for generation in heaptypes.GENERATIONS[arch]]
    assert [places(layout, name) for layout, name in zip(ours, names)] == [
        places(heaptypes.heap(name), name) for name in names
    ]
    assert len(ours) == len(names)
    assert len(types.segment) == 1
    peb = opened.image.process_types(found.machine)["_PEB"]
    members = [peb.offset(member) for member in ("ProcessHeap", "NumberOfHeaps", "ProcessHeaps")]
    assert members == ([0x30, 0xE8, 0xF0] if arch == "x64" else [0x18, 0x88, 0x90])


def places(types: HeapLayout, name: str) -> Dict[str, object]:
    """What is bound of a generation, and where all members lie that our table of it has."""
    bound = {key: value for key, value in vars(types).items() if isinstance(value, (int, Field, FrontEnd))}
    offsets = {
        (structure, member): types.types[structure].offset(member)
        for structure, described in isf.load(heaptypes.TABLES / f"heap-{name}.json").types.items()
        for member in described["fields"]
    }
    return {"bound": bound, "offsets": offsets}


SHIFT = 0x40


def test_a_new_build_is_a_new_table(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that lie elsewhere in a Windows that is not out yet: nothing but the text knows of it."""
    newbuild.add(tmp_path, monkeypatch, "heap", "UCRSegmentList", _HEAP=SHIFT)

    old = heap_layouts.LAYOUTS["6.2-x64"]
    moved = ("signature", "flags", "encode_mask", "encoding", "interceptor", "virtual", "segments", "creator")
    shifted = {member: getattr(old, member) + SHIFT for member in moved}
    nt_heap = NtHeap(0x50000, old._replace(heap_size=old.heap_size + SHIFT, **shifted), creator=9)
    records = heapforms.Records("x64")
    record = records.add()
    user = nt_heap.extended(100, record)
    known = kernels.load("win10-x64")
    opened = context.open_image(Kernel(known.table, **known.options()).image(), tmp_path)
    types = lister.load_layouts(opened.image, Machine.AMD64)
    memory = Memory.over(Extents([*nt_heap.regions(), *records.runs()]), 8)
    found = find_heaps(memory, types, [0x50000])
    assert [(heap.address, heap.creator, heap.damaged) for heap in found.nt] == [(0x50000, 9, False)]
    traces = Traces(memory, heaptypes.LOG["x64"], heaptypes.ENTRY["x64"])
    blocks = list(heap_blocks(memory, found.nt[0], traces, types.page))
    assert [(block.user, block.size, block.trace) for block in blocks if isinstance(block, Block)] == [
        (user, 100, records.trace(record))
    ]
    # Without the table there is no heap to be told.
    assert not find_heaps(memory, heaptypes.layouts("x64"), [0x50000]).nt


@pytest.mark.parametrize("member", ["VirtualAllocdBlocks", "SegmentList"])
@pytest.mark.parametrize("name", ["6.2-x64", "6.0-x64", "6.2-x86", "6.0-x86"])
def test_a_newer_table_takes_no_older_heap(name: str, member: str) -> None:
    """Its signatures lie where they did, but a list lies elsewhere: the list tells whose heap it is."""
    data = json.loads((heaptypes.TABLES / f"heap-{name}.json").read_text())
    data["user_types"]["_HEAP"]["fields"][member]["offset"] += SHIFT
    size = heaptypes.pointer_size(name)
    newer, own = HeapLayout(heaptypes.structures(isf.Isf(data)), size), heaptypes.heap(name)
    nt_heap = NtHeap(0x50000, heap_layouts.LAYOUTS[name], creator=9)
    memory = Memory.over(Extents(nt_heap.regions()), size)
    for order in ([newer, own], [own, newer]):
        heap = read_heap(memory, 0x50000, order)
        assert heap is not None and heap.layout is own and not heap.damaged
    # What no table reads whole is read with the first that the signatures confirm.
    assert getattr(read_heap(memory, 0x50000, [newer]), "layout", None) is newer


@pytest.mark.parametrize("name", ["6.2-x64", "6.0-x64", "5.2-x64", "6.2-x86", "6.0-x86", "5.1-x86"])
def test_the_table_that_goes_with_a_kernel(name: str) -> None:
    """It is the one that lies as the kernel's, though a newer one has the same members."""
    arch = name[-3:]
    ours = [heaptypes.ours(f"heap-{generation}-{arch}") for generation in heaptypes.GENERATIONS[arch]]
    newer = shifted_copy(heaptypes.GENERATIONS[arch][0] + "-" + arch)
    kernel = heaptypes.ours(f"heap-{name}")
    position = heaptypes.GENERATIONS[arch].index(name[:3])
    assert generation(kernel, [newer, *ours]) is ours[position]
    # Where none lies so, its members tell.
    assert generation(shifted_copy(name), ours) is ours[position]


def shifted_copy(name: str) -> Structures:
    """A table of ours in which the members of _HEAP lie elsewhere."""
    data = json.loads((heaptypes.TABLES / f"heap-{name}.json").read_text())
    for described in data["user_types"]["_HEAP"]["fields"].values():
        described["offset"] += SHIFT
    return heaptypes.structures(isf.Isf(data))


def test_a_kernel_that_lacks_a_member_leaves_the_heaps_to_our_tables() -> None:
    data = json.loads((heaptypes.TABLES / "heap-6.2-x64.json").read_text())
    del data["user_types"]["_HEAP"]["fields"]["VirtualAllocdBlocks"]
    ours = [heaptypes.ours("heap-6.2-x64")]
    types = only(nt_layouts(heaptypes.structures(isf.Isf(data)), ours, 8))
    assert types.types is ours[0]
