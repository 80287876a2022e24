# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Recorded stacks in `windows.traces`: where Windows cut them, and what their keys depend on."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.plugins.windows import handletraces

from tests.forge import context, heap_layouts, heaplist, sample
from tests.forge.context import Opened
from tests.forge.handles import OPEN, HandleTable, Ring, named
from tests.forge.heaplog import HeapLog
from tests.forge.heaps import NtHeap
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources
from tests.forge.objecttraces import Event, ObjectTraces
from tests.forge.std import Std
from tests.support import flattables, grid
from tests.support.tracedkernels import new_kernel, put_database, traces_of
from winstacks.stacklist import recorded
from winstacks.stacklist.stack import Distinct

HEAP, LIST, LOG = 0x1D290000000, 0x1D28F000000, 0x1D28D000070
MOST = {"std": 32, "heaplog": 32, "heap": 32, "lock": 32, "handle": 16, "object": 16}
"""How many frames of a stack Windows keeps."""


def traced_kernel(missing: int) -> Kernel:
    """A kernel and a process of which each source has one stack.

    Args:
        missing: how many frames it has less than Windows keeps of one
    """
    kernel = new_kernel("win10-x64")
    frames = [kernel.symbol("NtCreateFile") + 16 + number for number in range(32)]
    index, *_ = put_database(kernel, "6.1", [tuple(frames[missing:])])
    resources = Resources(kernel)
    resources.add(index=index)
    resources.add(index=kernel.symbol("NtCreateFile") + 8)
    resources.link()
    app = kernel.process("app.exe", pid=1000)
    app.peb["NtGlobalFlag"] = 0x1000  # type: ignore[index]
    ntdll = app.module("ntdll.dll", exports={"NtClose": 0x1100}, text=0x5800)
    database = Std("6.1", "x64")
    log = HeapLog("x64", address=LOG, zone=0x1D28D100040, lookaside=0x1D28D090000)
    own = [ntdll.base + 0x1104 + number for number in range(32)][missing:]
    database.log(own)
    heap = NtHeap(HEAP, heap_layouts.LAYOUTS["6.2-x64"], pages=64, segment_creator=0)
    heap.extended(0x40, log.log(own))
    for address, data in [*database.regions().items(), *heap.regions(), *log.regions().items()]:
        app.region(address, data)
    app.space.write_int(ntdll.base + sample.POINTER_RVA, database.base)
    app.space.write_int(ntdll.base + sample.POINTER_RVA + 0x10, log.address)
    heaplist.put(app, app, 8, [HEAP], LIST)
    table = HandleTable(app, 0)
    event = named(kernel, "_KEVENT", "Event", "Ready")
    table.add(0x84, event)
    table.finish()
    Ring(table, 64).event(OPEN, 0x84, 1000, 1004, frames[16 + missing :])
    traces = ObjectTraces(kernel)
    traces.object(event, "app.exe", [Event(1, True, traces.stack(frames[16 + missing :]))])
    traces.finish()
    return kernel


def opened_image(kernel: Kernel, folder: pathlib.Path, name: str = "image") -> Opened:
    (folder / name).mkdir()
    return context.open_image(kernel.image(), folder / name)


def worth(opened: Opened) -> Dict[str, List[Tuple[Any, Any, Any]]]:
    """By kind (depth, whether it is incomplete, what its keys are worth) of each stack with frames."""
    found: Dict[str, List[Tuple[Any, Any, Any]]] = {}
    for row in flattables.stacks(opened, kinds=list(MOST)):
        if row["Depth"]:
            found.setdefault(row["Kind"], []).append(
                (row["Depth"], row["Incomplete"], row["KeyQuality"]),
            )
    return found


def test_a_stack_with_all_the_frames_that_windows_keeps_may_be_cut(tmp_path: pathlib.Path) -> None:
    # A resource may have an address of its creator instead of a stack.
    alone = (1, True, "partial")
    for missing, quality in ((0, "partial"), (1, "exact")):
        found = worth(opened_image(traced_kernel(missing), tmp_path, f"less{missing}"))
        assert alone in found["lock"]
        found["lock"].remove(alone)
        expected = {kind: [(most - missing, not missing, quality)] for kind, most in MOST.items()}
        # The kernel has a database, too.
        expected["std"] *= 2
        assert found == expected


def shared_object() -> Kernel:
    """A kernel that keeps the creators of objects, and an event to which three processes have handles."""
    kernel = new_kernel("win10-x64", 0x6000)
    indices = put_database(kernel, "6.1", traces_of(kernel))
    event = named(kernel, "_KEVENT", "Event", "Ready", creator=(1000, indices[0]))
    for number in range(1, 4):
        process = kernel.process(f"app{number}.exe", pid=1000 * number)
        table = HandleTable(process, 0)
        table.add(0x84, event, creator=0)
        own = named(kernel, "_KEVENT", "Event", f"Own{number}", creator=(1000 * number, indices[1]))
        table.add(0x88, own, creator=0)
        table.finish()
    return kernel


@pytest.mark.parametrize("pids", [[1000], [2000], [3000], [3000, 2000], [2000, 1000]])
def test_who_created_an_object_does_not_depend_on_the_processes_wanted(
    pids: List[int], tmp_path: pathlib.Path
) -> None:
    opened = opened_image(shared_object(), tmp_path)
    rows = flattables.stacks(opened, kinds=["handle"])
    assert [row["OwnerName"] for row in rows].count("Event Ready") == 1
    assert flattables.stacks(opened, kinds=["handle"], pid=pids) == [
        row for row in rows if row["PID"] in pids
    ]
    frames = flattables.frames(opened, kinds=["handle"])
    assert flattables.frames(opened, kinds=["handle"], pid=pids) == [
        frame for frame in frames if frame["PID"] in pids
    ]
    listed = grid.run(opened, handletraces.HandleTraces)
    some = grid.run(opened, handletraces.HandleTraces, pid=pids)
    assert [node.row for node in some] == [node.row for node in listed if node.row["PID"] in pids]


def test_a_table_that_many_processes_share_is_read_as_often_with_pid(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    app = kernel.process("app.exe", pid=1000)
    table = HandleTable(app, 0)
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready"))
    table.finish()
    Ring(table, 64).event(OPEN, 0x84, 1000, 1004, [kernel.symbol("NtCreateFile") + 16])
    # Nothing tells whose table it is.
    kernel.handle_tables.clear()
    for number in range(2, 9):
        kernel.process(f"app{number}.exe", pid=1000 * number).eprocess["ObjectTable"] = table.obj
    opened = opened_image(kernel, tmp_path)
    rows = flattables.stacks(opened, kinds=["handle"])
    assert [row["Status"] for row in rows].count("handle table shared") == 3
    for pid in range(1000, 9000, 1000):
        found = flattables.stacks(opened, kinds=["handle"], pid=[pid])
        # The process 1000 made the event, in whichever table it is. What a process did in the table that
        # another one had before is lost.
        expected = [
            row
            for row in rows
            if row["PID"] == pid or row["Status"] == "handle table shared" or (pid == 1000 and row["Owner"])
        ]
        assert found == expected, pid


def test_events_are_told_apart_object_by_object(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    number = traces.stack([kernel.symbol("NtCreateFile") + 16])
    objects = [named(kernel, "_KEVENT", "Event", f"Event{at}") for at in range(5)]
    # One object is traced twice, with the same numbers of events.
    for obj in (*objects, objects[0]):
        traces.object(obj, "app.exe", [Event(at, True, number) for at in (1, 2, 3, 3)], bucket=7)
    traces.finish()
    kept: List[Distinct] = []

    def new_distinct(time: int = 1) -> Distinct:
        kept.append(Distinct(time))
        return kept[-1]

    monkeypatch.setattr(recorded, "Distinct", new_distinct)
    rows = flattables.stacks(opened_image(kernel, tmp_path), kinds=["object"])
    events = [row["TraceId"] for row in rows if row["Event"]]
    assert len(events) == len(set(events)) == 24
    assert sum(event.endswith("~2") for event in events) == 9
    assert sum("~~2" in event for event in events) == 4
    assert max(len(distinct._seen) for distinct in kept) <= 4
