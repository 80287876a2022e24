# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks of callbacks: code to which a timer, DPC, work item or process leads, and no thread's stack."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from tests.forge.callbacks import Callbacks, new_apc, queue_apcs, with_queues
from tests.forge.kernel import Kernel
from tests.forge.pe import RDATA, TEXT, Section
from tests.forge.process import Process
from tests.forge.vad import EXECUTE_READ, READWRITE
from tests.support.findingimages import Row, found
from tests.support.only import only

SORTS = ("timer", "DPC", "work item", "_IO_WORKITEM")
X64 = ("win7-x64", "win10-x64", "win11-x64")
KERNELS = (*X64, "xp-x86", "win10-x86")
FUNCTION = 0x1000
NAMES = ("unbacked", "kernel_no_module", "kernel_unloaded", "not_executable", "section_not_code")


def kernel_of(name: str) -> Tuple[Kernel, int]:
    """A kernel, and the address of a function in the code of a driver."""
    known = with_queues(name)
    kernel = Kernel(known.table, **known.options())
    sections = [Section(".text", 0x1000, 0x1000, TEXT), Section(".rdata", 0x2000, 0x1000, RDATA)]
    return kernel, kernel.module("vendor.sys", sections=sections).base + FUNCTION


def leads(kernel: Kernel, sort: str, address: int) -> None:
    """Lets a callback of a sort lead to an address."""
    made = Callbacks(kernel)
    if sort == "timer":
        made.timer(address)
    elif sort == "DPC":
        made.queued(address)
    elif sort == "work item":
        made.item(address)
    else:
        made.item(kernel.symbol("IopProcessWorkItem"), address)
    made.finish()


def found_by_all(kernel: Kernel) -> List[Row]:
    """The findings of all checks that callbacks have."""
    return [row for row in found(kernel.image()) if row["Finding"] in NAMES]


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_callback_of_a_driver_is_silent(name: str, sort: str) -> None:
    kernel, function = kernel_of(name)
    leads(kernel, sort, function)
    assert found_by_all(kernel) == []


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_callback_in_no_module(name: str, sort: str) -> None:
    """On x64 PatchGuard may be there: it is no more than `medium`."""
    kernel, _ = kernel_of(name)
    pool = kernel.pool.allocate(0x100, b"Evil")
    leads(kernel, sort, pool)
    row = only(found_by_all(kernel))
    assert (row["Finding"], row["Kind"], row["How"]) == ("kernel_no_module", "callback", "awaited")
    assert row["Severity"] == ("medium" if name in X64 else "high")
    assert ("PatchGuard" in row["Innocent"]) == (name in X64)
    owner = sort.replace("_IO_WORKITEM", "work item")
    assert f"; a callback, not a thread, leads there: {owner} 0x" in row["Evidence"]
    assert row["TraceId"].startswith("callback:0:")


@pytest.mark.parametrize("name", KERNELS)
def test_a_callback_where_a_driver_was_unloaded(name: str) -> None:
    kernel, _ = kernel_of(name)
    gone = kernel.base + 0x9000000
    kernel.unloaded("gone.sys", gone, gone + 0x4000)
    leads(kernel, "timer", gone + 0x1000)
    row = only(found_by_all(kernel))
    assert (row["Finding"], row["Severity"]) == ("kernel_unloaded", "high")
    assert row["Symbol"] == "<unloaded:gone>+0x1000"


@pytest.mark.parametrize("name", KERNELS)
def test_a_callback_in_data_of_a_driver(name: str) -> None:
    kernel, function = kernel_of(name)
    leads(kernel, "DPC", function + 0x1000)
    row = only(found_by_all(kernel))
    assert (row["Finding"], row["Severity"]) == ("section_not_code", "high")
    assert row["Evidence"].startswith("section .rdata of vendor.sys is not for code")


@pytest.mark.parametrize("name", KERNELS)
def test_a_callback_of_the_kernel_in_memory_of_a_process(name: str) -> None:
    kernel, _ = kernel_of(name)
    leads(kernel, "work item", 0x20000000)
    row = only(found(kernel.image(), "kernel_no_module"))
    assert (row["Severity"], row["Symbol"].partition(" ")[0]) == ("high", "<user>")


def instrumented(name: str, protection: int, executable: bool, at: int = 0) -> Tuple[Kernel, int]:
    """A process whose system calls return to private memory, by default to its first byte."""
    kernel, _ = kernel_of(name)
    process = kernel.process("app.exe", pid=1000)
    process.module("ntdll.dll", exports={"NtClose": 0x1100})
    base = process.space.reserve(0x1000)
    process.region(base, b"\x90" * 0x100, size=0x1000, protection=protection)
    if not executable:
        process.space.tables.forbid_execution(base)
    path = "Pcb.InstrumentationCallback" if name in X64 else "InstrumentationCallback"
    process.eprocess[path] = base + at
    return kernel, base


@pytest.mark.parametrize("at", [0, 0x40])
@pytest.mark.parametrize("name", [*X64, "win10-x86"])
def test_an_instrumentation_callback_in_private_memory(name: str, at: int) -> None:
    kernel, base = instrumented(name, EXECUTE_READ, True, at)
    row = only(found_by_all(kernel))
    assert (row["Finding"], row["Severity"], row["PID"]) == ("unbacked", "high", 1000)
    assert row["Address"] == base + at
    assert "; a callback, not a thread, leads there: InstrumentationCallback 0x" in row["Evidence"]
    assert f"windows.vadinfo --pid 1000 --address {base + at:#x} --dump" in row["Next"]


@pytest.mark.parametrize("name", X64)
def test_an_instrumentation_callback_that_cannot_be_executed(name: str) -> None:
    kernel, _ = instrumented(name, READWRITE, False)
    row = only(found_by_all(kernel))
    assert (row["Finding"], row["Severity"]) == ("not_executable", "high")


@pytest.mark.parametrize("name", [*X64, "win10-x86"])
def test_an_instrumentation_callback_of_a_module_is_silent(name: str) -> None:
    """Products set one, too."""
    kernel, _ = kernel_of(name)
    process = kernel.process("app.exe", pid=1000)
    base = process.module("product.dll").base
    path = "Pcb.InstrumentationCallback" if name in X64 else "InstrumentationCallback"
    process.eprocess[path] = base + 0x1000
    assert found_by_all(kernel) == []


def of_callbacks(kernel: Kernel) -> List[Row]:
    """The findings about callbacks: the thread has no stack here, which is a finding, too."""
    return [row for row in found_by_all(kernel) if row["Kind"] == "callback"]


def with_thread(name: str) -> Tuple[Kernel, int, Process, int]:
    """A kernel, the address of a function of a driver, a process with a thread, and private code in it."""
    kernel, function = kernel_of(name)
    process = kernel.process("app.exe", pid=1000)
    process.module("ntdll.dll", exports={"NtClose": 0x1100})
    base = process.space.reserve(0x1000)
    process.region(base, b"\x90" * 0x100, size=0x1000, protection=EXECUTE_READ)
    process.thread(1004)
    return kernel, function, process, base


@pytest.mark.parametrize("as_context", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_an_apc_that_leads_to_private_memory(name: str, as_context: bool) -> None:
    """As early-bird injection leaves it in a new process."""
    kernel, function, process, base = with_thread(name)
    module = process.module("app.exe").base + FUNCTION
    routine, called = (module, base + 0x40) if as_context else (base + 0x40, 0)
    queue_apcs(kernel, only(process.threads), [], [new_apc(kernel, function, routine, called)])
    row = only(of_callbacks(kernel))
    assert (row["Finding"], row["Severity"], row["PID"]) == ("unbacked", "high", 1000)
    assert row["Address"] == base + 0x40
    assert "; a callback, not a thread, leads there: APC 0x" in row["Evidence"]


@pytest.mark.parametrize("name", KERNELS)
def test_an_apc_whose_kernel_routine_is_in_no_driver(name: str) -> None:
    kernel, _, process, _ = with_thread(name)
    pool = kernel.space.reserve(0x1000)
    kernel.space.write(pool, b"\x90" * 0x100)
    queue_apcs(kernel, only(process.threads), [new_apc(kernel, pool + 0x10)], [])
    row = only(of_callbacks(kernel))
    assert (row["Finding"], row["PID"], row["Severity"]) == (
        *("kernel_no_module", 0),
        "medium" if name in X64 else "high",
    )
    assert "; a callback, not a thread, leads there: APC 0x" in row["Evidence"]


@pytest.mark.parametrize("name", KERNELS)
def test_apcs_of_modules_are_silent(name: str) -> None:
    kernel, function, process, _ = with_thread(name)
    module = process.module("app.exe").base + FUNCTION
    apcs = [new_apc(kernel, function), new_apc(kernel, function, function)]
    queue_apcs(kernel, only(process.threads), apcs, [new_apc(kernel, function, module, 0x20)])
    assert of_callbacks(kernel) == []


@pytest.mark.parametrize("name", KERNELS)
def test_an_entry_of_the_kernel_callback_table(name: str) -> None:
    kernel, _, process, base = with_thread(name)
    user32, size = process.module("user32.dll").base, process.space.pointer_size
    table = process.space.reserve(0x1000)
    process.region(table, b"", size=0x1000, protection=READWRITE)
    for number in range(100):
        process.space.write_int(table + number * size, base if number == 2 else user32 + FUNCTION, size)
    assert process.peb is not None
    process.peb["KernelCallbackTable"] = table
    row = only(of_callbacks(kernel))
    assert (row["Finding"], row["Severity"], row["PID"], row["Address"]) == ("unbacked", "high", 1000, base)
    assert f"leads there: KernelCallbackTable {table + 2 * size:#x}" in row["Evidence"]
