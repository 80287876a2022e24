# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.objecttraces` on forged tables of every form, whole and damaged."""

from __future__ import annotations

import copy
import pathlib
from typing import Any, List, Tuple

import pytest
from volatility3.plugins.windows import objecttraces

from tests.forge import context, kernels, vol
from tests.forge.handles import header_of, named
from tests.forge.isf import Isf
from tests.forge.kernel import Kernel
from tests.forge.objecttraces import Event, ObjectTraces
from tests.forge.paging import State
from tests.forge.pe import guid_of
from tests.support import grid
from tests.support.only import only
from tests.support.tracedkernels import new_kernel, traces_of
from winstacks.objects import lister

COLUMNS = ("ObjectType", "ObjectName", "ImageFileName", "Event", "Count", "Tag", "Sequence", "Status")
TRACED = ("win7-x86", "win7-x64", "win10-x86", "win10-x64", "win11-x64")


def columns(node: grid.Node) -> Tuple[Any, ...]:
    return tuple(node.row[name] for name in COLUMNS)


def other_kernel(name: str, change: Any) -> Kernel:
    """A kernel with other types in its table."""
    known = kernels.load(name)
    data = dict(known.table.data, user_types=copy.deepcopy(known.table.types))
    change(data["user_types"])
    table = Isf(data).renamed(guid_of(f"{name}-{sorted(data['user_types'])}-{change.__name__}"))
    return Kernel(table, **known.options())


def as_vista(types: Any) -> None:
    types["_OBJECT_REF_STACK_INFO"]["size"] = 8
    del types["_OBJECT_REF_STACK_INFO"]["fields"]["Tag"]


def as_stackdb(types: Any) -> None:
    del types["_STACK_TABLE"]
    types["_RTL_STACKDB_CONTEXT"] = {"kind": "struct", "size": 0x48, "fields": {}}


def rows(kernel: Kernel, folder: pathlib.Path, **options: Any) -> List[grid.Node]:
    opened = context.open_image(kernel.image(), folder)
    return grid.run(opened, objecttraces.ObjectTraces, **options)


@pytest.mark.parametrize("name", [*TRACED, "vista"])
def test_every_form(name: str, tmp_path: pathlib.Path) -> None:
    kernel = other_kernel("win7-x64", as_vista) if name == "vista" else new_kernel(name)
    first, second, third = traces_of(kernel)
    traces = ObjectTraces(kernel)
    numbers = [traces.stack(first), traces.stack(second), traces.stack(third, number=1025)]
    event = named(kernel, "_KEVENT", "Event", "Ready")
    mutant = named(kernel, "_KEVENT", "Mutant")
    bucket = 7 if kernel.bits == 32 else None
    traces.object(
        event,
        "lsass.exe",
        [
            Event(10, True, numbers[0], 1, b"ObHd"),
            Event(12, False, numbers[1], 2, b"Dflt"),
            Event(15, True, numbers[2], 3, b"Ab\0\0"),
        ],
        bucket=bucket,
    )
    traces.object(mutant, "app.exe", [Event(11, True, numbers[1])], bucket=bucket)
    traces.object(named(kernel, "_KEVENT", "Event"), "none.exe", [], bucket=bucket)
    traces.finish()
    tags = [None] * 4 if name == "vista" else ["ObHd", "Dflt", "Ab", "Dflt"]
    found = {
        process: [node for node in rows(kernel, tmp_path) if node.row["ImageFileName"] == process]
        for process in ("lsass.exe", "app.exe", "none.exe")
    }
    assert [columns(node) for node in found["lsass.exe"]] == [
        ("Event", "Ready", "lsass.exe", "reference", 1, tags[0], 10, ""),
        ("Event", "Ready", "lsass.exe", "dereference", 2, tags[1], 12, ""),
        ("Event", "Ready", "lsass.exe", "reference", 3, tags[2], 15, ""),
    ]
    assert [columns(node) for node in found["app.exe"]] == [
        ("Mutant", None, "app.exe", "reference", 1, tags[3], 11, "")
    ]
    assert [columns(node) for node in found["none.exe"]] == [
        ("Event", None, "none.exe", None, None, None, None, "")
    ]
    assert {node.row["Object"] for node in found["lsass.exe"]} == {grid.masked(event.address)}
    shown = [grid.frames(node) for node in found["lsass.exe"]]
    assert shown == [[grid.masked(frame) for frame in trace] for trace in (first, second, third)]
    child = found["lsass.exe"][1].children[0]
    assert child["Symbol"] == "nt!NtCreateFile+0x10"
    assert (child["Object"], child["Sequence"], child["Count"]) == (grid.masked(event.address), 12, None)


def test_find_selects_events(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    numbers = [traces.stack(trace) for trace in traces_of(kernel)]
    traces.object(named(kernel, "_KEVENT", "Event"), "a.exe", [Event(n, True, n) for n in numbers])
    traces.finish()
    found = rows(kernel, tmp_path, find="nt!ntcreate*")
    assert [node.row["Sequence"] for node in found] == [0, 1]


def test_damage_loses_only_what_is_unreadable(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    kept = traces.stack([kernel.symbol("NtClose")])
    far = traces.stack([kernel.symbol("NtClose")], number=2048)
    events = [named(kernel, "_KEVENT", "Event", f"Event{n}") for n in range(6)]
    # So many events that the array has a page of its own.
    big = [Event(n, True, kept) for n in range(700)]
    traces.object(events[0], "a.exe", big, bucket=1)
    torn = traces.chains[1][0]
    traces.object(events[1], "b.exe", [Event(1, True, far), Event(2, True, 999), Event(3, True, 7000)])
    traces.object(events[2], "c.exe", [Event(1, True, kept)] * 2, capacity=1)
    traces.object(events[3], "d.exe", [Event(1, True, kept)], traced=False)
    cycle = traces.object(events[4], "e.exe", [Event(1, True, kept)], bucket=3)
    lost = traces.object(events[5], "f.exe", [Event(1, True, kept)], bucket=5)
    traces.finish()
    cycle["NextRef"] = cycle
    kernel.space.write_int(traces.table + 5 * 8, kernel.space.reserve(0x1000))
    assert lost.address
    page = (torn.address & ~0xFFF) + 0x1000
    kernel.space.set_state(page, 0x1000, State.PAGEFILE)
    start = torn.address + 0x24
    readable = [n for n in range(700) if start + 12 * n + 12 <= page or start + 12 * n >= page + 0x1000]
    kernel.space.set_state(traces.trace_at(far), 0x80, State.PAGEFILE)
    found = rows(kernel, tmp_path)
    by_process = {
        name: [node for node in found if node.row["ImageFileName"] == f"{name}.exe"] for name in "abcdef"
    }
    a = by_process["a"]
    assert [node.row["Sequence"] for node in a[:-1]] == readable
    assert a[-1].row["Status"] == f"bucket, {700 - len(readable)} events unreadable"
    assert [node.row["Status"] for node in by_process["b"]] == [
        "trace unreadable",
        "",
        "no such trace",
    ]
    assert by_process["b"][1].children == []
    assert [columns(node)[3:] for node in by_process["c"]] == [("reference", 1, "Dflt", 1, "too many events")]
    assert by_process["d"][0].row["Status"] == "no longer traced"
    assert by_process["e"][0].row["Status"] == "bucket"
    rest = [node.row["Status"] for node in found if node.row["ImageFileName"] is None]
    assert sorted(rest) == ["bucket 5 unreadable", "chain leads back"]


@pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
def test_a_chain_in_its_own_events_is_no_more_events(forward: bool, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    event = named(kernel, "_KEVENT", "Event")
    first = traces.object(event, "a.exe", [Event(n, True, 0) for n in range(700)], bucket=1)
    size = kernel.isf.offset("_OBJECT_REF_INFO", "StackInfo")
    step = size + 4 + 12
    forged = [copy.copy(first) for _ in range(60)]
    for number, entry in enumerate(forged):
        entry.address = first.address + step * number
        entry.put(ObjectHeader=header_of(event), NextPos=300, MaxStacks=300)
    if not forward:
        forged.reverse()
    traces.chains[1] = forged
    traces.finish()
    found = rows(kernel, tmp_path)
    # Forward the first one has all events; backward each has what lies before the next one.
    counts = [300, *[0] * 59] if forward else [300, *[1] * 59]
    assert len([node for node in found if node.row["Event"]]) == sum(counts)
    overlapping = [node for node in found if "events overlap" in node.row["Status"]]
    assert len(overlapping) == 59


@pytest.mark.parametrize("kept", (0, 1, 3))
def test_an_array_that_ends_earlier_by_both_of_its_numbers(kept: int, tmp_path: pathlib.Path) -> None:
    """NextPos and MaxStacks are in the same 8 bytes; a full array ends where it says."""
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    trace = traces.stack([1, 2])
    events = [Event(n, True, trace) for n in range(5, 10)]
    cut, full = (named(kernel, "_KEVENT", "Event", name) for name in ("cut", "full"))
    traces.object(cut, "cut.exe", events).put(NextPos=kept, MaxStacks=kept)
    traces.object(full, "full.exe", events, capacity=5)
    traces.finish()
    found = rows(kernel, tmp_path)
    by_name = {
        name: [n.row for n in found if n.row["ImageFileName"] == f"{name}.exe"] for name in ("cut", "full")
    }
    assert [row["Sequence"] for row in by_name["cut"]] == [row["Sequence"] for row in by_name["full"]]
    assert {row["Status"] for row in by_name["cut"]} == {"contradicted: NextPos, contradicted: MaxStacks"}
    assert {row["Status"] for row in by_name["full"]} == {""}


def test_an_array_without_room(tmp_path: pathlib.Path) -> None:
    """A write of 8 bytes also takes the Sequence of the first event: the others are not looked at."""
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    info = traces.object(named(kernel, "_KEVENT", "Event"), "a.exe", [Event(n, True, 0) for n in (5, 6)])
    kernel.space.write(info.at("NextPos"), bytes(8))
    traces.finish()
    node = only(rows(kernel, tmp_path))
    assert (node.row["Event"], node.row["Status"]) == (None, "contradicted: MaxStacks")


def test_the_events_of_an_image_are_limited(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    for name in "abc":
        event = named(kernel, "_KEVENT", "Event", name)
        traces.object(event, f"{name}.exe", [Event(n, True, 0) for n in range(10)], bucket=1)
    traces.finish()
    monkeypatch.setattr(lister, "MAX_EVENTS", 15)
    found = rows(kernel, tmp_path)
    assert [(node.row["ImageFileName"], node.row["Sequence"]) for node in found] == [
        *(("a.exe", number) for number in range(10)),
        *(("b.exe", number) for number in range(5)),
        (None, None),
    ]
    assert "5 events not read" in found[10].row["Status"]
    assert found[-1].row["Status"] == "event limit"


def test_a_stack_table_that_is_gone_takes_the_frames_only(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win7-x64")
    traces = ObjectTraces(kernel)
    traces.object(named(kernel, "_KEVENT", "Event"), "a.exe", [Event(1, True, 0)])
    traces.finish()
    kernel.set("ObpStackTable", 0)
    node = only(rows(kernel, tmp_path))
    assert (node.row["Event"], node.row["Status"], node.children) == ("reference", "no stack table", [])


def test_an_object_that_is_gone(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    traces = ObjectTraces(kernel)
    named(kernel, "_KEVENT", "Event")
    kernel.space.allocate(0x1000)
    gone = named(kernel, "_KEVENT", "Event")
    kernel.space.allocate(0x1000)
    traces.object(gone, "a.exe", [Event(1, True, traces.stack([1]))])
    traces.finish()
    kernel.space.set_state(header_of(gone), 1, State.PAGEFILE)
    node = only(rows(kernel, tmp_path))
    assert (node.row["Object"], node.row["ObjectType"]) == (grid.masked(gone.address), None)
    assert node.row["Status"] == "object unreadable"


def test_a_later_form_is_named_and_not_guessed(tmp_path: pathlib.Path) -> None:
    kernel = other_kernel("win11-x64", as_stackdb)
    kernel.set("ObpObjectTable", kernel.space.allocate(0x1000))
    node = only(rows(kernel, tmp_path))
    assert columns(node) == (None,) * 7 + ("later form (StackDb)",)


def test_the_form_of_xp_is_named(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("xp-x86")
    kernel.set("ObpObjectTable", kernel.space.allocate(0x1000))
    node = only(rows(kernel, tmp_path))
    assert node.row["Status"] == "earlier form"


@pytest.mark.cli
def test_the_command_line_and_an_image_without_traces(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    image = kernel.image()
    symbols = image.install(tmp_path / "symbols")
    result = vol.run(image.save(tmp_path / "a.dmp"), "windows.objecttraces", symbols=symbols)
    assert (result.returncode, result.rows) == (0, [])
    assert "ObTracePoolTags" in result.stderr
    traces = ObjectTraces(kernel)
    trace = traces.stack(traces_of(kernel)[0])
    traces.object(named(kernel, "_KEVENT", "Event"), "a.exe", [Event(1, True, trace)])
    traces.finish()
    image = kernel.image()
    result = vol.run(image.save(tmp_path / "b.dmp"), "windows.objecttraces", symbols=symbols)
    assert result.returncode == 0, result.stderr
    assert [(row["Event"], len(row["__children"])) for row in result.rows] == [("reference", 3)]
