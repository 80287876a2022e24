# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rows of `windows.traces` that are no stack: they stand for what cannot be listed, or remark something."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

import pytest
from volatility3.plugins.windows import traceimage

from tests.forge import context
from tests.forge.context import Opened
from tests.forge.handles import CLOSE, HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources
from tests.forge.objecttraces import Event, ObjectTraces
from tests.forge.paging import State
from tests.forge.process import Process
from tests.hostile.undamaged import traced
from tests.support import flattables, grid
from tests.support.heapimage import HEAP, PID, HeapImage
from tests.support.only import only
from tests.support.tracedkernels import KERNELS, new_kernel, put_database, traces_of
from winstacks.columns import words

PAGE = 0x1000


def resources(kernel: Kernel, index: int) -> None:
    """Two of eight resources are gone: what lies between them is, too. The list's head leads nowhere."""
    kernel_resources = Resources(kernel)
    for _ in range(8):
        kernel.space.allocate(PAGE)
        kernel_resources.add(index=index)
    kernel_resources.link()
    for place in (2, 5):
        kernel.space.set_state(
            kernel_resources.entries[place].address, kernel_resources.entries[place].size, State.PAGEFILE
        )


def ring(kernel: Kernel, app: Process) -> None:
    """A ring of 300 events with two holes."""
    table = HandleTable(app, 0)
    table.add(0x84, named(kernel, "_KEVENT", "Event"))
    table.finish()
    forged_ring = Ring(table, 512)
    for number in range(1, 301):
        forged_ring.event(CLOSE, 4 * number, 4, 8, [kernel.symbol("NtClose") + 4])
    for page in (2, 5):
        kernel.space.set_state((forged_ring.address & -PAGE) + page * PAGE, PAGE, State.MISSING)


def objects(kernel: Kernel) -> None:
    """Two chains are gone; an object has events, one has none, one is in no chain."""
    traces = ObjectTraces(kernel)
    kept = traces.stack([kernel.symbol("NtClose")])
    traces.object(named(kernel, "_KEVENT", "Event", "Busy"), "a.exe", [Event(1, True, kept)])
    traces.object(named(kernel, "_KEVENT", "Event", "Idle"), "b.exe", [])
    for bucket in (1, 2):
        traces.object(named(kernel, "_KEVENT", "Event"), "c.exe", [Event(2, True, kept)], bucket=bucket)
    traces.finish()
    for bucket in (1, 2):
        kernel.space.write_int(traces.table + bucket * 8, kernel.space.reserve(PAGE))


def holes() -> Kernel:
    """Something is missing of every source in the kernel."""
    kernel = new_kernel("win10-x64")
    indices = put_database(kernel, "6.1", traces_of(kernel))
    app = kernel.process("app.exe", pid=1000)
    app.module("ntdll.dll", exports={"NtClose": 0x1100})
    app.thread(1004)
    resources(kernel, indices[0])
    ring(kernel, app)
    objects(kernel)
    return kernel


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    kernel = holes()
    image = kernel.image()
    kernel.space.write_int(kernel.symbol("PsActiveProcessHead"), 0)
    kernel.processes[-1].eprocess["ActiveThreads"] = 7
    return context.open_image(image, tmp_path_factory.mktemp("gaps"))


@pytest.fixture(scope="module")
def rows(opened: Opened) -> List[Dict[str, Any]]:
    return flattables.stacks(opened)


def test_a_row_without_a_count_is_no_stack(opened: Opened, rows: List[Dict[str, Any]]) -> None:
    gaps = [row for row in rows if row["Count"] is None]
    assert {row["Kind"] for row in gaps} == set(words.KINDS) - {words.CALLBACK}
    below = flattables.by_trace(flattables.frames(opened))
    nothing = ("Depth", "Bytes", "BackTraceHash", "StackKey", "ShapeKey", "KeyQuality", "Unbacked", "Stack")
    for row in gaps:
        assert [row[name] for name in (*nothing, "Modules")] == [None] * 9
        assert row["TraceId"] not in below
    assert set(below) < {row["TraceId"] for row in rows if row["Count"] is not None}
    for row in rows:
        if row["Count"] is not None and not row["Incomplete"]:
            assert row["Depth"] is not None


def test_a_key_names_what_is_missing_and_no_position(rows: List[Dict[str, Any]]) -> None:
    ids = [row["TraceId"] for row in rows if row["Count"] is None]
    assert len(set(ids)) == len(ids)
    assert [trace_id for trace_id in ids if "~" in trace_id] == []
    gaps = {(text.split(":")[0], text.split(":")[4]) for text in ids}
    assert {
        ("kernel", "process-list-damaged"),
        ("kernel", "active-threads"),
        ("lock", "list-broken"),
        ("handle", "events-unreadable"),
        ("object", "bucket-unreadable"),
    } <= gaps


def test_holes_of_a_ring_are_known_by_the_event_before_them(rows: List[Dict[str, Any]]) -> None:
    events = [row for row in rows if row["Kind"] == "handle"]
    places = [place for place, row in enumerate(events) if "events unreadable" in row["Status"]]
    assert len(places) == 2
    for place in places:
        before = events[place - 1]["TraceId"].rpartition(":")[2].split(".")[0]
        assert events[place]["TraceId"].rpartition(":")[2].split(".")[0] == before


def test_an_object_without_events_misses_none(rows: List[Dict[str, Any]]) -> None:
    idle = only(row for row in rows if row["OwnerName"] == "Event Idle")
    assert (idle["Count"], idle["Depth"], idle["Incomplete"], idle["Status"]) == (None, None, False, "")


def test_gaps_are_no_stacks_of_threads(opened: Opened, rows: List[Dict[str, Any]]) -> None:
    node = only(grid.run(opened, traceimage.TraceImage))
    stacks = [row for row in rows if row["Kind"] in words.THREAD_KINDS and row["Count"] is not None]
    assert node.row["Stacks"] == len(stacks)
    assert node.row["StacksIncomplete"] == sum(row["Incomplete"] for row in stacks)
    assert node.row["Threads"] == len({row["Owner"] for row in stacks})


@pytest.mark.parametrize("options", [{"pid": [1000]}, {"pid": [0]}, {"tid": [1004]}, {"carve": True}])
def test_keys_of_gaps_do_not_depend_on_options(
    options: Dict[str, Any], opened: Opened, rows: List[Dict[str, Any]]
) -> None:
    known = {row["TraceId"]: row for row in rows}
    some = flattables.stacks(opened, **options)
    assert some
    for row in some:
        assert known[row["TraceId"]] == row


def test_who_made_a_heap_is_a_stack_and_who_is_not_known_is_none(tmp_path: pathlib.Path) -> None:
    forged = HeapImage("win10-x64")
    heap = forged.heap(HEAP, segment_creator=forged.index(3))
    heap.extended(100, forged.record(1))
    forged.put(heap.regions(), HEAP)
    other = forged.heap(HEAP + 0x1000000, segment_creator=0)
    other.extended(100, forged.record(1))
    forged.put(other.regions(), HEAP + 0x1000000)
    image = forged.image()
    forged.process.space.set_state(HEAP + 0x1000000, PAGE, State.PAGEFILE)
    found = flattables.stacks(context.open_image(image, tmp_path), pid=[PID], kinds=["heap"])
    owners = {row["Owner"]: row for row in found if row["OwnerName"] != "blocks"}
    known, gone = owners[f"{HEAP:#x}"], owners[f"{HEAP + 0x1000000:#x}"]
    assert known["Depth"] and known["Count"] == 1
    assert (gone["Depth"], gone["Count"], gone["Incomplete"]) == (None, None, True)


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
def test_no_log_is_missing_where_all_of_ntdll_is_there(name: str, tmp_path: pathlib.Path) -> None:
    """+ust is set, and no block has a trace yet: then the heap has no log."""
    opened = context.open_image(traced(name).image(), tmp_path)
    found = flattables.stacks(opened, pid=[1000], kinds=["std", "heaplog"])
    assert [(row["Kind"], row["Status"]) for row in found] == [("std", "no database")]
