# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Callbacks of forged kernels, and the row for a list that is damaged."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterator, List, Tuple

import pytest
from volatility3.plugins.windows import timers

from tests.forge import callbacks, context
from tests.forge.callbacks import Callbacks, with_queues
from tests.forge.kernel import Kernel
from tests.forge.phys import PAGE
from tests.support import flattables, grid
from tests.support.only import only
from winstacks.callbacks.callback import is_unused

X64 = ("win7-x64", "win10-x64", "win11-x64")
WITH_TIMERS = (*X64, "xp-x86", "win10-x86")
ALL = (*WITH_TIMERS, "win7-x86")

Row = Dict[str, Any]


class Machine:
    """A kernel with two processors and a driver whose functions are callbacks."""

    def __init__(self, name: str, form: Tuple[int, int, int] = (0, 8, 256)) -> None:
        known = with_queues(name)
        self.kernel = Kernel(known.table, **known.options(), cpus=2)
        self.driver = self.kernel.module("good.sys").base
        self.callbacks = Callbacks(self.kernel, form)

    def rows(self, folder: pathlib.Path, kind: str = "callback") -> List[Row]:
        """The rows of windows.traces of callbacks."""
        self.callbacks.finish()
        return self.opened(folder, kind)

    def opened(self, folder: pathlib.Path, kind: str = "callback") -> List[Row]:
        return flattables.stacks(context.open_image(self.kernel.image(), folder), kinds=[kind])


def said(rows: List[Row]) -> List[Tuple[str, str, str]]:
    """The sort, stack and status of each row."""
    return [(row["OwnerName"], row["Stack"] or "", row["Status"]) for row in rows]


@pytest.fixture(params=ALL)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    yield Machine(request.param)


def test_each_sort_is_listed(machine: Machine, tmp_path: pathlib.Path) -> None:
    made, expected = machine.callbacks, []
    if made.heads:
        for number, head in enumerate((0, -1)):
            made.timer(machine.driver + 0x1000 + number, head)
            expected.append(("timer", f"good+{0x1000 + number:#x}", ""))
        made.timer(None)
    for number in range(2):
        made.queued(machine.driver + 0x1010 + number)
        expected.append(("DPC", f"good+{0x1010 + number:#x}", ""))
    worker = machine.kernel.symbol("IopProcessWorkItem")
    made.item(worker, machine.driver + 0x1020)
    expected.append(("work item", "good+0x1020; nt!IopProcessWorkItem", ""))
    rows = machine.rows(tmp_path)
    assert said(rows) == expected
    assert len({row["TraceId"] for row in rows}) == len(rows)
    assert {(row["Kind"], row["PID"], row["Count"], row["KeyQuality"]) for row in rows} == {
        ("callback", 0, 1, "exact")
    }


def test_a_work_item_of_a_driver_has_its_own_routine(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.callbacks.item(machine.driver + 0x1020)
    assert said(machine.rows(tmp_path)) == [("work item", "good+0x1020", "")]


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("xp-x86", "win7-x86")])
def test_a_process_has_an_instrumentation_callback(name: str, tmp_path: pathlib.Path) -> None:
    machine = Machine(name)
    process = machine.kernel.process("app.exe", pid=1000)
    module = process.module("app.exe")
    path = "Pcb.InstrumentationCallback" if name in X64 else "InstrumentationCallback"
    process.eprocess[path] = module.base + 0x1000
    machine.kernel.process("other.exe", pid=1004)
    row = only(machine.rows(tmp_path))
    assert (row["PID"], row["OwnerName"], row["Stack"]) == (1000, "InstrumentationCallback", "app+0x1000")


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64", "xp-x86"])
def test_timers_are_those_of_volatility(name: str, tmp_path: pathlib.Path) -> None:
    """Its plugin decodes pointers by code of its own."""
    machine = Machine(name)
    for number in range(20):
        machine.callbacks.timer(machine.driver + 0x1000 + 0x10 * number, 11 * number)
    machine.callbacks.finish()
    opened = context.open_image(machine.kernel.image(), tmp_path)
    mask = (1 << machine.kernel.bits) - 1 if machine.kernel.bits == 32 else (1 << 48) - 1
    theirs = {
        (row["Offset"] & mask, row["Routine"] & mask)
        for row in (node.row for node in grid.run(opened, timers.Timers))
    }
    frames = flattables.frames(opened, kinds=["callback"])
    owners = {row["TraceId"]: int(row["Owner"], 16) for row in flattables.stacks(opened, kinds=["callback"])}
    assert {(owners[row["TraceId"]], int(row["Address"], 16) & mask) for row in frames} == theirs
    assert len(theirs) == 20


@pytest.mark.parametrize("form", [(0, 8, 512), (0, 0x10, 256)])
def test_the_form_of_the_one_table_is_found(form: Tuple[int, int, int], tmp_path: pathlib.Path) -> None:
    machine = Machine("xp-x86", form)
    for head in (0, form[2] // 2 + 1, form[2] - 1):
        machine.callbacks.timer(machine.driver + 0x1000, head)
    assert said(machine.rows(tmp_path)) == [("timer", "good+0x1000", "")] * 3


def test_a_kernel_that_never_set_up_its_lists_has_no_callbacks(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    assert machine.opened(tmp_path) == []


@pytest.mark.parametrize("name", WITH_TIMERS)
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("value", [0, 0x4141414141414141])
def test_one_write_to_a_head_is_told(name: str, used: bool, value: int, tmp_path: pathlib.Path) -> None:
    """Whether the list has a timer or is empty. Eight bytes are both links on x86."""
    machine = Machine(name)
    machine.callbacks.timer(machine.driver + 0x1000)
    machine.callbacks.finish()
    head = machine.callbacks.heads[7 if used else 9]
    machine.kernel.space.write_int(head, value, 8)
    told = said(machine.opened(tmp_path))
    assert told[-1][:2] == ("timer", "") and told[-1][2] in ("list broken", "list damaged")
    assert len(told) == 1 + (not used or machine.kernel.bits == 64)


@pytest.mark.parametrize("name", WITH_TIMERS)
@pytest.mark.parametrize(
    ("member", "status"),
    [("Dpc", "1 callbacks unreadable"), ("Header.Type", "contradicted: Header.Type")],
)
def test_one_write_to_a_timer_is_told(name: str, member: str, status: str, tmp_path: pathlib.Path) -> None:
    machine = Machine(name)
    machine.callbacks.timer(machine.driver + 0x1000)
    timer = machine.callbacks.timer(machine.driver + 0x1010)
    timer[member] = 0x41
    stack = "good+0x1010" if member == "Header.Type" else ""
    rows = said(machine.rows(tmp_path))
    assert sorted(rows) == sorted([("timer", "good+0x1000", ""), ("timer", stack, status)])


def test_only_zeros_are_lists_that_are_not_used() -> None:
    assert is_unused([(0, 0), None, (0, 0)])
    assert not is_unused([(0, 0), (0, 8)])


@pytest.mark.parametrize("name", ALL)
def test_a_queue_that_lost_its_dpcs_is_told(name: str, tmp_path: pathlib.Path) -> None:
    machine = Machine(name)
    dpc = machine.callbacks.queued(machine.driver + 0x1000)
    machine.callbacks.queued(machine.driver + 0x1010)
    machine.callbacks.finish()
    machine.kernel.space.write_int(dpc.at("DpcListEntry"), 0)
    told = said(machine.opened(tmp_path))
    assert told[-1][2] in ("contradicted: DpcQueueDepth", "list damaged")


@pytest.mark.parametrize("name", ["win10-x64", "win10-x86"])
def test_a_single_list_that_leads_back_ends(name: str, tmp_path: pathlib.Path) -> None:
    machine = Machine(name)
    dpc = machine.callbacks.queued(machine.driver + 0x1000)
    machine.callbacks.finish()
    machine.kernel.space.write_int(dpc.at("DpcListEntry"), dpc.at("DpcListEntry"))
    assert said(machine.opened(tmp_path)) == [("DPC", "good+0x1000", ""), ("DPC", "", "list broken")]


def test_a_list_of_work_items_that_leads_nowhere_is_told(machine: Machine, tmp_path: pathlib.Path) -> None:
    item = machine.callbacks.item(machine.driver + 0x1000)
    for end in (0, machine.kernel.space.pointer_size):
        machine.kernel.space.write_int(item.at("WorkItem.List") + end, 0x41414140)
    assert said(machine.rows(tmp_path)) == [("work item", "", "list broken")]


@pytest.mark.parametrize("name", X64)
def test_missing_pages_are_told(name: str, tmp_path: pathlib.Path) -> None:
    """The page of a DPC, and a page of the table."""
    machine = Machine(name)
    timer = machine.callbacks.timer(machine.driver + 0x1000, 3)
    far = machine.kernel.space.reserve(PAGE)
    timer["Dpc"] = callbacks.encoded(far, timer.address)
    machine.callbacks.finish()
    assert said(machine.opened(tmp_path)) == [("timer", "", "1 callbacks unreadable")]


def test_rows_are_bounded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("winstacks.callbacks.callback.MAX_CALLBACKS", 5)
    machine = Machine("win10-x64")
    for number in range(8):
        machine.callbacks.timer(machine.driver + 0x1000 + number)
    told = said(machine.rows(tmp_path))
    assert [stack for _, stack, _ in told[:5]] == [f"good+{0x1000 + number:#x}" for number in range(5)]
    assert told[5:] == [("timer", "", "limit")]
