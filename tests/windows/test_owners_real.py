# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Locks, handle and object traces by the symbol tables of real kernels, and with a database that XP wrote."""

from __future__ import annotations

import pathlib
from typing import List

import pytest
from volatility3.plugins.windows import handletraces, locks, objecttraces

from tests.conftest import SHARED
from tests.forge import context, kernels, real_sets
from tests.forge.handles import CLOSE, OPEN, HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources
from tests.forge.obj import Obj, ring
from tests.forge.objecttraces import Event, ObjectTraces
from tests.support import grid
from tests.support.only import only, rows_of

TABLES = sorted((SHARED / "isf" / "symbols" / "windows").glob("ntkrnl*.pdb/*.json.xz"))


@pytest.mark.shared
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name[:8])
def test_every_real_table_has_what_is_read(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    known = kernels.real(path)
    old = known.table.has_type("_OBJECT_REF_INFO") is False
    kernel = Kernel(known.table, **known.options())
    thread = kernel.system.thread(100)
    resources = Resources(kernel)
    resources.add(active=1, exclusive=thread, contention=3, waiting_shared=2, waiting_exclusive=1)
    resources.add(index=kernel.symbol("NtClose") + 2, active=1, table=[(thread.ethread.address | 3, 5)])
    resources.link()
    app = kernel.process("app.exe", pid=1000)
    table = HandleTable(app, level=1)
    table.add(0x1884, named(kernel, "_KEVENT", "Event", "Ready"), creator=0)
    table.finish()
    events = Ring(table, 4096 if old else 16)
    events.event(CLOSE, 0x1888, 4, 100)
    events.event(OPEN, 0x1884, 1000, 1004, [kernel.symbol("NtClose") + 4])
    if not old:
        traces = ObjectTraces(kernel)
        trace = traces.stack([kernel.symbol("NtClose") + 4])
        traces.object(named(kernel, "_KEVENT", "Event"), "app.exe", [Event(3, True, trace, 2, b"Abcd")])
        traces.finish()
    opened = context.open_image(kernel.image(), tmp_path)

    held, shared = rows_of(2, grid.run(opened, locks.Locks, pid=[0]))
    columns = (
        "OwnerTID",
        "LockCount",
        "ContentionCount",
        "NumberOfWaitingShared",
        "NumberOfWaitingExclusive",
    )
    assert [held.row[column] for column in columns] == [100, 1, 3, 2, 1]
    assert held.row["Status"] == ""
    assert shared.row["Status"] == "address"
    owner, creator = rows_of(2, shared.children)
    columns = ("OwnerRole", "OwnerPID", "OwnerProcess", "OwnerTID", "RecursionCount")
    assert [owner[column] for column in columns] == ["shared owner", 4, "System", 100, 5]
    assert creator["Symbol"] == "nt!NtClose+0x2"

    found = grid.run(opened, handletraces.HandleTraces)
    shown = [(node.row["Handle"], node.row["Event"], node.row["Sequence"]) for node in found]
    assert shown == [(0x1884, "open", 2), (0x1888, "close", 1)]
    assert (found[0].row["ObjectType"], found[0].row["ObjectName"]) == ("Event", "Ready")
    assert found[0].children[0]["Symbol"] == "nt!NtClose+0x4"

    if not old:
        node = only(grid.run(opened, objecttraces.ObjectTraces))
        assert (node.row["Count"], node.row["Tag"], node.row["Sequence"], node.row["Status"]) == (
            2,
            "Abcd",
            3,
            "",
        )
        assert node.children[0]["Symbol"] == "nt!NtClose+0x4"


@pytest.mark.shared
def test_owners_of_a_fast_resource(shared_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = next((shared_dir / "isf" / "symbols" / "windows" / "ntkrnlmp.pdb").glob("5278AFF8*"))
    known = kernels.real(path)
    kernel = Kernel(known.table, **known.options())
    threads = [kernel.system.thread(tid) for tid in (100, 104, 108)]
    resources = Resources(kernel)
    fast = resources.add(active=1)
    head = Obj(kernel.space, kernel.isf, "_FAST_ERESOURCE_INTERNAL", fast.address)
    owners: List[Obj] = []
    for number, thread in enumerate(threads):
        owner = kernel.obj("_FAST_OWNER_ENTRY_INTERNAL")
        owner["ThreadAddress"] = thread.ethread
        owner["CallerExclusive"] = int(number == 1)
        owner["IsWaiting"] = int(number == 2)
        owners.append(owner)
    ring(kernel.space, [head.at("OwnerEntryListHead"), *(owner.at("ListEntry") for owner in owners)])
    resources.link()
    opened = context.open_image(kernel.image(), tmp_path)
    node = only(grid.run(opened, locks.Locks, pid=[0]))
    assert (node.row["LockType"], node.row["OwnerTID"], node.row["Status"]) == ("fast resource", 104, "")
    assert [(row["OwnerRole"], row["OwnerTID"], row["TID"]) for row in node.children] == [
        ("exclusive owner", 104, None),
        ("shared owner", 100, None),
        ("waiter", None, 108),
    ]


@pytest.mark.shared
def test_indices_lead_into_the_database_that_xp_wrote(
    shared_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    real = real_sets.load(shared_dir / "real_std" / "2600.5512-x86-kernel.tar.xz")
    known = kernels.load("xp-x86")
    options = {**known.options(), "nt_global_flag": 0x6000}
    options.pop("base")
    kernel = real_sets.kernel_of(real, known.table, **options)
    entries = real.truth["entries"][::100]
    resources = Resources(kernel)
    for entry in entries:
        resources.add(index=entry["index"])
    resources.link()
    table = HandleTable(kernel.process("app.exe", pid=1000))
    for number, entry in enumerate(entries):
        table.add(4 * number + 4, named(kernel, "_KEVENT", "Event"), creator=entry["index"])
    owned = named(kernel, "_KEVENT", "Event", creator=(1000, entries[3]["index"]))
    table.add(0x700, owned, creator=0)
    table.finish()
    opened = context.open_image(kernel.image(), tmp_path)
    frames = [entry["frames"] for entry in entries]
    found = grid.run(opened, locks.Locks, pid=[0])
    assert [grid.frames(node) for node in found] == frames
    created = grid.run(opened, handletraces.HandleTraces)
    assert [grid.frames(node) for node in created] == [*frames, frames[3]]
    assert created[-1].row["Handle"] is None
    assert created[-1].row["ByPID"] == 1000
