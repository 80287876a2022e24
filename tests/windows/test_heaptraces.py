# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.heaptraces` on forged heaps of every form, in every kind of process."""

from __future__ import annotations

import json
import pathlib
import shutil
import struct
from typing import List, Optional, Tuple

import pytest
from volatility3.plugins.windows import gflags, heaptraces

from tests.conftest import ROOT
from tests.forge import context, heaps, lfh, pageheaps, segmentheaps
from tests.forge.heaps import CAPTURE
from tests.support import grid
from tests.support.heapimage import HEAP, HeapImage, blocks, groups, owners, symbols
from tests.support.only import only
from winstacks.memory import tables

TABLES = ROOT / "symbols" / "windows" / "stacktraces"
HPA = 0x02000000
PROCESSES: List[Tuple[str, bool]] = [
    ("win7-x64", False),
    ("win7-x86", False),
    ("win7-x64", True),
    ("win10-x64", False),
    ("win10-x86", False),
    ("win10-x64", True),
    ("win11-x64", False),
]


@pytest.mark.parametrize(("kernel", "wow64"), PROCESSES)
def test_heaps_of_7_and_later(kernel: str, wow64: bool, tmp_path: pathlib.Path) -> None:
    forged = HeapImage(kernel, wow64)
    heap = forged.heap(creator=0, segment_creator=forged.index(50))
    first, second = forged.record(1), forged.record(2)
    users = {heap.extended(size, first): size for size in (100, 200, 300)}
    users[heap.extended(50, second)] = 50
    plain = heap.plain(20)
    heap.segment(HEAP + 0x100000, creator=forged.index(51))
    users[heap.extended(7, second)] = 7
    inner = lfh.add(heap, forged.form, 0x60, [lfh.Wanted(10, second), lfh.Wanted(9, first, freed=True)])
    users[inner[0]] = 10
    virtual = heap.virtual(HEAP + 0x800000, 0x90000, second, forged.index(52))
    users[virtual] = 0x90000
    forged.put(heap.regions(), HEAP)
    found = forged.run(tmp_path, blocks=True)

    assert {(node.row["PID"], node.row["Process"], node.row["Arch"]) for node in found} == {
        (1000, "app.exe", forged.arch)
    }
    nodes = {node.row["Block"]: node for node in owners(found)}
    assert [
        (nodes[at].row["BlockKind"], nodes[at].row["Index"], nodes[at].row["Status"]) for at in sorted(nodes)
    ] == [
        ("heap", forged.index(50), ""),
        ("heap segment", forged.index(51), ""),
        ("lfh container", None, ""),
    ]
    assert symbols(nodes[HEAP])[1:] == ["app!open_store+0x32", "app!main+0x5"]
    rows = [
        (node.row["TraceKind"], node.row["Count"], node.row["Bytes"], node.row["Status"])
        for node in groups(found)
    ]
    # The last but one is what holds the subsegment, beside the block that was asked for without a trace.
    sub = next(row["Size"] for row in blocks(found).values() if row["Block"] not in (*users, plain, inner[1]))
    assert rows == [
        ("log", 4, 0x90000 + 67, ""),
        ("log", 3, 600, ""),
        (None, 2, 20 + sub, "untraced"),
        ("log", 1, 9, "freed, stack of the free"),
    ]
    assert groups(found)[0].row["EntryAddress"] == second
    assert symbols(groups(found)[0])[1:] == ["app!open_store+0x2", "app!main+0x5"]
    sizes = {address: row["Size"] for address, row in blocks(found).items() if row["EntryAddress"]}
    assert sizes == {**users, inner[1]: 9}
    assert (blocks(found)[virtual]["Index"], blocks(found)[virtual]["BlockKind"]) == (
        forged.index(52),
        "virtual",
    )
    freed = blocks(found)[inner[1]]
    assert (freed["Status"], freed["BlockKind"]) == ("freed, stack of the free", "lfh")


def test_heaps_of_xp(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("xp-x86")
    heap = forged.heap(creator=forged.index(1), segment_creator=forged.index(2))
    first, second = forged.index(3), forged.index(4)
    users = {heap.plain(size, index=first): size for size in (40, 50, 60)}
    heap.free(30, index=second)
    forged.put(heap.regions(), HEAP)
    found = forged.run(tmp_path, blocks=True)
    rows = [
        (node.row["Index"], node.row["Count"], node.row["Bytes"], node.row["Status"])
        for node in groups(found)
    ]
    assert rows == [(first, 3, 150, ""), (second, 1, 32, "freed, stack of the free")]
    assert {address: row["Size"] for address, row in blocks(found).items() if not row["Status"]} == users
    assert symbols(groups(found)[0])[1:] == ["app!open_store+0x3", "app!main+0x5"]
    assert [(node.row["Index"], node.row["Status"]) for node in owners(found)] == [(forged.index(1), "")]


@pytest.mark.parametrize(
    ("force_flags", "silent"),
    [(0, True), (0x10000060, True), (0x40000000, False), (0x20000000, False), (None, False)],
)
def test_xp_with_ust_alone_traces_no_block(
    force_flags: Optional[int], silent: bool, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Heaps say it themselves: told to remember, and without a flag that makes them check themselves."""
    forged = HeapImage("xp-x86")
    flags = CAPTURE if force_flags is not None else 2
    heap = forged.heap(creator=forged.index(1), force_flags=force_flags or 0, flags=flags)
    heap.plain(40)
    forged.put(heap.regions(), HEAP)
    opened = context.open_image(forged.image(), tmp_path)
    owner = only(owners(grid.run(opened, heaptraces.HeapTraces)))
    assert owner.row["Status"] == ("+ust without +hpc" if silent else "")
    assert ("needs +hpc (0x40)" in caplog.text) == silent
    space = next(node for node in grid.run(opened, gflags.GFlags) if node.row["PID"] == forged.process.pid)
    assert ("+ust without +hpc" in space.row["Status"]) == silent


@pytest.mark.parametrize("kernel", ["win7-x64", "win7-x86"])
def test_traces_within_the_blocks(kernel: str, tmp_path: pathlib.Path) -> None:
    forged = HeapImage(kernel)
    heap = forged.heap(interceptor=1)
    for size in (10, 20):
        heap.extended(size, 0, heaps.prefix(forged.stack(7), forged.pointer), 3)
    forged.put(heap.regions(), HEAP)
    group = only(groups(forged.run(tmp_path)))
    assert (group.row["TraceKind"], group.row["Count"], group.row["Bytes"]) == ("inline", 2, 30)
    assert symbols(group)[1:] == ["app!open_store+0x7", "app!main+0x5"]


@pytest.mark.parametrize(("kernel", "wow64"), PROCESSES)
def test_page_heap(kernel: str, wow64: bool, tmp_path: pathlib.Path) -> None:
    forged = HeapImage(kernel, wow64, flags=HPA)
    normal = forged.heap(HEAP, interceptor=0, flags=2, segment_creator=0)
    handle = HEAP + 0x1000000
    page = pageheaps.PageHeap(handle, forged.arch, HEAP, creator=forged.entry(1))
    busy = page.block(HEAP + 0x2000000, 100, forged.entry(2))
    gone = page.block(HEAP + 0x3000000, 60, forged.entry(3), freed=True, mapped=False)
    page.block(HEAP + 0x4000000, 50, forged.entry(2), mapped=False)
    info = pageheaps.light(forged.arch, handle, 33, forged.entry(4))
    light = normal.plain(len(info), info) + len(info) - 33
    forged.put(normal.regions(), HEAP)
    forged.put(page.regions())
    found = forged.run(tmp_path, blocks=True)
    rows = [
        (node.row["TraceKind"], node.row["Index"], node.row["Bytes"], node.row["Status"])
        for node in groups(found)
    ]
    assert rows == [
        ("std", forged.index(2), 150, ""),
        ("std", forged.index(3), 60, "freed, stack of allocation or free"),
        ("std", forged.index(4), 33, ""),
    ]
    kinds = {address: (row["BlockKind"], row["Heap"], row["Size"]) for address, row in blocks(found).items()}
    assert kinds[busy] == ("page", handle, 100)
    assert kinds[gone] == ("page", handle, 60)
    assert kinds[light] == ("lightpage", HEAP, 33)
    assert [(node.row["BlockKind"], node.row["Index"]) for node in owners(found)] == [
        ("heap", None),
        ("page heap", forged.index(1)),
    ]


def test_an_entry_of_no_database_is_laid_out_as_those_of_the_process_database(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of a newer Windows, whose entries have longer heads, says nothing of this image."""
    folder = tmp_path / "symbols"
    shutil.copytree(TABLES, folder)
    table = json.loads((folder / "std-6.1-x64.json").read_text())
    entry = table["user_types"]["_RTL_STACK_TRACE_ENTRY"]
    entry["size"] += 8
    for name in ("BackTrace", "FreeChain"):
        entry["fields"][name]["offset"] += 8
    (folder / "std-6.9-x64.json").write_text(json.dumps(table))
    monkeypatch.setattr(tables, "_BESIDE", [folder])

    forged = HeapImage("win10-x64", flags=HPA)
    known, stack = forged.entry(1), forged.stack(2)
    head = struct.pack("<QHHHH", 0, 1, 0, 7, len(stack))
    stray = HEAP + 0x5000000
    forged.put([(stray, (head + struct.pack(f"<{len(stack)}Q", *stack)).ljust(0x1000, b"\0"))])
    page = pageheaps.PageHeap(HEAP, "x64", 0x20000000, creator=known)
    page.block(HEAP + 0x2000000, 100, stray)
    forged.put(page.regions())
    group = only(groups(forged.run(tmp_path)))
    assert (group.row["Index"], group.row["Bytes"], group.row["Status"]) == (7, 100, "no database")
    assert symbols(group)[1:] == ["app!open_store+0x2", "app!main+0x5"]


def test_one_page_heap_leads_to_those_that_nothing_else_names(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("win10-x64", flags=HPA)
    handles = [HEAP, HEAP + 0x1000000]
    for number, handle in enumerate(handles):
        page = pageheaps.PageHeap(handle, "x64", 0x20000000, next_heaps=handles)
        page.block(HEAP + 0x2000000 * (number + 1), 10 + number, forged.entry(number))
        # The second one lies in the middle of a range, so that only the first leads there.
        pad = [(handle - 0x1000, bytes(0x1000))] if number else []
        (base, data), *others = page.regions()
        forged.put([(base - 0x1000, bytes(0x1000) + data)] if number else [(base, data)])
        forged.put(others)
        assert not pad or pad[0][0] == base - 0x1000
    found = forged.run(tmp_path)
    assert [node.row["Bytes"] for node in groups(found)] == [11, 10]


@pytest.mark.parametrize(
    ("kernel", "wow64"), [("win10-x64", False), ("win10-x86", False), ("win10-x64", True)]
)
def test_segment_heap(kernel: str, wow64: bool, tmp_path: pathlib.Path) -> None:
    forged = HeapImage(kernel, wow64)
    heap = segmentheaps.SegmentHeap(HEAP, forged.arch)
    heap.segment(HEAP + 0x100000)
    first, second = forged.record(1), forged.record(2)
    for place in (0x100230, 0x100500, 0x1FFF00):
        heap.extra(HEAP + place, first)
    large = heap.large(HEAP + 0x1000000, 0x54321, second)
    forged.put(heap.regions(), HEAP)
    found = forged.run(tmp_path, blocks=True)
    rows = [
        (node.row["Count"], node.row["Bytes"], node.row["Status"], node.row["EntryAddress"])
        for node in groups(found)
    ]
    assert rows == [(1, 0x54321, "", second), (3, None, "unsized, not-read", first)]
    assert blocks(found)[large]["BlockKind"] == "large"
    owner = only(owners(found))
    assert (owner.row["BlockKind"], owner.row["Size"], owner.row["Status"]) == (
        "segment heap",
        0x100000,
        "not-read",
    )


def test_both_halves_of_a_wow64_process(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("win10-x64", wow64=True)
    heap = forged.heap()
    heap.extended(100, forged.record(1))
    forged.put(heap.regions(), HEAP)
    other = HeapImage("win10-x64")
    native = other.heap(0x7000000000, interceptor=1)
    record = heaps.record([0x1111], 8)
    native.extended(60, 0x7100000000)
    forged.process.region(0x7100000000, record)
    for address, data in native.regions():
        forged.process.region(address, data)
    peb = forged.process.peb
    assert peb is not None
    peb["NtGlobalFlag"] = 0x1000
    found = forged.run(tmp_path)
    assert [(node.row["Arch"], node.row["Bytes"]) for node in groups(found)] == [("x64", 60), ("x86", 100)]
