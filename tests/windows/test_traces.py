# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.traces` and `windows.traceframes` against the plugins of each source."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.windows import gflags, pslist, traceframes, traces, trapframes

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.forge.dump import Image
from tests.forge.handles import OPEN, HandleTable, Ring, named
from tests.forge.locks import Resources
from tests.support import flattables, grid
from tests.support.callstackimages import StackImage
from tests.support.only import only
from tests.support.tracedkernels import new_kernel, put_database, traces_of
from winstacks.columns import tables, words
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.symbolizer import Symbolizer
from winstacks.stacklist.frames import NamedFrames


def xp() -> Image:
    """XP with a database, resources, handle events, and a heap that remembers."""
    kernel = new_kernel("xp-x86")
    thread = kernel.system.thread(100)
    indices = put_database(kernel, "5.1", traces_of(kernel))
    resources = Resources(kernel)
    resources.add(index=indices[0], active=1, exclusive=thread)
    resources.add(index=0x1234)
    resources.add()
    resources.link()
    app = kernel.process("app.exe", pid=1000)
    app.module("ntdll.dll", exports={"NtClose": 0x1100})
    app.thread(1004)
    table = HandleTable(app, 0)
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready"), creator=indices[1])
    table.finish()
    ring = Ring(table, 4096)
    ring.event(OPEN, 0x84, 1000, 1004, [kernel.symbol("NtCreateFile") + 4, app.modules[0].at("NtClose") + 2])
    return kernel.image()


def nothing() -> Image:
    """An image in which nobody keeps stacks."""
    kernel = new_kernel("win10-x64", 0)
    kernel.process("app.exe", pid=1000)
    return kernel.image()


IMAGES: Dict[str, Any] = {
    "sample": lambda: sample.build().image(),
    "xp": xp,
    "nothing": nothing,
}


@pytest.fixture(scope="module", params=IMAGES)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(IMAGES[request.param](), tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("traces"))


SELECTING: List[Dict[str, Any]] = [
    {},
    {"unbacked": True},
    {"find": "*!*Thread*"},
    {"find": "nt!*"},
    {"pid": [4312]},
    {"pid": [0]},
]


def test_every_source_has_stacks(demo: Opened) -> None:
    for source in flattables.SOURCES:
        assert flattables.of_plugin(demo, source)


@pytest.mark.parametrize("options", SELECTING, ids=lambda options: "-".join(options) or "all")
@pytest.mark.parametrize("source", flattables.SOURCES)
def test_stacks_and_frames_are_those_of_the_plugins(
    source: str, options: Dict[str, Any], opened: Opened
) -> None:
    if source == "object" and options.get("pid"):
        # windows.objecttraces has no --pid: its rows are the kernel's.
        plugin = flattables.of_plugin(opened, source) if options["pid"] == [0] else []
    else:
        plugin = flattables.of_plugin(opened, source, **options)
    kinds = list(flattables.KINDS[source])
    rows, frames = (run(opened, kinds=kinds, **options) for run in (flattables.stacks, flattables.frames))
    assert flattables.of_tables(rows, frames, source) == plugin


@pytest.mark.parametrize("options", [{}, {"carve": True}], ids=["plain", "carve"])
def test_keys_follow_from_the_frames(options: Dict[str, Any], opened: Opened) -> None:
    rows, frames = flattables.stacks(opened, **options), flattables.frames(opened, **options)
    below = flattables.by_trace(frames)
    assert len({row["TraceId"] for row in rows}) == len(rows)
    assert set(below) <= {row["TraceId"] for row in rows}
    for row in rows:
        own = below.get(row["TraceId"], [])
        assert row["StackKey"] == flattables.stack_key(own)
        assert row["ShapeKey"] == flattables.shape_key(own)
        assert row["Modules"] == flattables.modules(own)
        assert (row["KeyQuality"] is None) == (row["StackKey"] is None)
        assert not (row["Incomplete"] and row["KeyQuality"] == "exact")
        assert row["Guessed"] == sum("unsure" in frame["Status"] for frame in own)
        assert [frame["Frame"] for frame in own] == list(range(len(own)))


def test_modules_find_code_that_was_interrupted_where_no_file_backs_it(demo: Opened) -> None:
    """The interrupted address is in no key: what ran there shows in Modules all the same."""
    found = [row for row in flattables.stacks(demo, kinds=["user"]) if "<private>" in (row["Modules"] or "")]
    assert [(row["PID"], row["TID"]) for row in found] == [(4312, 4320)]
    row = only(found)
    first = next(frame for frame in flattables.frames(demo) if frame["TraceId"] == row["TraceId"])
    assert (first["Frame"], first["How"], first["Backing"]) == (0, "trap", "private")
    unbacked = flattables.stacks(demo, unbacked=True)
    marks = ("<private>", "<none>", "<unloaded>", "<unmapped>")
    assert unbacked and all(any(mark in row["Modules"] for mark in marks) for row in unbacked)


def test_every_value_is_one_of_the_schema(opened: Opened) -> None:
    for table, rows in (("traces", flattables.stacks(opened)), ("traceframes", flattables.frames(opened))):
        columns = tables.FLAT[table]
        words = {word.value.partition("{")[0] for word in StatusCode}
        for row in rows:
            assert list(row) == [column.name for column in columns]
            for column in columns:
                value = row[column.name]
                assert value is not None or column.nullable, column.name
                assert not column.values or value is None or value in column.values, column.name
            assert all(word.startswith(tuple(words)) for word in row["Status"].split(", ") if word)


def test_columns_are_those_of_the_schema_whatever_the_rows(opened: Opened) -> None:
    for plugin, name in ((traces.StackTraces, "traces"), (traceframes.TraceFrames, "traceframes")):
        tree = opened.construct(plugin, pid=[123456]).run()
        assert [column.name for column in tree.columns] == [member.name for member in tables.FLAT[name]]


def test_a_key_does_not_depend_on_options(demo: Opened) -> None:
    def ids(**options: Any) -> Any:
        return {row["TraceId"]: row["Stack"] for row in flattables.stacks(demo, **options)}

    every = ids()
    assert len(every) > 40
    for options in [*SELECTING[1:], {"kinds": ["lock", "user"]}, {"tid": [4316]}]:
        some = ids(**options)
        assert 0 < len(some) < len(every), options
        assert some.items() <= every.items(), options
    more = ids(carve=True, scan_stacks=True, scan_threads=True, scan_processes=True, processors=True)
    assert every.items() <= more.items()


def test_kinds_and_threads_are_selected(demo: Opened) -> None:
    rows = flattables.stacks(demo)
    assert {row["Kind"] for row in rows} == set(words.KINDS) - {words.CALLBACK}
    for kind in words.KINDS:
        found = flattables.stacks(demo, kinds=[kind])
        assert found == [row for row in rows if row["Kind"] == kind]
    one = flattables.stacks(demo, tid=[4320])
    assert one == [row for row in rows if row["TID"] == 4320 or "owned by 4316 4320" in row["Status"]]
    assert {row["Kind"] for row in one} == {"kernel", "user", "lock", "handle"}
    with pytest.raises(exceptions.RenderException, match="--kinds: unknown value fiber; choose from kernel"):
        flattables.stacks(demo, kinds=["fiber"])


def test_processes_are_those_of_pslist(demo: Opened) -> None:
    listed = {node.row["PID"]: node.row for node in grid.run(demo, pslist.PsList)}
    rows = [row for row in flattables.stacks(demo) if row["PID"]]
    assert rows
    for row in rows:
        known = listed[row["PID"]]
        assert row["ProcessOffset"] == known["Offset(V)"]
        assert row["ProcessCreateTime"] == known["CreateTime"]
        assert row["Process"] == known["ImageFileName"]
    kernel = flattables.stacks(demo, pid=[0])
    assert {(row["ProcessOffset"], row["ProcessCreateTime"]) for row in kernel} == {(None, None)}


def test_two_processes_with_one_id(tmp_path: pathlib.Path) -> None:
    kernel = sample.build()
    twin = kernel.process("updater.exe", pid=4312, session=1)
    twin.thread(4317)
    opened = context.open_image(kernel.image(), tmp_path)
    rows = flattables.stacks(opened, pid=[4312])
    assert len({row["ProcessOffset"] for row in rows}) == 2
    assert len({row["TraceId"] for row in rows}) == len(rows)


def test_addresses_are_canonical_and_paths_are_the_loaders(demo: Opened) -> None:
    rows = flattables.frames(demo, kinds=["user", "kernel"], pid=[4312])
    nt = next(row for row in rows if row["Module"] == "nt")
    assert nt["Address"].startswith("0xfffff8")
    assert nt["ModulePath"] == "\\SystemRoot\\system32\\ntoskrnl.exe"
    assert int(nt["Address"], 16) & 0xFFFFFFFF == (0x12200000 + nt["Rva"]) & 0xFFFFFFFF
    ntdll = next(row for row in rows if row["Module"] == "ntdll")
    assert ntdll["ModulePath"] == "C:\\Windows\\System32\\ntdll.dll"
    assert ntdll["Protection"] == "PAGE_EXECUTE_WRITECOPY"
    assert f"{ntdll['Module']}!{ntdll['Function']}+{ntdll['Displacement']:#x}" == ntdll["Symbol"]
    private = next(row for row in rows if row["Backing"] == "private")
    assert private["Protection"] == "PAGE_EXECUTE_READWRITE"
    assert [private[name] for name in ("Module", "Rva", "Function", "ModuleStamp")] == [None] * 4


def test_functions_are_named_as_the_module_names_them(tmp_path: pathlib.Path) -> None:
    """A name of a function may look like a distance."""
    kernel = new_kernel("win10-x64", 0)
    exports = {"Call+0x40": 0x1100, "Call!It": 0x1200, "Start": 0x1000}
    odd = kernel.module("odd.sys", exports=exports, text=0x4000)
    image = context.open_image(kernel.image(), tmp_path).image
    looked_up = NamedFrames(Symbolizer(image)).for_space(image.kernel)
    found = [looked_up.frame(odd.base + rva, rva & 15 != 0) for rva in (0x1100, 0x1108, 0x1200, 0x1211)]
    assert [(frame.shown, frame.details.function, frame.details.displacement) for frame in found] == [
        ("odd!Call+0x40", "Call+0x40", 0),
        ("odd!Call+0x40+0x8", "Call+0x40", 8),
        ("odd!Call!It", "Call!It", 0),
        ("odd!Call!It+0x11", "Call!It", 17),
    ]
    nowhere = looked_up.frame(odd.base + 0x800)
    assert nowhere.shown == "odd+0x800"
    assert (nowhere.details.function, nowhere.details.displacement) == (None, None)


def test_databases_are_named_as_gflags_names_them(demo: Opened) -> None:
    known = [row for node in grid.run(demo, gflags.GFlags) for row in node.children]
    layouts = {(row["PID"], row["Database"]): row["Layout"] for row in known}
    rows = flattables.stacks(demo, kinds=["std", "heaplog"])
    assert {row["Kind"] for row in rows} == {"std", "heaplog"}
    assert {row["OwnerName"] for row in rows} == {"6.1", "heaplog"}
    for row in rows:
        assert row["OwnerName"] == layouts[row["PID"], grid.masked(int(row["Owner"], 16))]


def test_of_a_process_that_cannot_be_read_each_kind_says_so(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64", 0)
    kernel.process("lost.exe", pid=1000).eprocess["Pcb.DirectoryTableBase"] = 0xFFFF0000
    opened = context.open_image(kernel.image(), tmp_path)
    every = flattables.stacks(opened)
    for kind in ("std", "heaplog", "heap", "lock"):
        row = only(flattables.stacks(opened, kinds=[kind]))
        assert (row["Kind"], row["PID"], row["Status"]) == (kind, 1000, "page tables unreadable")
        assert row in every


def test_each_trap_frame_of_a_scan_is_in_a_stack(demo: Opened, tmp_path: pathlib.Path) -> None:
    stacks = StackImage()
    stacks.interrupted(1004)
    stacks.preempted(1008, "interrupt", True, True)
    stacks.waiting(1012)
    for opened in (demo, context.open_image(stacks.kernel.image(), tmp_path)):
        found = [node.row for node in grid.run(opened, trapframes.TrapFrames, scan_stacks=True)]
        plain, rows = (flattables.stacks(opened, scan_stacks=scan) for scan in (False, True))
        below = flattables.by_trace(flattables.frames(opened, scan_stacks=True))
        addresses = {
            (row["TID"], grid.masked(int(frame["Address"], 16)))
            for row in rows
            if row["Kind"] in words.THREAD_KINDS
            for frame in below.get(row["TraceId"], [])
        }
        scanned = [row for row in found if row["Origin"] == "stack"]
        assert scanned
        frames = {row["TrapFrame"] for row in scanned}
        more = [row for row in rows if row not in plain]
        # The sample has one below what a thread has in use; walks pass all others.
        assert len(more) == (opened is demo)
        for row in more:
            trap_frame = int(row["TraceId"].rpartition(":")[2], 16)
            assert row["TraceId"].split(":")[4] == "trap"
            assert "stale" in row["Status"].split(", ")
            assert grid.masked(trap_frame) in frames
        assert {(row["TID"], grid.masked(row["Rip"])) for row in scanned} <= addresses
        assert [row for row in rows if row not in more] == plain


def test_idle_processors(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64", 0)
    kernel.process("app.exe", pid=1000).thread(1004)
    idle = kernel.process("Idle", pid=0, listed=False).thread(0, teb=False)
    kernel.cpus[0].kprcb["IdleThread"] = idle.ethread
    kernel.cpus[0].current(idle)
    opened = context.open_image(kernel.image(), tmp_path)
    plain, rows = (flattables.stacks(opened, processors=added) for added in (False, True))
    more = only(row for row in rows if row not in plain)
    assert [more[name] for name in ("Kind", "PID", "Process", "TID")] == ["kernel", 0, "nt", 0]
    assert (more["Status"], more["Incomplete"], more["Depth"]) == ("running", True, 0)
    assert more["Owner"] == f"{grid.masked(idle.ethread.address):#x}"
    assert flattables.stacks(opened, processors=True, pid=[1000]) == [row for row in plain if row["PID"]]
