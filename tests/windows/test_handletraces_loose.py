# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Rings of events to which no handle table leads: the kernel's list of big pool blocks still has them."""

from __future__ import annotations

import pathlib
from typing import List, Tuple

import pytest
from volatility3.plugins.windows import handletraces

from tests.forge import context
from tests.forge.handles import OPEN, HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.support import grid
from tests.support.only import only
from tests.support.tracedkernels import KERNELS, new_kernel
from winstacks.handles import rings

SAID = "contradicted: DebugInfo"


def ring_of(kernel: Kernel, pid: int, acting: int, events: int = 3) -> Ring:
    """A process whose handles were traced, and whose table does not say so any more."""
    table = HandleTable(kernel.process("app.exe", pid=pid))
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready"))
    table.finish()
    ring = Ring(table, 4096 if not kernel.isf.has("_HANDLE_TRACE_DEBUG_INFO", "TableSize") else 128)
    for number in range(events):
        ring.event(OPEN, 0x84 + 4 * number, acting, 1004, [kernel.symbol("NtClose") + 4])
    table.obj["DebugInfo"] = 0
    return ring


def shown(kernel: Kernel, folder: pathlib.Path) -> List[Tuple[int, int, str]]:
    opened = context.open_image(kernel.image(), folder)
    rows = [node.row for node in grid.run(opened, handletraces.HandleTraces)]
    return [(row["PID"], row["Sequence"] or 0, row["Status"]) for row in rows]


@pytest.mark.parametrize("name", [name for name, _ in KERNELS])
def test_its_process_has_the_events(name: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel(name, 0)
    ring_of(kernel, 1000, acting=1000)
    kernel.process("other.exe", pid=2000)
    assert shown(kernel, tmp_path) == [
        (1000, 0, SAID),
        (1000, 3, "no longer open"),
        (1000, 2, "no longer open"),
        (1000, 1, ""),
    ]


def test_a_ring_of_no_process_that_is_known(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    ring_of(kernel, 1000, acting=3000)
    found = shown(kernel, tmp_path)
    assert [(pid, sequence) for pid, sequence, _ in found] == [(0, 0), (0, 3), (0, 2), (0, 1)]
    assert found[0][2] == SAID


@pytest.mark.parametrize("what", ["freed", "no size of a ring", "no event", "odd size"])
def test_what_is_no_ring_is_not_taken_for_one(what: str, tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    ring = ring_of(kernel, 1000, acting=1000, events=0 if what == "no event" else 3)
    if what == "no size of a ring":
        ring.info["TableSize"] = 127
    block = only(kernel.pool.big_blocks)
    if what == "freed":
        kernel.pool.big_blocks = [(block[0] | 1, *block[1:])]
    if what == "odd size":
        kernel.pool.big_blocks = [(block[0], 0x20000, block[2])]
    assert shown(kernel, tmp_path) == []


def test_the_events_are_limited(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And said to be."""
    monkeypatch.setattr(rings, "MAX_LOOSE", 128)
    kernel = new_kernel("win10-x64")
    for pid in (1000, 2000):
        ring_of(kernel, pid, acting=pid)
    found = shown(kernel, tmp_path)
    assert found[0] == (0, 0, "event limit")
    assert [pid for pid, _, status_text in found if status_text == SAID] == [1000]


def test_one_ring_under_many_addresses_is_one(tmp_path: pathlib.Path) -> None:
    kernel = new_kernel("win10-x64")
    ring = ring_of(kernel, 1000, acting=1000)
    pages = 1 + ring.size * ring.entry_size // 0x1000
    for number in range(1, 9):
        again = ring.address + number * 0x1000000
        for page in range(pages):
            kernel.space.map_frame(again + page * 0x1000, kernel.space, ring.address + page * 0x1000)
        kernel.pool.big_blocks.append((again, *kernel.pool.big_blocks[0][1:]))
    assert [status_text for _, _, status_text in shown(kernel, tmp_path)].count(SAID) == 1
