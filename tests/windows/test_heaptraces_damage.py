# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.heaptraces` where something is gone or wrong, and where there is nothing to show."""

from __future__ import annotations

import logging
import pathlib
import re
from typing import List

import pytest
from volatility3.plugins.windows import heaptraces

from tests.forge import context, heaps
from tests.forge.paging import State
from tests.support import grid
from tests.support.heapimage import HEAP, LIST, PID, HeapImage, blocks, groups, owners
from tests.support.only import only, rows_of
from winstacks.heaps.decode import umdh
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.process import spaces

PAGE = 0x1000
KERNELS = [("win10-x64", False), ("win10-x86", False), ("win7-x64", True)]


def filled(forged: HeapImage, base: int = HEAP, count: int = 100) -> heaps.NtHeap:
    """A heap with blocks of 100 bytes."""
    heap = forged.heap(base, segment_creator=0)
    for number in range(count):
        heap.extended(100, forged.record(number % 5))
    return heap


def peb_of(forged: HeapImage) -> int:
    assert forged.half.peb is not None
    return int(forged.half.peb.address)


def statuses(forged: HeapImage, folder: pathlib.Path) -> List[str]:
    return [node.row["Status"] for node in owners(forged.run(folder))]


@pytest.mark.parametrize(("kernel", "wow64"), KERNELS)
def test_heaps_prove_themselves_when_the_peb_is_gone(
    kernel: str, wow64: bool, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = HeapImage(kernel, wow64)
    heap = filled(forged)
    heap.segment(HEAP + 0x400000)
    heap.extended(77, forged.record(9))
    forged.put(heap.regions(), HEAP)
    image = forged.image()
    assert image
    forged.process.space.set_state(peb_of(forged) & -PAGE, PAGE, State.PAGEFILE)
    forged.listed.clear()
    found = forged.run(tmp_path)
    assert sum(node.row["Count"] for node in groups(found)) == 101
    assert [(node.row["BlockKind"], node.row["Status"]) for node in owners(found)] == [
        ("heap", ""),
        ("heap segment", ""),
    ]
    assert "the PEB's list of heaps cannot be read" in caplog.text


@pytest.mark.parametrize("count", [0, 0xFFFFFFFF, 0x8000])
def test_a_list_of_heaps_that_is_nonsense(
    count: int, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = HeapImage("win10-x64")
    forged.put(filled(forged).regions(), HEAP)
    forged.image()
    forged.process.space.write_int(peb_of(forged) + 0xE8, count, 4)
    forged.listed.clear()
    assert sum(node.row["Count"] for node in groups(forged.run(tmp_path))) == 100
    assert "the PEB's list of heaps cannot be read" in caplog.text


def test_a_heap_that_the_peb_does_not_list(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("win10-x64")
    forged.put(filled(forged).regions(), HEAP)
    forged.put(filled(forged, HEAP + 0x1000000).regions())
    assert statuses(forged, tmp_path) == ["", "unlisted"]


def test_a_listed_heap_that_is_none(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("win10-x64")
    forged.put(filled(forged).regions(), HEAP, 0x66660000, LIST)
    found = owners(forged.run(tmp_path))
    assert [(node.row["Block"], node.row["Size"] is None, node.row["Status"]) for node in found] == [
        (HEAP, False, ""),
        (0x66660000, True, "unreadable"),
        (LIST, True, "unreadable"),
    ]


@pytest.mark.parametrize(("kernel", "wow64"), KERNELS)
def test_a_heap_whose_beginning_is_gone(kernel: str, wow64: bool, tmp_path: pathlib.Path) -> None:
    forged = HeapImage(kernel, wow64)
    heap = filled(forged, count=200)
    heap.segment(HEAP + 0x400000)
    apart = heap.extended(77, forged.record(9))
    forged.put(heap.regions(), HEAP)
    forged.process.space.set_state(HEAP, PAGE, State.PAGEFILE)
    found = forged.run(tmp_path, blocks=True)
    forged_heap, segment = rows_of(2, owners(found))
    assert (segment.row["BlockKind"], segment.row["Status"]) == ("heap segment", "")
    # Where the heap's own blocks begin was in the page, too: its headers cannot be decoded.
    unread = 16 * PAGE
    match = re.fullmatch(r"unreadable, damaged, (\d+) bytes unread", forged_heap.row["Status"])
    assert forged_heap.row["BlockKind"] == "heap" and match and PAGE < int(match.group(1)) <= unread
    rows = blocks(found)
    assert len(rows) > 150
    assert apart in rows
    assert {row["Status"] for row in rows.values()} == {"damaged"}
    assert {row["Size"] for row in rows.values()} == {None}
    assert {node.row["Status"] for node in groups(found)} == {"unsized, damaged"}


@pytest.mark.parametrize("state", [State.PAGEFILE, State.MISSING])
def test_a_page_of_blocks_that_is_gone(
    state: State, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = HeapImage("win10-x64")
    forged.put(filled(forged, count=200).regions(), HEAP)
    forged.process.space.set_state(HEAP + 2 * PAGE, PAGE, state)
    found = forged.run(tmp_path)
    count = sum(node.row["Count"] for node in groups(found))
    assert 165 < count < 185
    heap = only(owners(found))
    match = re.fullmatch(r"unreadable, (\d+) bytes unread", heap.row["Status"])
    assert match and PAGE - 200 < int(match.group(1)) < PAGE + 200
    assert f"in {match.group(1)} bytes of its heaps no block header is valid" in caplog.text


def test_records_that_are_gone(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("win10-x64")
    forged.put(filled(forged).regions(), HEAP)
    place = forged.record(0) & -PAGE
    forged.image()
    forged.process.space.set_state(place, PAGE, State.PAGEFILE)
    forged.used["log"] = False
    found = groups(forged.run(tmp_path))
    assert [(node.row["Bytes"], node.row["Status"], node.children) for node in found] == [
        (2000, "unreadable", [])
    ] * 5


@pytest.mark.parametrize(("kernel", "wow64"), KERNELS)
def test_vads_that_are_gone(
    kernel: str, wow64: bool, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    forged = HeapImage(kernel, wow64)
    forged.put(filled(forged).regions(), HEAP)
    image = forged.image()
    eprocess = forged.process.eprocess
    root = eprocess.isf.first("_EPROCESS", "VadRoot.Root", "VadRoot.BalancedRoot.RightChild")
    assert root is not None
    eprocess[root] = 0x123450
    found = grid.run(context.open_image(image, tmp_path), heaptraces.HeapTraces)
    assert sum(node.row["Count"] for node in groups(found)) == 100
    assert "the VADs cannot be read completely" in caplog.text


@pytest.mark.parametrize("baseline", [False, True])
def test_a_space_that_cannot_be_opened_has_a_row(
    baseline: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """What it holds is not known, so no stack of the baseline is said to be gone."""
    forged = HeapImage("win10-x64")
    forged.put(filled(forged).regions(), HEAP)
    opened = context.open_image(forged.image(), tmp_path)
    found = list(spaces.AddressSpaces.list_spaces(opened.image, [PID]))
    closed = [
        space._replace(layer_name="", status=status(StatusCode.PAGE_TABLES_UNREADABLE)) for space in found
    ]
    monkeypatch.setattr(spaces.AddressSpaces, "list_spaces", lambda *_: iter(closed))
    file = tmp_path / "earlier.log"
    log = umdh.UmdhLog((), (umdh.UmdhHeap(HEAP, (umdh.Allocation(1, 2, 3, 4),)),), {4: (5,)})
    file.write_text("".join(umdh.write(log)))
    options = {"baseline": str(file)} if baseline else {}
    node = only(grid.run(opened, heaptraces.HeapTraces, **options))
    present = {name: value for name, value in node.row.items() if value is not None}
    assert present == {"PID": PID, "Process": "app.exe", "Arch": "x64", "Status": "page tables unreadable"}
    assert node.children == []


def test_page_tables_that_map_nothing(tmp_path: pathlib.Path) -> None:
    """Volatility makes a layer of a frame that holds no table; that it lacks the kernel's half tells."""
    forged = HeapImage("win10-x64")
    forged.put(filled(forged).regions(), HEAP)
    image = forged.image()
    forged.process.eprocess["Pcb.DirectoryTableBase"] = forged.kernel.phys.allocate() << 12
    node = only(grid.run(context.open_image(image, tmp_path), heaptraces.HeapTraces))
    assert (node.row["PID"], node.row["Status"], node.children) == (PID, "page tables unreadable", [])


def test_a_32_bit_half_whose_peb_is_not_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heaps prove themselves; that others may be missing is said."""
    forged = HeapImage("win7-x64", wow64=True)
    forged.put(filled(forged).regions(), HEAP)
    opened = context.open_image(forged.image(), tmp_path)
    found = list(spaces.AddressSpaces.list_spaces(opened.image, [PID]))
    row_status = status(StatusCode.WOW64_PROCESS_STRUCTURE_UNREADABLE)
    known = [space._replace(peb=0, status=row_status) for space in found if space.wow64]
    monkeypatch.setattr(spaces.AddressSpaces, "list_spaces", lambda *_, **__: iter(known))
    rows = grid.run(opened, heaptraces.HeapTraces)
    assert [node.row["Status"] for node in owners(rows)] == ["WoW64 process structure unreadable", ""]
    assert sum(node.row["Count"] for node in groups(rows)) == 100


def test_nothing_is_enabled(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    forged = HeapImage("win10-x64", flags=0)
    heap = forged.heap(interceptor=0, flags=2, segment_creator=0)
    heap.plain(100)
    forged.put(heap.regions(), HEAP)
    assert forged.run(tmp_path) == []
    assert "+ust 0x1000" in caplog.text
    assert [record.levelno for record in caplog.records if "+ust" in record.message] == [logging.WARNING]


def test_heaps_tell_when_the_flag_was_cleared(tmp_path: pathlib.Path) -> None:
    """The flag in the PEB can be changed by the process; what its heaps were made with stays."""
    forged = HeapImage("win10-x64", flags=0)
    forged.put(filled(forged).regions(), HEAP)
    assert len(groups(forged.run(tmp_path))) == 5


def test_only_some_traces(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("win10-x64")
    heap = filled(forged)
    injected = forged.log.log([forged.ntdll.at("RtlUserThreadStart"), 0x30000123])
    heap.extended(5, injected)
    forged.put([(0x30000000, bytes(PAGE))])
    forged.put(heap.regions(), HEAP)
    assert [node.row["Bytes"] for node in groups(forged.run(tmp_path, unbacked=True))] == [5]
    assert len(groups(forged.run(tmp_path, find="app!open_store+0x[12]"))) == 2
    assert forged.run(tmp_path, pid=[4]) == []
    assert forged.run(tmp_path, pid=[0]) == []
