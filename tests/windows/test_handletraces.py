# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.handletraces` on forged handle tables and rings of every form."""

from __future__ import annotations

import pathlib
from typing import Any, List, Optional, Tuple

import pytest
from volatility3.plugins.windows import handletraces

from tests.forge import context, vol
from tests.forge.handles import BADREF, CLOSE, OPEN, HandleTable, Ring, header_of, named
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.process import Process
from tests.support import grid
from tests.support.only import only
from tests.support.tracedkernels import KERNELS, new_kernel, put_database, traces_of
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.process import spaces
from winstacks.process.handletables import HandleTables
from winstacks.tracedb.finder import Databases

COLUMNS = ("Handle", "Event", "ByPID", "ByTID", "Sequence", "ObjectType", "ObjectName", "Status")


def columns(node: grid.Node) -> Tuple[Any, ...]:
    return tuple(node.row[name] for name in COLUMNS)


def new_process(name: str, flags: int = 0, level: int = 0) -> Tuple[Kernel, Process, HandleTable]:
    kernel = new_kernel(name, flags)
    app = kernel.process("app.exe", pid=1000)
    app.module("ntdll.dll", exports={"NtClose": 0x1100})
    return kernel, app, HandleTable(app, level)


FORMS = [(name, place % 3) for place, (name, _) in enumerate(KERNELS)]


@pytest.mark.parametrize(("name", "level"), [*FORMS, ("xp-x86", 2), ("win10-x64", 1)])
def test_ring_of_every_form(name: str, level: int, tmp_path: pathlib.Path) -> None:
    kernel, app, table = new_process(name, level=level)
    other = kernel.process("other.exe", pid=2000)
    mapped = other.module("other.exe", base=0x10000000)
    thread = app.thread(1004)
    # A handle of the second page of entries where there is one, of the second directory at level 2.
    high = {0: 0x88, 1: 0x1004, 2: 0x200004}[level]
    event = named(kernel, "_KEVENT", "Event", "Ready")
    table.add(0x84, event)
    table.add(high, thread.ethread)
    table.finish()
    ring = Ring(table, 4096 if name == "xp-x86" else 64)
    kernel_frame = kernel.symbol("ObpCreateHandle") + 4
    user_frame = app.modules[0].at("NtClose") + 2
    ring.event(OPEN, 0x84, 1000, 1004, [kernel_frame, user_frame])
    ring.event(CLOSE, 0x84, 1000, 1004)
    ring.event(OPEN, 0x84, 1000, 1004, [kernel_frame])
    ring.event(OPEN, 0x90, 1000, 1004)
    ring.event(BADREF, 0x94, 1000, 1004)
    ring.event(OPEN, high, 2000, 2004, [kernel_frame, mapped.base + 0x1010])
    ring.event(CLOSE, 0x98, 1000, 1008)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces, pid=[1000])
    assert [columns(node) for node in found] == [
        (0x98, "close", 1000, 1008, 7, None, None, ""),
        (high, "open", 2000, 2004, 6, "Thread", "Tid 1004 Pid 1000", ""),
        (0x94, "badref", 1000, 1004, 5, None, None, ""),
        (0x90, "open", 1000, 1004, 4, None, None, "no longer open"),
        (0x84, "open", 1000, 1004, 3, "Event", "Ready", ""),
        (0x84, "close", 1000, 1004, 2, None, None, ""),
        (0x84, "open", 1000, 1004, 1, None, None, ""),
    ]
    assert {(node.row["PID"], node.row["Process"]) for node in found} == {(1000, "app.exe")}
    assert found[1].row["Object"] == grid.masked(thread.ethread.address)
    assert [row["Symbol"] for row in found[6].children] == ["nt!ObpCreateHandle+0x4", "ntdll!NtClose+0x2"]
    # The frames of another process's thread are named as that process knows them.
    assert found[1].children[1]["Symbol"] == "other+0x1010"
    assert found[1].children[1]["Address"] == mapped.base + 0x1010
    assert [(row["Handle"], row["Event"], row["Sequence"], row["Frame"]) for row in found[1].children] == [
        (high, "open", 6, 0),
        (high, "open", 6, 1),
    ]
    # The event is one of both processes.
    of_other = only(grid.run(opened, handletraces.HandleTraces, pid=[2000]))
    assert (of_other.row["PID"], columns(of_other)) == (1000, columns(found[1]))
    leaks = grid.run(opened, handletraces.HandleTraces, pid=[1000], leaks=True)
    # That of 0x90 is gone without a close: its event may have been changed, so that it is not left out.
    assert [(node.row["Handle"], node.row["Sequence"]) for node in leaks] == [(high, 6), (0x90, 4), (0x84, 3)]
    one = grid.run(opened, handletraces.HandleTraces, pid=[1000], handle=[0x84])
    assert [node.row["Sequence"] for node in one] == [3, 2, 1]


def test_events_that_the_counter_denies_are_kept_and_marked(tmp_path: pathlib.Path) -> None:
    """The counter was set back: the event in slot 0 has the number 0 then, and the others are below."""
    kernel, _, table = new_process("win10-x64")
    table.finish()
    ring = Ring(table, 8)
    for number in range(1, 17):
        ring.event(OPEN, 4 * number, 1000, 1000 + 4 * number)
    ring.info["CurrentStackIndex"] = 2
    found = grid.run(context.open_image(kernel.image(), tmp_path), handletraces.HandleTraces)
    said = "beyond the ring's counter"
    marked = {node.row["Sequence"]: said in str(node.row["Status"]) for node in found}
    assert marked == {2: False, 1: False, **dict.fromkeys(range(-5, 1), True)}


@pytest.mark.parametrize("name", ["xp-x86", "2003-x64", "win7-x86", "win10-x64"])
def test_the_ring_wraps(name: str, tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process(name)
    table.finish()
    size = 4096 if name == "xp-x86" else 8
    ring = Ring(table, size)
    for number in range(1, size + 4):
        ring.event(OPEN, 4 * (number % 50 + 1), 1000, 1000 + number)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces)
    sequences = [(node.row["Sequence"], node.row["ByTID"] - 1000) for node in found]
    assert sequences == [(number, number) for number in range(size + 3, 3, -1)]


def test_a_half_paged_out_ring_says_how_much_is_lost(tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process("win10-x64")
    event = named(kernel, "_KEVENT", "Event")
    table.add(0x84, event)
    table.finish()
    ring = Ring(table, 64)
    for number in range(1, 61):
        ring.event(OPEN if number == 3 else CLOSE, 0x84 if number == 3 else 0x1000 + 4 * number, 4, 8)
    # The second page of the ring: some 25 events, of which the outer ones reach into its neighbours.
    kernel.space.set_state(ring.address + 0x1000, 0x1000, State.MISSING)
    lost = [
        number
        for number in range(1, 61)
        if ring.slot(number) < ring.address + 0x2000 and ring.slot(number) + 0xA0 > ring.address + 0x1000
    ]
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces)
    numbers = [node.row["Sequence"] for node in found if node.row["Sequence"] is not None]
    assert numbers == [number for number in range(60, 0, -1) if number not in lost]
    holes = [node.row["Status"] for node in found if node.row["Sequence"] is None]
    assert holes == [f"{len(lost)} events unreadable"]
    leaks = grid.run(opened, handletraces.HandleTraces, leaks=True)
    assert [node.row["Status"] for node in leaks] == [holes[0], "events lost"]


def test_damaged_headers_and_tables(tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process("win10-x64")
    table.add(0x84, named(kernel, "_KEVENT", "Event"))
    table.finish()
    ring = Ring(table, 8)
    ring.event(OPEN, 0x84, 1000, 1004)
    ring.event(7, 0x88, 1 << 40, 1004)
    kernel.space.set_state(table.pages[0], 0x1000, State.PAGEFILE)
    second = kernel.process("second.exe", pid=2000)
    row = kernel.obj("_HANDLE_TABLE")
    second.eprocess["ObjectTable"] = row
    row["DebugInfo"] = kernel.space.reserve(0x1000)
    third = kernel.process("third.exe", pid=3000)
    odd = HandleTable(third)
    odd.finish()
    broken = Ring(odd, 8)
    broken.event(OPEN, 0x84, 3000, 3004)
    broken.info["TableSize"] = 0xFFFFFFFF
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces, pid=[1000])
    assert [columns(node) for node in found] == [
        (0x88, None, None, 1004, 2, None, None, "unknown type 7, ClientId above 32 bits"),
        (0x84, "open", 1000, 1004, 1, None, None, "handle table unreadable"),
        # Events of this process in the tables of others may be lost.
        (*(None,) * 7, "contradicted: ObjectTable"),
        (*(None,) * 7, "ring unreadable"),
        (*(None,) * 7, "table size"),
    ]
    assert [node.row["PID"] for node in found[2:]] == [2000, 2000, 3000]
    found = grid.run(opened, handletraces.HandleTraces, pid=[2000])
    # The kernel's list of handle tables does not have this one.
    assert [columns(node) for node in found] == [
        (*(None,) * 7, "contradicted: ObjectTable"),
        (*(None,) * 7, "ring unreadable"),
        (*(None,) * 7, "table size"),
    ]
    found = grid.run(opened, handletraces.HandleTraces, pid=[3000])
    assert [(node.row["PID"], node.row["Status"]) for node in found[:3]] == [
        (2000, "contradicted: ObjectTable"),
        (2000, "ring unreadable"),
        (3000, "table size"),
    ]
    assert found[3].row["Event"] == "open"


def test_an_unreadable_table_is_not_taken_for_none(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, app, _ = new_process("win10-x64")
    app.eprocess["ObjectTable"] = kernel.space.reserve(0x1000)
    kernel.process("exited.exe", pid=2000)
    opened = context.open_image(kernel.image(), tmp_path)
    node = only(grid.run(opened, handletraces.HandleTraces))
    # The list of handle tables leads to another one that names this process.
    assert (node.row["PID"], *columns(node)) == (1000, *(None,) * 7, "contradicted: ObjectTable")
    assert "No handle traces" not in caplog.text


@pytest.mark.parametrize(("level", "place", "kept"), [(1, 2, [0x84]), (2, None, [])])
def test_pages_of_a_handle_table_that_are_gone_are_counted(
    level: int, place: Optional[int], kept: List[int], tmp_path: pathlib.Path
) -> None:
    kernel, _, table = new_process("xp-x86", 0x2000, level=level)
    (index, *_) = put_database(kernel, "5.1", traces_of(kernel))
    event = named(kernel, "_KEVENT", "Event", "Ready")
    for handle in (0x84, 0x1004):
        table.add(handle, event, creator=index)
    table.finish()
    top = table.obj["TableCode"] & ~7
    # A page of entries, or the directory above all of them.
    kernel.space.set_state(top if place is None else table.pages[place], 0x1000, State.PAGEFILE)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces)
    assert [(node.row["Handle"], node.row["Event"], node.row["Status"]) for node in found] == [
        *((handle, "create", "") for handle in kept),
        (None, None, "1 pages of the handle table unreadable"),
    ]


def test_a_process_without_page_tables_keeps_its_events(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    kernel, _, table = new_process("win10-x64")
    table.finish()
    Ring(table, 8).event(CLOSE, 0x84, 1000, 1004, [kernel.symbol("ObpCreateHandle") + 4])
    opened = context.open_image(kernel.image(), tmp_path)
    system, *rest = spaces.AddressSpaces.list_spaces(opened.image)
    row_status = status(StatusCode.PAGE_TABLES_UNREADABLE)
    closed = [process._replace(layer_name="", status=row_status) for process in rest if process.pid == 1000]
    monkeypatch.setattr(spaces.AddressSpaces, "list_spaces", lambda *_: iter([system, *closed]))
    found = grid.run(opened, handletraces.HandleTraces, pid=[1000])
    assert [(node.row["Event"], node.row["Status"]) for node in found] == [
        (None, "page tables unreadable"),
        ("close", ""),
    ]
    assert [row["Symbol"] for row in found[1].children] == ["nt!ObpCreateHandle+0x4"]


def test_a_handle_table_that_leads_into_itself_ends(tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process("xp-x86", 0x2000, level=2)
    put_database(kernel, "5.1", traces_of(kernel))
    table.add(0x84, named(kernel, "_KEVENT", "Event"), creator=1)
    table.finish()
    top = table.obj["TableCode"] & ~7
    for number in range(1, 1024):
        kernel.space.write_int(top + 4 * number, top)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces, handle=[0x84])
    assert [node.row["Event"] for node in found] == ["create"]


def test_entries_of_a_64_bit_kernel_hold_the_whole_access(tmp_path: pathlib.Path) -> None:
    """The high word of 1F0FFFh is no index, although that one is in use, and the rights are known."""
    kernel = new_kernel("2003-x64", 0x2000)
    app = kernel.process("app.exe", pid=1000)
    table = HandleTable(app)
    put_database(kernel, "5.2", traces_of(kernel) * 11)
    event = named(kernel, "_KEVENT", "Event", "Ready")
    for handle, access in ((0x84, 0x1F0FFF), (0x88, 0x1F0003), (0x8C, 0x10001)):
        table.add(handle, event, access=access)
    table.finish()
    opened = context.open_image(kernel.image(), tmp_path)
    assert grid.run(opened, handletraces.HandleTraces) == []
    tables = opened.image.service(HandleTables)
    assert not tables.has_creators
    found = tables.table_of(app.eprocess.address)
    assert found is not None
    entries = [tables.lookup(found, handle)[0] for handle in (0x84, 0x88, 0x8C)]
    assert [entry and entry.access for entry in entries] == [0x1F0FFF, 0x1F0003, 0x10001]


@pytest.mark.parametrize(("name", "generation"), KERNELS[:1])
def test_creators_of_handles_on_xp(name: str, generation: str, tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process(name, 0x2000)
    traces = traces_of(kernel)
    indices = put_database(kernel, generation, traces)
    event = named(kernel, "_KEVENT", "Event", "Ready")
    table.add(0x84, event, creator=indices[1])
    table.add(0x88, event, creator=0)
    table.add(0x8C, event, creator=0x7000)
    table.finish()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces)
    assert [columns(node) for node in found] == [
        (0x84, "create", None, None, None, "Event", "Ready", ""),
        (0x8C, "create", None, None, None, "Event", "Ready", "no such index"),
    ]
    assert grid.frames(found[0]) == [grid.masked(frame) for frame in traces[1]]


def test_the_database_is_read_once_for_all_processes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, _, table = new_process("xp-x86", 0x2000)
    traces = traces_of(kernel)
    indices = put_database(kernel, "5.1", traces)
    event = named(kernel, "_KEVENT", "Event", "Ready")
    tables = [table, *(HandleTable(kernel.process(f"{n}.exe", pid=2000 + 4 * n)) for n in range(3))]
    for number, handle_table in enumerate(tables):
        handle_table.add(0x84, event, creator=indices[number % 3])
        handle_table.finish()
    opened = context.open_image(kernel.image(), tmp_path)
    calls: List[Any] = []
    real = Databases.open_database

    def counting(finder: Databases, found: Any) -> Any:
        calls.append(found)
        return real(finder, found)

    monkeypatch.setattr(Databases, "open_database", counting)
    found = grid.run(opened, handletraces.HandleTraces)
    assert [node.row["PID"] for node in found] == [1000, 2000, 2004, 2008]
    expected = [[grid.masked(frame) for frame in traces[number % 3]] for number in range(4)]
    assert [grid.frames(node) for node in found] == expected
    assert len(calls) == 1


def test_without_kst_or_since_vista_the_granted_access_is_no_index(tmp_path: pathlib.Path) -> None:
    for name, flags in (("xp-x86", 0), ("win7-x64", 0x2000), ("win7-x86", 0x2000)):
        kernel, _, table = new_process(name, flags)
        table.add(0x84, named(kernel, "_KEVENT", "Event"), creator=1)
        table.finish()
        (tmp_path / name).mkdir()
        opened = context.open_image(kernel.image(), tmp_path / name)
        assert grid.run(opened, handletraces.HandleTraces) == []


@pytest.mark.parametrize(("name", "generation"), KERNELS)
def test_creators_of_objects(name: str, generation: str, tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process(name, 0x6000)
    traces = traces_of(kernel)
    indices = put_database(kernel, generation, traces)
    event = named(kernel, "_KEVENT", "Event", "Ready", creator=(1000, indices[0]))
    table.add(0x84, event, creator=0)
    table.add(0x88, event, creator=0)
    table.add(0x8C, named(kernel, "_KEVENT", "Event", creator=(2000, 0)), creator=0)
    table.add(0x90, named(kernel, "_KEVENT", "Event", creator=(2000, indices[2])), creator=0)
    table.finish()
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces)
    assert [columns(node) for node in found] == [
        (None, "create", 1000, None, None, "Event", "Ready", ""),
        (None, "create", 2000, None, None, "Event", None, ""),
    ]
    assert found[0].row["Object"] == grid.masked(event.address)
    assert [grid.frames(node) for node in found] == [
        [grid.masked(frame) for frame in traces[place]] for place in (0, 2)
    ]


def test_a_creator_that_is_no_process_id_is_not_shown(tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process("win10-x64", 0x6000)
    (index, *_) = put_database(kernel, "6.1", traces_of(kernel))
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready", creator=(0xFFFFE0001002F7B0, index)))
    table.finish()
    found = only(grid.run(context.open_image(kernel.image(), tmp_path), handletraces.HandleTraces))
    assert (found.row["ByPID"], found.row["Status"]) == (None, "ClientId above 32 bits")


@pytest.mark.parametrize("name", ["xp-x86", "win10-x64"])
def test_objects_whose_creator_cannot_be_read_are_counted(name: str, tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process(name, 0x6000)
    (index, *_) = put_database(kernel, "5.1" if name == "xp-x86" else "6.1", traces_of(kernel))
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready", creator=(1000, index)), creator=0)
    kernel.space.allocate(0x1000)
    gone = named(kernel, "_KEVENT", "Event", creator=(1000, index))
    kernel.space.allocate(0x1000)
    table.add(0x88, gone, creator=0)
    table.finish()
    kernel.space.set_state(header_of(gone), 1, State.PAGEFILE)
    found = grid.run(context.open_image(kernel.image(), tmp_path), handletraces.HandleTraces)
    assert [(node.row["Event"], node.row["ObjectName"], node.row["Status"]) for node in found] == [
        ("create", "Ready", ""),
        (None, None, "1 object headers unreadable"),
    ]


@pytest.mark.parametrize("name", ["xp-x86", "win10-x64"])
def test_names_of_objects(name: str, tmp_path: pathlib.Path) -> None:
    kernel, app, table = new_process(name)
    device = named(kernel, "_DEVICE_OBJECT", "Device", "HarddiskVolume1")
    file = kernel.file("\\Windows\\a.txt")
    file["DeviceObject"] = device
    evil = named(kernel, "_KEVENT", "Event", "\x1b[31m\u202eevil")
    kernel.space.allocate(0x1000)
    gone = named(kernel, "_KEVENT", "Event")
    kernel.space.allocate(0x1000)
    objects = [app.eprocess, file, evil, gone]
    table.finish()
    ring = Ring(table, 4096 if name == "xp-x86" else 8)
    for number, obj in enumerate(objects):
        table.add(0x84 + 4 * number, obj)
        ring.event(OPEN, 0x84 + 4 * number, 1000, 1004)
    table.finish()
    kernel.space.set_state(header_of(gone), 1, State.PAGEFILE)
    opened = context.open_image(kernel.image(), tmp_path)
    found = grid.run(opened, handletraces.HandleTraces)[::-1]
    assert [(node.row["ObjectType"], node.row["ObjectName"]) for node in found[:3]] == [
        ("Process", "app.exe Pid 1000"),
        ("File", "\\Device\\HarddiskVolume1\\Windows\\a.txt"),
        ("Event", "\\x1b[31m\\u202eevil"),
    ]
    assert found[3].row["Status"] == "object unreadable"


@pytest.mark.cli
def test_the_command_line_and_an_image_without_traces(tmp_path: pathlib.Path) -> None:
    kernel, _, table = new_process("win10-x64")
    image = kernel.image()
    file, symbols = image.save(tmp_path / "a.dmp"), image.install(tmp_path / "symbols")
    result = vol.run(file, "windows.handletraces", symbols=symbols)
    assert (result.returncode, result.rows) == (0, [])
    assert "!htrace -enable" in result.stderr
    table.finish()
    Ring(table, 8).event(OPEN, 0x84, 1000, 1004, [kernel.symbol("ObpCreateHandle") + 4])
    image = kernel.image()
    result = vol.run(image.save(tmp_path / "b.dmp"), "windows.handletraces", symbols=symbols)
    assert result.returncode == 0, result.stderr
    rows: List[Any] = result.rows
    assert [(row["Handle"], row["Event"], len(row["__children"])) for row in rows] == [(0x84, "open", 1)]
