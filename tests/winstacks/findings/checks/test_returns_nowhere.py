# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The checks of stacks that lead nowhere, and of stack pointers that are elsewhere."""

from __future__ import annotations

import pytest

from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.machines import afterwards
from tests.machines.programs import own_stack
from tests.support.clean.host64 import Host64
from tests.support.findingimages import answered, found
from tests.support.only import only

KERNEL = "win10-x64"
NOWHERE, PIVOT = "returns_nowhere", "stack_pivot"
WAIT_EX = "kernelbase!WaitForSingleObjectEx"
UNMAPPED = 0x6F0000001000
VENDOR = "C:\\Program Files\\Vendor"


def test_a_return_to_no_memory() -> None:
    host = Host64(KERNEL)
    process = afterwards.returns_to(UNMAPPED)(host)
    row = only(found(host.kernel.image(), NOWHERE))
    assert (row["Severity"], row["PID"], row["Frame"]) == ("medium", process.pid, 1)
    assert row["Symbol"] == "kernelbase!WaitForSingleObjectEx+0x20"
    assert row["Evidence"].startswith("the function of frame 1, Sp 0x")


def test_a_return_to_code_that_is_not_in_the_image() -> None:
    """Memory is there by its VAD: nothing was written."""
    host = Host64(KERNEL)
    program = host.program("app.exe", functions="main Work")
    program.waits("main", "Work", WAIT_EX)
    image = host.kernel.image()
    module = program.modules[""][0]
    assert module.section is not None
    program.process.space.set_state(module.base + 0x1000, PAGE, State.MISSING)
    module.section.set_state(0x1000, PAGE, State.MISSING)
    assert found(image, NOWHERE) == []


def test_a_runtime_that_switches_stacks() -> None:
    host = Host64(KERNEL)
    process = afterwards.returns_to(UNMAPPED)(host)
    program = next(program for program in host.programs if program.process is process)
    program.load("lua51.dll")
    row = only(found(host.kernel.image(), NOWHERE))
    assert (row["Severity"], row["Innocent"]) == ("low", "lua51.dll: a runtime that switches stacks")


@pytest.mark.parametrize(("folder", "severity"), [("", "medium"), (VENDOR, "low")])
def test_a_stack_pointer_outside_the_limits(folder: str, severity: str) -> None:
    """Of Windows' own programs, and of one that may have coroutines."""
    host = Host64(KERNEL)
    program = host.program("app.exe", functions="main Work", folder=folder)
    stack = program.process.space.reserve(0x4000)
    program.process.region(stack, size=0x4000)
    program.waits("main", "Work", WAIT_EX, base=stack + 0x4000)
    row = only(found(host.kernel.image(), PIVOT))
    assert (row["Severity"], row["Frame"]) == (severity, 0)
    assert f"in {stack:#x}-{stack + 0x3FFF:#x} PAGE_READWRITE, the TEB says 0x" in row["Evidence"]


def test_a_coroutine_that_writes_its_limits() -> None:
    host = Host64(KERNEL)
    own_stack(host, "app.exe", "finish")
    assert found(host.kernel.image(), PIVOT) == []


def test_limits_that_are_not_in_the_image() -> None:
    """The same stack pointer, and no TEB that says anything."""
    host = Host64(KERNEL)
    process = afterwards.pivoted(host)
    image = host.kernel.image()
    for thread in process.threads:
        assert thread.teb is not None
        process.space.set_state(thread.teb.address & ~(PAGE - 1), PAGE, State.MISSING)
    assert found(image, PIVOT) == []


@pytest.mark.parametrize("another", [True, False])
def test_a_teb_that_is_not_the_threads_own(another: bool) -> None:
    """KTHREAD.Teb leads to the TEB of another thread, or to other memory: its limits are not compared."""
    host = Host64(KERNEL)
    program = host.program("app.exe", functions="main Work")
    for _ in range(2):
        program.waits("main", "Work", WAIT_EX)
    image = host.kernel.image()
    assert answered(image, check=[PIVOT]) == []
    first, second = program.process.threads
    assert second.teb is not None
    first.kthread["Teb"] = second.teb.address if another else second.teb.address - 8
    row = only(answered(image, check=[PIVOT]))
    assert (row["Severity"], row["Status"]) == (None, "not checked")
    assert row["Evidence"] == "KTHREAD.Teb leads to no TEB of the thread: app.exe"
