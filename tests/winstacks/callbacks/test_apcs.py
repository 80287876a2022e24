# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""APCs that are queued to threads: of forged kernels, and of a running system that nobody here wrote."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest

from tests.forge import context, kernels
from tests.forge.callbacks import new_apc, queue_apcs
from tests.forge.kernel import Kernel
from tests.forge.process import Process
from tests.forge.thread import Thread
from tests.forge.vad import EXECUTE_READ, READWRITE
from tests.support import flattables

KERNELS = ("win7-x64", "win10-x64", "win11-x64", "xp-x86", "win7-x86", "win10-x86")

Row = Dict[str, Any]


class Machine:
    """A kernel with a process of one thread, which has a module and two ranges of private memory."""

    def __init__(self, name: str) -> None:
        known = kernels.load(name)
        self.kernel = Kernel(known.table, **known.options())
        self.driver = self.kernel.module("good.sys").base
        self.process: Process = self.kernel.process("app.exe", pid=1000)
        self.module = self.process.module("app.exe").base
        self.thread: Thread = self.process.thread(1004)
        self.code, self.data = (self._region(each) for each in (EXECUTE_READ, READWRITE))

    def _region(self, protection: int) -> int:
        base = self.process.space.reserve(0x1000)
        self.process.region(base, b"\x90" * 0x100, size=0x1000, protection=protection)
        return base

    def rows(self, folder: pathlib.Path) -> List[Row]:
        return flattables.stacks(context.open_image(self.kernel.image(), folder), kinds=["callback"])


@pytest.fixture(params=KERNELS)
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(request.param)


def said(rows: List[Row]) -> List[Tuple[int, str, str, str]]:
    return [(row["PID"], row["OwnerName"], row["Stack"] or "", row["Status"]) for row in rows]


def test_the_kernel_and_the_process_have_the_routines_of_their_mode(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    kernel, driver, module = machine.kernel, machine.driver, machine.module
    special, normal = new_apc(kernel, driver + 0x1000), new_apc(kernel, driver + 0x1010, driver + 0x1020)
    user = new_apc(kernel, driver + 0x1030, module + 0x1040, machine.data)
    queue_apcs(kernel, machine.thread, [special, normal], [user])
    rows = machine.rows(tmp_path)
    assert said(rows) == [
        (0, "APC", "good+0x1000", ""),
        (0, "APC", "good+0x1020; good+0x1010", ""),
        (0, "APC", "good+0x1030", ""),
        (1000, "APC", "app+0x1040", ""),
    ]
    mask = (1 << min(kernel.bits, 48)) - 1
    assert [int(row["Owner"], 16) & mask for row in rows] == [
        apc.address & mask for apc in (special, normal, user, user)
    ]


def test_a_context_that_leads_to_code_is_called_by_the_routine(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    """As QueueUserAPC gives it."""
    user = new_apc(machine.kernel, machine.driver + 0x1000, machine.module + 0x1040, machine.code + 0x10)
    queue_apcs(machine.kernel, machine.thread, [], [user])
    frames = flattables.frames(context.open_image(machine.kernel.image(), tmp_path), kinds=["callback"])
    mine = [frame for frame in frames if frame["PID"] == 1000]
    assert [int(frame["Address"], 16) for frame in mine] == [machine.code + 0x10, machine.module + 0x1040]
    assert {frame["How"] for frame in mine} == {"awaited"}


def test_a_thread_without_apcs_has_no_row(machine: Machine, tmp_path: pathlib.Path) -> None:
    queue_apcs(machine.kernel, machine.thread, [], [])
    assert machine.rows(tmp_path) == []


@pytest.mark.parametrize("member", ["Type", "KernelRoutine"])
def test_what_is_no_apc_is_counted(machine: Machine, member: str, tmp_path: pathlib.Path) -> None:
    user = new_apc(machine.kernel, machine.driver + 0x1000, machine.module + 0x1040)
    user[member] = 0
    queue_apcs(machine.kernel, machine.thread, [], [user])
    lost = "1 callbacks unreadable"
    expected = (1000, "APC", "", lost) if member == "Type" else (1000, "APC", "app+0x1040", "")
    assert said(machine.rows(tmp_path)) == [(0, "APC", "", lost), expected]


def test_one_write_to_a_head_is_told(machine: Machine, tmp_path: pathlib.Path) -> None:
    kernel = machine.kernel
    user = new_apc(kernel, machine.driver + 0x1000, machine.module + 0x1040)
    queue_apcs(kernel, machine.thread, [], [user])
    size = kernel.space.pointer_size
    kernel.space.write_int(machine.thread.kthread.at("ApcState.ApcListHead") + 2 * size, 0x41414141)
    assert said(machine.rows(tmp_path)) == [
        (0, "APC", "good+0x1000", ""),
        (0, "APC", "", "list damaged"),
        (1000, "APC", "app+0x1040", ""),
        (1000, "APC", "", "list damaged"),
    ]


def test_a_head_that_was_set_to_zero_is_told(machine: Machine, tmp_path: pathlib.Path) -> None:
    """Windows sets up both lists of each thread."""
    kernel = machine.kernel
    user = new_apc(kernel, machine.driver + 0x1000, machine.module + 0x1040)
    queue_apcs(kernel, machine.thread, [], [user])
    size = kernel.space.pointer_size
    kernel.space.write(machine.thread.kthread.at("ApcState.ApcListHead") + 2 * size, bytes(2 * size))
    assert said(machine.rows(tmp_path)) == [(0, "APC", "", "list broken"), (1000, "APC", "", "list broken")]


@pytest.mark.parametrize("name", [name for name in KERNELS if name.endswith("x64")])
def test_a_routine_that_windows_has_encoded_is_no_address(name: str, tmp_path: pathlib.Path) -> None:
    """The routine of 32-bit code may be encoded so. The kernel's own one is known all the same."""
    machine = Machine(name)
    encoded = -(0x401000 << 2) & (1 << 64) - 1
    user = new_apc(machine.kernel, machine.driver + 0x1000, encoded, machine.data)
    queue_apcs(machine.kernel, machine.thread, [], [user])
    assert said(machine.rows(tmp_path)) == [(0, "APC", "good+0x1000", "")]
