# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images whose locks, handles and object traces somebody filled with what he liked."""

from __future__ import annotations

import functools
import pathlib
import random
from typing import Any, List, Tuple

import pytest
from volatility3.plugins.windows import handletraces, locks, objecttraces

from tests.forge import context
from tests.forge.handles import OPEN, HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources, Sections
from tests.forge.objecttraces import Event, ObjectTraces
from tests.support import grid, work
from tests.support.tracedkernels import new_kernel, put_database, traces_of

PLUGINS = (locks.Locks, handletraces.HandleTraces, objecttraces.ObjectTraces)
SPOILT = 40
"""Words that are overwritten in each image."""
MOST_CALLS = 2_000_000


def build(name: str) -> Tuple[Kernel, Any, List[Tuple[Any, int, int]]]:
    """An image with all three, and the places (space, start, end) of their structures."""
    kernel = new_kernel(name, 0x6000)
    start = kernel.space.allocate(0x10)
    thread = kernel.system.thread(100)
    indices = put_database(kernel, "5.1" if name == "xp-x86" else "6.1", traces_of(kernel))
    resources = Resources(kernel)
    for index in indices:
        resources.add(index=index, active=4, exclusive=thread, table=[(thread.ethread.address, 1)] * 3)
    resources.link()
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = app.module("ntdll.dll", data=0x2000)
    table = HandleTable(app, level=1)
    for handle in range(4, 64, 4):
        table.add(handle, named(kernel, "_KEVENT", "Event", "Ready", (1000, indices[0])), creator=1)
    table.finish()
    events = Ring(table, 4096 if name == "xp-x86" else 16)
    for handle in range(4, 64, 4):
        events.event(OPEN, handle, 1000, 100, traces_of(kernel)[0])
    if kernel.isf.has_type("_OBJECT_REF_INFO"):
        traces = ObjectTraces(kernel)
        number = traces.stack(traces_of(kernel)[0])
        for place in range(8):
            event = named(kernel, "_KEVENT", "Event")
            traces.object(event, "app.exe", [Event(place, True, number)] * 4)
        traces.finish()
    end = kernel.space.allocate(0x10)
    lower = app.space.allocate(0x10)
    sections = Sections(ntdll, ntdll.base + 0x7100, kernel.bits == 64)
    for _ in range(6):
        sections.add(index=1)
    sections.link()
    upper = app.space.allocate(0x10)
    return kernel, app, [(kernel.space, start, end), (app.space, lower, upper)]


@pytest.mark.parametrize("name", ["xp-x86", "win10-x64"])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_of_it_breaks_or_stalls_a_plugin(name: str, seed: int, tmp_path: pathlib.Path) -> None:
    kernel, _, places = build(name)
    chance = random.Random(seed)
    size = kernel.space.pointer_size
    for _ in range(SPOILT):
        space, start, end = chance.choice(places)
        target = chance.randrange(start, end, size)
        inside = chance.randrange(start, end, size)
        value = chance.choice((0, inside, (1 << 8 * size) - 1, chance.getrandbits(8 * size)))
        if space.holds(target):
            space.write_int(target, value)
    opened = context.open_image(kernel.image(), tmp_path)
    for plugin in PLUGINS:
        found, calls = work.calls(functools.partial(grid.run, opened, plugin))
        assert all(isinstance(node.row["Status"], str) for node in found)
        assert calls < MOST_CALLS


def test_a_search_among_decoys_ends(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64", 0)
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = app.module("ntdll.dll", data=0x100000)
    decoys = range(ntdll.base + 0x7010, ntdll.base + 0x107000, 8)
    app.space.write(decoys[0], b"".join((link - 0x10).to_bytes(8, "little") for link in decoys))
    # The process says that there are locks with debug information.
    section = app.space.allocate(0x10)
    app.space.write_int(section, section)
    assert app.peb is not None
    app.peb["LoaderLock"] = section
    opened = context.open_image(kernel.image(), tmp_path)
    found, calls = work.calls(functools.partial(grid.run, opened, locks.Locks, pid=[1000]))
    assert calls < MOST_CALLS
    assert [node.row["Status"] for node in found] == ["list not found"]
