# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.locks` on forged kernels and processes of every form."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.windows import locks, stacktracedb

from tests.forge import context, vol
from tests.forge.locks import Resources, Sections
from tests.forge.paging import State
from tests.forge.std import Std
from tests.support import grid
from tests.support.only import only
from tests.support.tracedkernels import KERNELS, new_kernel, put_database, traces_of
from winstacks.locks import resources, sectionlists
from winstacks.locks.decode import criticalsection as buffers
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.process import spaces


@pytest.mark.parametrize(("name", "generation"), KERNELS)
def test_resources_of_every_form(name: str, generation: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel(name)
    threads = [kernel.system.thread(100), kernel.system.thread(104)]
    threads.append(kernel.process("app.exe", pid=1000).thread(108))
    indices = put_database(kernel, generation, traces_of(kernel))
    kernel_resources = Resources(kernel)
    held = kernel_resources.add(
        index=indices[0],
        active=1,
        exclusive=threads[0],
        contention=3,
        waiting_shared=2,
        waiting_exclusive=1,
    )
    first, second, third = (thread.ethread.address for thread in threads)
    shared = kernel_resources.add(
        index=indices[1], active=3, embedded=[(first, 2)], table=[(0, 0), (second | 3, 1), (third, 4)]
    )
    free = kernel_resources.add(index=indices[2], embedded=[(first, 0)])
    address = kernel.symbol("ExpWorkerThread")
    odd = kernel_resources.add(index=address)
    stale = kernel_resources.add(index=0x1234)
    kernel_resources.link()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[0])
    rows = {node.row["Lock"]: node for node in found}
    assert [node.row["Lock"] for node in found] == [
        grid.masked(entry.address) for entry in kernel_resources.entries
    ]
    assert {node.row["PID"] for node in found} == {0}

    node = rows[grid.masked(held.address)]
    expected = {
        "Process": "nt",
        "LockType": "resource",
        "Index": indices[0],
        "OwningThread": grid.masked(first),
        "OwnerPID": 4,
        "OwnerProcess": "System",
        "OwnerTID": 100,
        "LockCount": 1,
        "ContentionCount": 3,
        "EntryCount": None,
        "RecursionCount": None,
        "NumberOfWaitingShared": 2,
        "NumberOfWaitingExclusive": 1,
        "Status": "",
    }
    assert {key: node.row[key] for key in expected} == expected
    assert owners(node) == [("exclusive owner", grid.masked(first), 100, 1, "")]

    node = rows[grid.masked(shared.address)]
    assert (node.row["OwningThread"], node.row["OwnerTID"], node.row["LockCount"]) == (0, None, 3)
    assert owners(node) == [
        ("shared owner", grid.masked(first), 100, 2, ""),
        ("shared owner", grid.masked(second), 104, 1, ""),
        ("shared owner", grid.masked(third), 108, 4, ""),
    ]
    assert [processes(row) for row in node.children[:3]] == [(4, "System"), (4, "System"), (1000, "app.exe")]

    node = rows[grid.masked(free.address)]
    assert (node.row["LockCount"], node.row["ContentionCount"], owners(node)) == (0, 0, [])

    node = rows[grid.masked(odd.address)]
    assert node.row["Index"] is None
    assert grid.frames(node) == [grid.masked(address)]
    assert node.children[0]["Symbol"].startswith("nt!")
    assert node.row["Status"] == "address"

    node = rows[grid.masked(stale.address)]
    assert (node.row["Index"], node.row["Status"]) == (0x1234, "no such index")
    assert node.children == []

    database = {node.row["Index"]: node for node in grid.run(opened, stacktracedb.StackTraceDb, pid=[0])[1:]}
    for index, lock, trace in zip(indices, (held, shared, free), traces_of(kernel)):
        node = rows[grid.masked(lock.address)]
        assert grid.frames(node) == [grid.masked(frame) for frame in trace]
        shown = [(row["Address"], row["Symbol"], row["Source"]) for row in node.children if is_frame(row)]
        in_database = [(row["Address"], row["Symbol"], row["Source"]) for row in database[index].children]
        assert shown == in_database


def owners(node: grid.Node) -> List[Tuple[Any, ...]]:
    columns = ("OwnerRole", "OwningThread", "OwnerTID", "RecursionCount", "Status")
    return [tuple(row[name] for name in columns) for row in node.children if not is_frame(row)]


def processes(row: Dict[str, Any]) -> Tuple[Any, ...]:
    return row["OwnerPID"], row["OwnerProcess"]


def is_frame(row: Dict[str, Any]) -> bool:
    return row["Frame"] is not None


@pytest.mark.parametrize("name", ["xp-x86", "win10-x64"])
def test_without_a_database_only_the_trace_is_absent(name: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel(name, 0)
    kernel_resources = Resources(kernel)
    kernel_resources.add(index=5)
    kernel_resources.add()
    kernel_resources.link()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[0])
    assert [(node.row["Index"], node.row["Status"]) for node in found] == [
        (5, "no database"),
        (0, ""),
    ]
    assert not any(node.children for node in found)


def test_owner_that_is_no_thread_and_table_that_is_gone(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    kernel_resources = Resources(kernel)
    event = kernel.pool.executive("_KEVENT", "Event")
    kernel_resources.add(active=1, embedded=[(event.address | 3, 1)])
    gone = kernel_resources.add(active=1)
    gone["OwnerTable"] = kernel.space.reserve(0x1000)
    huge = kernel_resources.add(active=1, table=[(0, 0)])
    kernel.space.write_int(huge["OwnerTable"] + 8, 0xFFFFFFFF, 4)
    kernel_resources.link()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[0])
    assert owners(found[0]) == [("shared owner", grid.masked(event.address), None, 1, "no thread")]
    assert processes(found[0].children[0]) == (None, None)
    assert [node.row["Status"] for node in found[1:]] == ["owner table unreadable", "owner table unreadable"]


def test_an_owner_whose_page_is_gone_is_not_called_another_value(tmp_path: pathlib.Path) -> None:
    """PspCidTable still has the ID of the thread; of an address that it lacks nothing is known."""
    kernel = new_kernel("win10-x64")
    kernel_resources = Resources(kernel)
    # No resource is in the pages of the first threads.
    thread = [kernel.system.thread(tid) for tid in (100, 104, 108, 112, 116, 120, 124, 128)][2]
    kernel_resources.add(active=1, exclusive=thread)
    kernel_resources.add(active=1, embedded=[(kernel.space.reserve(0x1000), 1)])
    kernel_resources.link()
    image = kernel.image()
    kernel.space.set_state(thread.ethread.address, 0x1000, State.PAGEFILE)
    found = grid.run(context.open_image(image, tmp_path), locks.Locks, pid=[0])
    assert [node.row["Status"] for node in found] == ["owner unreadable", ""]
    assert [(node.row["OwnerTID"], node.row["OwnerPID"]) for node in found] == [(108, None), (None, None)]
    owned = [(child["OwnerTID"], child["Status"]) for node in found for child in node.children]
    assert owned == [(108, "owner unreadable"), (None, "owner unreadable")]


def test_an_owner_whose_page_is_all_zeros_is_not_called_another_value(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    kernel_resources = Resources(kernel)
    page = kernel.space.allocate(0x2000) + 0xFFF & -0x1000
    kernel.space.write(page, bytes(0x1000))
    kernel_resources.add(active=1, embedded=[(page + 0x800, 1)])
    kernel_resources.link()
    found = grid.run(context.open_image(kernel.image(), tmp_path), locks.Locks, pid=[0])
    assert [child["Status"] for node in found for child in node.children] == ["owner unreadable"]


def test_owners_of_a_table_that_several_resources_name_are_told_once(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    kernel_resources = Resources(kernel)
    thread = kernel.system.thread(100).ethread.address
    first = kernel_resources.add(active=300, table=[(thread, 1)] * 300)
    for shift in range(20):
        kernel_resources.add(active=1)["OwnerTable"] = first["OwnerTable"] + 16 * shift
    before = kernel_resources.add(active=1)
    before["OwnerTable"] = first["OwnerTable"] - 32
    kernel.space.write(before["OwnerTable"], struct.pack("<QQQQ", 0, 0xFFFFFFFF, thread, 8))
    own = kernel_resources.add(active=1, table=[(thread, 2)])
    kernel_resources.link()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[0])
    statuses = ["", *["owner table shared"] * 20, "owner table too big, owner table shared", ""]
    assert [node.row["Status"] for node in found] == statuses
    assert [len(owners(node)) for node in found] == [300, *[0] * 20, 1, 1]
    assert found[-1].row["Lock"] == grid.masked(own.address)


def test_the_owners_of_an_image_are_limited(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = new_kernel("win10-x64")
    kernel_resources = Resources(kernel)
    thread = kernel.system.thread(100).ethread.address
    for _ in range(4):
        kernel_resources.add(active=10, embedded=[(thread, 1)], table=[(thread, 1)] * 9)
    kernel_resources.link()
    monkeypatch.setattr(resources, "MAX_ENTRIES", 25)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[0])
    assert [node.row["Status"] for node in found] == ["", "", "owner limit", "owner limit"]
    assert [len(owners(node)) for node in found] == [10, 10, 5, 1]


def test_a_fast_resource_is_known_by_its_list_of_owners(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    kernel_resources = Resources(kernel)
    plain, fast = kernel_resources.add(), kernel_resources.add(index=1)
    head = fast.address + kernel.isf.offset("_FAST_ERESOURCE_INTERNAL", "OwnerEntryListHead")
    kernel.space.write_int(head, head)
    kernel.space.write_int(head + 8, head)
    kernel_resources.link()
    opened = context.open_image(kernel.image(), tmp_path)
    types = [node.row["LockType"] for node in grid.run(opened, locks.Locks, pid=[0])]
    assert types == ["resource", "fast resource"]
    assert plain["OwnerEntry.OwnerThread"] == 0


def damaged(tmp_path: pathlib.Path, *damage: Tuple[int, str]) -> List[Tuple[Any, str]]:
    """Eight resources, some spoilt; returns (place in the list or None, Status) of the rows."""
    kernel = new_kernel("win7-x64", 0)
    kernel_resources = Resources(kernel)
    for _ in range(8):
        kernel.space.allocate(0x1000)
        kernel_resources.add()
    kernel_resources.link()
    for place, how in damage:
        damaged_entry = kernel_resources.entries[place]
        if how == "gone":
            kernel.space.set_state(damaged_entry.address, damaged_entry.size, State.PAGEFILE)
        elif how == "cycle":
            damaged_entry["SystemResourcesList.Flink"] = kernel_resources.entries[place - 1].at(
                "SystemResourcesList"
            )
        else:
            wild = 0x4141414141414140 if how == "Flink" else 0xFFFFF80041414140
            damaged_entry[f"SystemResourcesList.{how}"] = wild
    opened = context.open_image(kernel.image(), tmp_path)
    places = {grid.masked(resource.address): place for place, resource in enumerate(kernel_resources.entries)}
    found = grid.run(opened, locks.Locks, pid=[0])
    return [(places.get(node.row["Lock"]), node.row["Status"]) for node in found]


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
@pytest.mark.parametrize("waits", (True, False))
def test_a_resource_that_a_thread_waits_for_and_no_list_has(
    name: str, waits: bool, tmp_path: pathlib.Path
) -> None:
    """Its neighbours pass it over. So they do with a deleted one, which has no owner."""
    kernel = new_kernel(name)
    owner, waiter = kernel.system.thread(100), kernel.system.thread(104)
    kernel_resources = Resources(kernel)
    kernel_resources.add()
    hidden = kernel_resources.add(active=1, exclusive=owner, waiting_exclusive=1)
    deleted = kernel_resources.add()
    kernel_resources.add()
    kernel_resources.link()
    for gone in (deleted, hidden):
        kernel_resources.entries.remove(gone)
        links = gone["SystemResourcesList.Flink"], gone["SystemResourcesList.Blink"]
        kernel_resources.link()
        gone["SystemResourcesList.Flink"], gone["SystemResourcesList.Blink"] = links
    slots = struct.pack(
        "<4Q" if kernel.space.pointer_size == 8 else "<4I", 0, deleted.address, hidden.address, 8
    )
    waiter.kthread["KernelStack"] = waiter.write_stack(slots)
    waiter.kthread.put(State=5, WaitReason=resources.WAIT_REASON if waits else 0)
    nodes = grid.run(context.open_image(kernel.image(), tmp_path), locks.Locks, pid=[0])
    assert len(nodes) == 2 + waits
    if waits:
        row = nodes[-1].row
        assert row["Lock"] & 0xFFFFFFFF == hidden.address & 0xFFFFFFFF
        assert (row["OwnerTID"], row["Status"]) == (100, "contradicted: SystemResourcesList")


def test_a_lock_that_is_gone_is_the_only_loss(tmp_path: pathlib.Path) -> None:
    found = damaged(tmp_path, (3, "gone"))
    assert found == [(place, "unreadable" if place == 3 else "") for place in range(8)]


def test_between_two_lost_locks_lies_a_gap(tmp_path: pathlib.Path) -> None:
    found = damaged(tmp_path, (2, "gone"), (5, "gone"))
    assert found == [
        *((place, "") for place in range(2)),
        (2, "unreadable"),
        (5, "unreadable"),
        (None, "list broken"),
        *((place, "") for place in range(6, 8)),
    ]


@pytest.mark.parametrize("how", ["Flink", "Blink", "cycle"])
def test_one_wrong_link_loses_nothing(how: str, tmp_path: pathlib.Path) -> None:
    found = damaged(tmp_path, (4, how))
    assert found == [(place, "list damaged" if place == 4 else "") for place in range(8)]


@pytest.mark.parametrize("how", [0, 1], ids=["Flink", "Blink"])
def test_a_wrong_link_of_the_head_has_a_row(how: int, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win7-x64", 0)
    kernel_resources = Resources(kernel)
    for _ in range(3):
        kernel_resources.add()
    kernel_resources.link()
    kernel.space.write_int(kernel.symbol("ExpSystemResourcesList") + 8 * how, 0xFFFFF80041414140)
    found = grid.run(context.open_image(kernel.image(), tmp_path), locks.Locks, pid=[0])
    assert [(node.row["Lock"], node.row["Status"]) for node in found] == [
        (None, "list damaged"),
        *((grid.masked(entry.address), "") for entry in kernel_resources.entries),
    ]


@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize("how", [0, 1], ids=["Flink", "Blink"])
def test_a_section_that_is_unlinked_on_one_side_is_listed(
    how: int, symbols: bool, tmp_path: pathlib.Path
) -> None:
    kernel, app, sections, indices, _ = new_process("win7-x64", symbols)
    for index in indices:
        sections.add(index=index)
    sections.link()
    first, _, last = sections.entries
    # The one before no longer leads to the second section, or the one behind no longer leads back.
    ends = (last.link, first.link)
    app.space.write_int((first.link, last.link)[how] + 8 * how, ends[how])
    found = grid.run(context.open_image(kernel.image(), tmp_path), locks.Locks, pid=[1000])
    statuses = ["list damaged", "", ""] if how == 0 else ["", "", "list damaged"]
    assert [(node.row["Lock"], node.row["Status"]) for node in found] == [
        (resource.address, status) for resource, status in zip(sections.entries, statuses)
    ]


def test_wild_links_on_both_sides_are_said(tmp_path: pathlib.Path) -> None:
    found = damaged(tmp_path, (2, "Flink"), (5, "Blink"))
    assert found == [
        *((place, "") for place in (0, 1, 2)),
        (None, "unreadable, not canonical"),
        (None, "unreadable"),
        (None, "list broken"),
        *((place, "") for place in (5, 6, 7)),
    ]


# --- critical sections ---

HEAD = 0x7100
NTDLL = {"text": 0x4000, "rdata": 0x2000, "data": 0x2000}


def new_process(name: str, symbols: bool, wow64: bool = False, traces: int = 3) -> Tuple[Any, ...]:
    """A process, its list of sections, and the indices of traces in its database."""
    kernel = new_kernel(name, 0)
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    half: Any = app
    names = {"RtlCriticalSectionList": HEAD, "RtlpStackTraceDatabase": 0x7200} if symbols else None
    if wow64:
        app.module("ntdll.dll", base=0x7FE80000000)
        half = app.wow64(nt_global_flag=0x1000)
    ntdll = half.module("ntdll.dll", symbols=names, **NTDLL)
    arch = "x64" if half.space.pointer_size == 8 else "x86"
    generation = "5.1" if name == "xp-x86" else "6.1"
    std = Std(generation, arch, 0x20000000, reserve=0x100000)
    indices = [std.log((ntdll.base + 0x1000 + n, ntdll.base + 0x1100)) for n in range(traces)]
    for address, data in std.regions().items():
        app.region(address, data)
    half.space.write_int(ntdll.base + 0x7200, std.base)
    return kernel, app, Sections(ntdll, ntdll.base + HEAD, arch == "x64"), indices, ntdll


SPACES = [
    ("xp-x86", False),
    ("win7-x86", False),
    ("win7-x64", False),
    ("win7-x64", True),
    ("win10-x64", False),
    ("win10-x64", True),
    ("win11-x64", False),
]


@pytest.mark.parametrize("symbols", [True, False], ids=["symbols", "search"])
@pytest.mark.parametrize(("name", "wow64"), SPACES)
def test_sections_of_every_form(name: str, wow64: bool, symbols: bool, tmp_path: pathlib.Path) -> None:
    kernel, _, sections, indices, ntdll = new_process(name, symbols, wow64)
    free = sections.add(index=indices[0])
    entry = sections.add(
        index=indices[1], lock_count=-22, recursion_count=2, owning_thread=1004, entries=7, contention=9
    )
    old = sections.add(index=indices[2], lock_count=2, recursion_count=1, owning_thread=1008)
    sections.link()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[1000])
    arch = "x86" if wow64 or kernel.bits == 32 else "x64"
    assert {node.row["Arch"] for node in found} == {arch}
    columns = (
        "Lock",
        "Index",
        "OwningThread",
        "OwnerTID",
        "LockCount",
        "ContentionCount",
        "EntryCount",
        "RecursionCount",
        "NumberOfWaitingShared",
        "NumberOfWaitingExclusive",
        "Status",
    )
    assert [tuple(node.row[column] for column in columns) for node in found] == [
        (free.address, indices[0], 0, None, -1, 0, 0, 0, None, 0, ""),
        (entry.address, indices[1], 1004, 1004, -22, 9, 7, 2, None, 5, ""),
        (old.address, indices[2], 1008, 1008, 2, 0, 0, 1, None, 2, ""),
    ]
    assert [processes(node.row) for node in found] == [(None, None), *[(1000, found[0].row["Process"])] * 2]
    assert [grid.frames(node) for node in found] == [
        [ntdll.base + 0x1000 + n, ntdll.base + 0x1100] for n in range(3)
    ]
    assert found[0].children[0]["Symbol"].startswith("ntdll")


@pytest.mark.parametrize("name", ["win10-x64", "win7-x86"])
def test_words_that_are_no_pointers_do_not_end_the_search_for_the_list(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node is aligned: texts before the head, of which a ntdll has many, are not tried."""
    kernel, _, sections, indices, ntdll = new_process(name, False)
    section = sections.add(index=indices[0])
    sections.link()
    ntdll.space.write(ntdll.base + HEAD - 0x100, b"A text!!" * 32)
    monkeypatch.setattr(sectionlists, "MAX_TRIES", 16)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[1000])
    assert [(node.row["Lock"], node.row["Status"]) for node in found] == [(section.address, "")]
    assert "the search was stopped" not in caplog.text


def test_the_index_has_32_bits_since_vista_and_16_before(tmp_path: pathlib.Path) -> None:
    for name, index in (("xp-x86", 0x0002), ("win7-x86", 0x10002)):
        kernel, _, sections, _, _ = new_process(name, True)
        sections.add(index=0x10002)
        sections.link()
        folder = tmp_path / name
        folder.mkdir()
        node = only(grid.run(context.open_image(kernel.image(), folder), locks.Locks, pid=[1000]))
        assert node.row["Index"] == index


@pytest.mark.parametrize("wow64", (False, True))
def test_an_owner_that_no_section_can_have(wow64: bool, tmp_path: pathlib.Path) -> None:
    """No thread has such an ID; 0 is the owner of a section that nobody entered, or that is being left."""
    kernel, _, sections, _, _ = new_process("win10-x64", wow64)
    owners = {3: 1, 0xFFFFFFFF: 1, 0: 1, 1004: 1, 1008: 0}
    owners.update({} if wow64 else {1 << 32: 1})
    for owner, count in owners.items():
        sections.add(lock_count=-2, recursion_count=count, owning_thread=owner)
    sections.add(lock_count=-2)
    sections.link()
    nodes = grid.run(context.open_image(kernel.image(), tmp_path), locks.Locks, pid=[1000])
    word = "contradicted: OwningThread"
    shown = [word in node.row["Status"] for node in nodes if node.row["LockType"] == "critical section"]
    assert shown == [owner not in (1004, 1008) for owner in owners] + [False]


def test_held_and_contended(tmp_path: pathlib.Path) -> None:
    kernel, _, sections, _, _ = new_process("win10-x64", False)
    sections.add()
    entry = sections.add(lock_count=-2, recursion_count=1, owning_thread=1004)
    contended = sections.add(contention=1)
    gone = sections.add(apart=True)
    sections.link()
    kernel.processes[-1].space.set_state(gone.address, 0x80, State.PAGEFILE)
    opened = context.open_image(kernel.image(), tmp_path)

    def shown(**options: Any) -> List[int]:
        return [node.row["Lock"] for node in grid.run(opened, locks.Locks, pid=[1000], **options)]

    assert shown(held=True) == [entry.address, gone.address]
    assert shown(contended=True) == [contended.address, gone.address]
    assert shown(held=True, contended=True) == [gone.address]


def test_memory_that_is_gone_and_sections_that_do_not_point_back(tmp_path: pathlib.Path) -> None:
    kernel, app, sections, indices, _ = new_process("win7-x64", False)
    sections.add(index=indices[0])
    gone = sections.add(index=indices[1], entries=4, apart=True)
    moved = sections.add(index=indices[2])
    lost = sections.add(index=indices[0], apart=True)
    last = sections.add(index=indices[1])
    sections.link()
    app.space.set_state(gone.address, 0x80, State.PAGEFILE)
    app.space.write_int(moved.address, 0x4000)
    app.space.set_state(lost.debug, 0x40, State.PAGEFILE)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[1000])
    assert [(node.row["Lock"], node.row["LockCount"], node.row["Status"]) for node in found] == [
        (sections.entries[0].address, -1, ""),
        (gone.address, None, "unreadable"),
        (moved.address, None, "section does not point back, index may be stale"),
        (lost.debug, None, "debug information unreadable"),
        (last.address, -1, ""),
    ]
    assert (found[1].row["EntryCount"], found[1].row["Index"]) == (4, indices[1])
    assert len(grid.frames(found[1])) == 2


def test_a_freed_trace_says_so(tmp_path: pathlib.Path) -> None:
    kernel, app, sections, _, ntdll = new_process("win10-x64", True, traces=0)
    std = Std("6.1", "x64", 0x20000000, reserve=0x100000)
    frames = tuple(ntdll.base + 0x1000 + n for n in range(4))
    index = std.log(frames)
    std.release(frames)
    for address, data in std.regions().items():
        app.space.write(address, data)
    sections.add(index=index)
    sections.link()
    opened = context.open_image(kernel.image(), tmp_path)
    node = only(grid.run(opened, locks.Locks, pid=[1000]))
    assert node.row["Status"] == "freed"
    assert [row["Status"] for row in node.children] == ["overwritten", "overwritten", "", ""]
    assert grid.frames(node)[2:] == list(frames[2:])


def test_an_index_of_16_bits_is_ambiguous_when_there_are_more_traces(tmp_path: pathlib.Path) -> None:
    kernel, app, sections, _, _ = new_process("xp-x86", False, traces=0)
    std = Std("5.1", "x86", 0x20000000, bucket_count=9551)
    for number in range(0x10001):
        std.log((0x401000 + number,))
    for address, data in std.regions().items():
        app.space.write(address, data)
    sections.add(index=1)
    sections.link()
    opened = context.open_image(kernel.image(), tmp_path)
    node = only(grid.run(opened, locks.Locks, pid=[1000]))
    assert node.row["Status"] == "index ambiguous"
    assert grid.frames(node) == [0x401000]


def test_a_process_without_page_tables_has_a_row(tmp_path: pathlib.Path) -> None:
    kernel, app, sections, _, _ = new_process("win10-x64", False)
    sections.add()
    sections.link()
    image = kernel.image()
    # A frame that holds no table: Volatility makes a layer of it in which nothing is mapped,
    # not even the half of the kernel, which every process has.
    app.eprocess["Pcb.DirectoryTableBase"] = kernel.phys.allocate() << 12
    opened = context.open_image(image, tmp_path)
    row, children = only(grid.run(opened, locks.Locks, pid=[1000]))
    assert (row["Lock"], row["Status"], children) == (None, "page tables unreadable", [])


def test_a_space_that_cannot_be_opened_has_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    kernel, _, sections, _, _ = new_process("win10-x64", False)
    sections.link()
    opened = context.open_image(kernel.image(), tmp_path)
    found = list(spaces.AddressSpaces.list_spaces(opened.image, [1000]))
    row_status = status(StatusCode.PAGE_TABLES_UNREADABLE)
    closed = [space._replace(layer_name="", status=row_status) for space in found]
    monkeypatch.setattr(spaces.AddressSpaces, "list_spaces", lambda *_: iter(closed))
    row, children = only(grid.run(opened, locks.Locks, pid=[1000]))
    assert (row["PID"], row["Status"], children) == (1000, "page tables unreadable", [])


def test_the_list_is_found_through_the_peb_when_ntdlls_data_is_gone(tmp_path: pathlib.Path) -> None:
    kernel, app, sections, indices, ntdll = new_process("win7-x64", False)
    for index in indices:
        sections.add(index=index)
    sections.link()
    app.peb["LoaderLock"] = sections.entries[1].address
    app.space.set_state(ntdll.base + 0x7000, 0x1000, State.PAGEFILE)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[1000])
    # The head is a node like others here: nothing tells what it was.
    assert [node.row["Lock"] for node in found if node.row["Status"] == "debug information unreadable"] == [
        ntdll.base + HEAD - 16
    ]
    known = [node.row["Lock"] for node in found if node.row["LockCount"] is not None]
    assert sorted(known) == [entry.address for entry in sections.entries]
    assert found[0].row["Status"] == "list head unreadable"


def test_the_head_is_no_section_even_when_entered_through_the_peb(tmp_path: pathlib.Path) -> None:
    kernel, app, sections, _, ntdll = new_process("win7-x64", False)
    sections.add()
    sections.link()
    app.peb["FastPebLock"] = sections.entries[0].address
    kernel.processes[-1].space.set_state(ntdll.base, 0x1000, State.PAGEFILE)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[1000])
    assert [node.row["Lock"] for node in found if node.row["LockType"]] == [sections.entries[0].address]


def test_a_resource_of_a_process_has_its_own_counters(tmp_path: pathlib.Path) -> None:
    kernel, _, sections, _, _ = new_process("win10-x64", False)
    counters = b"".join(
        value.to_bytes(size, "little", signed=value < 0)
        for value, size in ((11, 8), (3, 8), (12, 8), (2, 4), (-1, 4), (1004, 8))
    )
    sections.add(kind=1, resource=counters)
    sections.link()
    opened = context.open_image(kernel.image(), tmp_path)
    row, _ = only(grid.run(opened, locks.Locks, pid=[1000]))
    assert (row["LockType"], row["LockCount"], row["OwnerTID"]) == ("resource", -1, 1004)
    assert (row["NumberOfWaitingShared"], row["NumberOfWaitingExclusive"]) == (3, 2)


def test_find_and_unbacked(tmp_path: pathlib.Path) -> None:
    kernel, app, sections, _, ntdll = new_process("win10-x64", True, traces=0)
    app.region(0x30000000, b"\x90", size=0x1000)
    std = Std("6.1", "x64", 0x20000000, reserve=0x100000)
    backed, unbacked = std.log((ntdll.base + 0x1000,)), std.log((0x30000100, ntdll.base + 0x1000))
    for address, data in std.regions().items():
        app.space.write(address, data)
    sections.add(index=backed)
    other = sections.add(index=unbacked)
    sections.add()
    sections.link()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, locks.Locks, pid=[1000], unbacked=True)
    assert [node.row["Lock"] for node in found] == [other.address]
    found = grid.run(opened, locks.Locks, pid=[1000], find="NTDLL*")
    assert [node.row["Lock"] for node in found] == [sections.entries[0].address, other.address]


# --- the real command line, and what --dump writes ---


@pytest.mark.cli
@pytest.mark.parametrize("name", ["xp-x86", "win10-x64"])
def test_dump_is_what_windows_would_return(name: str, tmp_path: pathlib.Path) -> None:
    kernel, _, sections, indices, _ = new_process(name, False)
    thread = kernel.system.thread(100)
    resources = Resources(kernel)
    resource = resources.add(index=0x10003, active=1, exclusive=thread, contention=4, waiting_exclusive=2)
    resources.link()
    section = sections.add(
        index=indices[2], lock_count=-22, recursion_count=2, owning_thread=1004, entries=7, contention=9
    )
    gone = sections.add(apart=True)
    sections.link()
    kernel.processes[-1].space.set_state(gone.address, 0x80, State.PAGEFILE)
    image = kernel.image()
    result = vol.run(
        image.save(tmp_path / "a.dmp"),
        "windows.locks",
        "--dump",
        symbols=image.install(tmp_path / "symbols"),
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    again = vol.run(tmp_path / "a.dmp", "windows.locks", "--dump", symbols=tmp_path / "symbols", cwd=tmp_path)
    written = {path.name for path in tmp_path.glob("locks.*.bin")}
    assert written == {row["File output"] for row in (*result.rows, *again.rows)}
    assert len(written) == 4
    arch, size = ("x64", 8) if kernel.bits == 64 else ("x86", 4)
    assert {row["File output"] for row in result.rows} == {f"locks.{pid}.{arch}.bin" for pid in (0, 1000)}
    record = only(buffers.decode((tmp_path / f"locks.0.{arch}.bin").read_bytes(), size))
    # Before 5.2 SP1 Windows reported no index of a resource.
    index = 0 if name == "xp-x86" else 3
    assert record == (resource.address, 1, index, 100, 1, 4, 0, 0, 0, 2)
    both = buffers.decode((tmp_path / f"locks.1000.{arch}.bin").read_bytes(), size)
    assert both == [
        (section.address, 0, indices[2], 1004, -22, 9, 7, 2, 0, 0),
        (gone.address, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    ]
