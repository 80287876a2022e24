# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks of the kernel: code in no module, in one that is gone, and what the lists leave out."""

from __future__ import annotations

import dataclasses
from typing import List, Tuple

import pytest

from tests.forge import kernels
from tests.forge.handles import HandleTable
from tests.forge.kernel import Kernel
from tests.forge.obj import filetime, ring
from tests.forge.paging import State
from tests.forge.process import Process
from tests.forge.stacks64 import Stack64
from tests.forge.thread import Thread
from tests.support.clean.host64 import WAITING, Host64
from tests.support.findingimages import ALL, TID, X64, FindingImage, answered, found, severities
from tests.support.only import only
from tests.support.tracedkernels import new_kernel, put_database, traces_of
from winstacks.findings.checks import hidden, kernel_no_module
from winstacks.findings.finding import NONE_KNOWN

NO_MODULE, UNLOADED, HIDDEN, START = "kernel_no_module", "kernel_unloaded", "hidden", "start_mismatch"
AWAY = 0x9000000
"""Where no module is, behind the kernel's base."""


def recorded(name: str, *addresses: int, gone: bool = False) -> Kernel:
    """A kernel whose database has one trace, of addresses behind its base."""
    kernel = new_kernel(name)
    if gone:
        kernel.unloaded("gone.sys", kernel.base + AWAY, kernel.base + AWAY + 0x4000)
    put_database(kernel, "6.1", [tuple(kernel.base + address for address in addresses)])
    return kernel


@pytest.mark.parametrize("name", X64)
def test_a_thread_that_returns_to_no_module(name: str) -> None:
    forged = FindingImage(name)
    address = forged.kernel.base + AWAY + 0x105
    forged.kernel.space.map(address, 0x100)
    forged.kernel.space.write(address - 5, b"\xe8\0\0\0\0")
    forged.kernel_returns_to(address)
    row = only(found(forged.image(), NO_MODULE))
    assert (row["Severity"], row["Confidence"], row["How"], row["Kind"]) == (
        "high",
        "likely",
        "unwind",
        "kernel",
    )
    assert row["Symbol"] == "<no-module>"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("where", ["no module", "no module alone", "ntoskrnl", "message"])
def test_a_thread_of_the_kernel_that_was_started_in_no_module(name: str, where: str) -> None:
    """Win32StartAddress may be 0, as in ReactOS; before Vista the ID of a message may stand in its place."""
    forged = FindingImage(name)
    start = forged.kernel.base + (0x1000 if where == "ntoskrnl" else AWAY)
    forged.thread.ethread["StartAddress"] = forged.kernel.base + 0x1000 if where == "message" else start
    forged.thread.ethread["Win32StartAddress"] = 0 if where == "no module alone" else start
    rows = found(forged.image(), START)
    if not where.startswith("no module"):
        assert rows == []
        return
    row = only(rows)
    assert (row["Severity"], row["Confidence"], row["TID"], row["Kind"]) == (
        "medium",
        "likely",
        TID,
        "kernel",
    )
    assert (row["Address"], row["Symbol"]) == (start % (1 << 48), "<no-module>")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("is_damaged", "severity"), [(False, "medium"), (True, "low")])
def test_a_thread_that_a_driver_off_the_list_of_modules_started(
    name: str, is_damaged: bool, severity: str
) -> None:
    forged = FindingImage(name)
    driver = forged.kernel.module("rootkit.sys", listed=False)
    forged.thread.ethread["StartAddress"] = driver.base + 0x1105
    image = forged.image()
    if is_damaged:
        head = forged.kernel.symbol("PsLoadedModuleList")
        forged.kernel.space.write_int(head, 0, forged.kernel.bits // 8)
    row = only(found(image, START))
    assert (row["Severity"], row["Confidence"], row["Symbol"]) == (severity, "possible", "rootkit+0x1105")
    assert ("the damaged list of modules" in row["Innocent"]) == is_damaged


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("address", [0xFFFFFFFFFFFFFFF7, 0xFFFFF80055555555])
def test_a_kernel_address_on_a_user_stack_is_no_call_by_the_kernel(name: str, address: int) -> None:
    forged = FindingImage(name)
    forged.returns_to(address)
    image = forged.image()
    assert found(image, NO_MODULE) == found(image, UNLOADED) == []


@pytest.mark.parametrize("name", X64)
def test_a_thread_that_returns_to_where_no_call_is(name: str) -> None:
    """Code that pushes an address and jumps."""
    forged = FindingImage(name)
    address = forged.kernel.base + AWAY + 0x105
    forged.kernel.space.map(address, 0x100)
    forged.kernel_returns_to(address)
    row = only(found(forged.image(), NO_MODULE))
    assert (row["Severity"], row["How"]) == ("high", "unwind")


HYPER_V = bytes.fromhex(
    "0f01c1c3 8bc8b811000000 0f01c1c3 488bc148c7c111000000 0f01c1c3"
    "8bc8b812000000 0f01c1c3 488bc148c7c112000000 0f01c1c3"
)
"""The calls in Hyper-V's page: a hypercall, calls and returns between virtual trust levels."""


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        (HYPER_V, "low"),
        (b"\x0f\x01\xd9\xc3", "low"),
        (HYPER_V + b"\x48\x31\xc0\xc3", "high"),
        (b"\x0f\x01\xc1\xc3\x48\x83\xec\x28\xff\xd0", "high"),
        (b"\x55\x0f\x01\xc1\xc3", "high"),
        (b"\x0f\x01\xc1\xc3\x8b\xc8\xb8\x13\0\0\0\x0f\x01\xc1\xc3", "high"),
    ],
)
def test_all_bytes_of_the_page_decide(code: bytes, severity: str) -> None:
    """Code that only has such a call in it is none of the hypervisor's."""
    forged = FindingImage("win10-x64")
    page = forged.kernel.base + AWAY
    forged.kernel.space.map(page, 0x1000)
    forged.kernel.space.write(page, code.ljust(0x1000, b"\x90"))
    forged.kernel_returns_to(page + 3)
    assert severities(forged.image(), NO_MODULE) == [severity]


def on_a_thread_of_the_kernel(*functions: str) -> Host64:
    """A machine whose kernel has a thread in code of no module, which functions of the kernel called."""
    host = Host64("win10-x64")
    page = host.kernel.space.reserve(0x2000)
    host.kernel.space.write(page, (b"\xcc" * 0xB + b"\xe8\0\0\0\0") * 0x100)
    thread = host.kernel.system.thread(host.number(), teb=False)
    stack = Stack64(host.kernel.space, thread.stack_base).start()
    host.descend(stack, ("KiStartSystemThread", "PspSystemThreadStartup", *functions))
    routine = dataclasses.replace(host.frame("KeBalanceSetManager")[1], rva=0x100)
    stack.enter(page, routine)
    stack.call(page, routine)
    host.switch_out(thread, stack, WAITING)
    return host


@pytest.mark.parametrize(
    ("functions", "severity"),
    [(("ExpWorkerThread",), "medium"), ((), "high"), (("KeBalanceSetManager",), "high")],
)
def test_patchguard_has_a_text_of_its_own(functions: Tuple[str, ...], severity: str) -> None:
    """It runs on a worker thread from pool, as a rootkit's work item does."""
    host = on_a_thread_of_the_kernel(*functions)
    row = only(found(host.kernel.image(), NO_MODULE))
    assert row["Severity"] == severity
    assert row["Innocent"].startswith("PatchGuard (Kernel Patch Protection)") == (severity == "medium")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("more", "severity"), [(b"", "low"), (b"\x48\x8b\xc1", "high")])
def test_a_page_with_a_hypervisors_calls(name: str, more: bytes, severity: str) -> None:
    """The page is the hypervisor's if it has nothing else."""
    forged = FindingImage(name)
    page = forged.kernel.base + AWAY
    forged.kernel.space.map(page, 0x1000)
    forged.kernel.space.write(page, b"\x0f\x01\xc1\xc3".ljust(0x1000, b"\x90"))
    forged.kernel.space.write(page + 0x200, more)
    forged.kernel_returns_to(page + 3)
    row = only(found(forged.image(), NO_MODULE))
    assert row["Severity"] == severity
    assert row["Innocent"].startswith("the hypervisor's call page") == (severity == "low")


@pytest.mark.parametrize(
    ("code", "state", "severity"),
    [
        (HYPER_V, State.VALID, "low"),
        (b"\x0f\x01\xc1\xc3\x48\x8b\xc1\x55", State.VALID, "medium"),
        (b"", State.MISSING, "low"),
    ],
)
def test_the_page_to_which_the_kernels_variable_leads(
    code: bytes, state: State, severity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the page decide, and the variable where the page is not in the image."""
    monkeypatch.setattr(kernel_no_module, "CALL_PAGE", "KdDebuggerDataBlock")
    forged = FindingImage("win10-x64")
    page = forged.kernel.base + AWAY
    forged.kernel.space.map(page, 0x1000)
    forged.kernel.space.write(page, code)
    forged.kernel.space.write_int(forged.kernel.symbol("KdDebuggerDataBlock"), page, 8)
    forged.kernel_returns_to(page + 3)
    image = forged.image()
    forged.kernel.space.set_state(page, 0x1000, state)
    assert severities(image, NO_MODULE) == [severity]


@pytest.mark.parametrize("name", ALL)
def test_a_recorded_caller_in_no_module(name: str) -> None:
    """All traces of one region are one finding."""
    kernel = recorded(name, AWAY + 0x105, AWAY + 0x205)
    row = only(found(kernel.image(), NO_MODULE))
    assert (row["Severity"], row["Confidence"], row["PID"], row["Process"]) == ("high", "likely", 0, "nt")


@pytest.mark.parametrize("name", ALL)
def test_callers_in_modules_are_silent(name: str) -> None:
    kernel = new_kernel(name)
    put_database(kernel, "6.1", traces_of(kernel))
    kernel.module("tcpip.sys")
    assert found(kernel.image(), NO_MODULE) == found(kernel.image(), UNLOADED) == []


@pytest.mark.parametrize("name", ALL)
def test_a_damaged_list_of_modules_makes_it_low(name: str) -> None:
    kernel = recorded(name, AWAY + 0x105)
    kernel.module("tcpip.sys")
    image = kernel.image()
    kernel.space.write_int(kernel.symbol("PsLoadedModuleList"), 0, kernel.bits // 8)
    row = only(found(image, NO_MODULE))
    assert (row["Severity"], row["Confidence"]) == ("low", "possible")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("is_damaged", "severity"), [(False, "medium"), (True, "low")])
def test_a_driver_that_was_taken_off_the_list_of_modules(name: str, is_damaged: bool, severity: str) -> None:
    """Its headers are in memory; a list that ends early may have had it."""
    kernel = new_kernel(name)
    driver = kernel.module("rootkit.sys", listed=False)
    put_database(kernel, "6.1", [(driver.base + 0x1105,)])
    image = kernel.image()
    if is_damaged:
        kernel.space.write_int(kernel.symbol("PsLoadedModuleList"), 0, kernel.bits // 8)
    row = only(found(image, NO_MODULE))
    assert (row["Severity"], row["Confidence"], row["Symbol"]) == (severity, "possible", "rootkit+0x1105")
    assert ("the damaged list of modules" in row["Innocent"]) == is_damaged


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("lost", "severity"), [(False, "medium"), (True, "low")])
def test_a_written_list_of_unloaded_drivers_makes_it_medium(name: str, lost: bool, severity: str) -> None:
    """An address that no driver can have was written; a page that is not in the image proves nothing."""
    kernel = recorded(name, AWAY + 0x105)
    kernel.unloaded("gone.sys", kernel.base + 2 * AWAY, kernel.base + 2 * AWAY + 0x4000)
    image, width = kernel.image(), kernel.bits // 8
    array = kernel.space.read_int(kernel.symbol("MmUnloadedDrivers"), width)
    if lost:
        kernel.space.set_state(array & ~0xFFF, 0x1000, State.MISSING)
    else:
        kernel.space.write_int(array + 2 * width, 0x41414141, width)
    row = only(found(image, NO_MODULE))
    assert (row["Severity"], row["Confidence"]) == (severity, "possible")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("is_mapped", "severity"), [(False, "low"), (True, "medium")])
def test_a_recorded_caller_in_an_unloaded_driver(name: str, is_mapped: bool, severity: str) -> None:
    kernel = recorded(name, AWAY + 0x105, gone=True)
    if is_mapped:
        kernel.space.map(kernel.base + AWAY, 0x1000)
    row = only(found(kernel.image(), UNLOADED))
    assert (row["Severity"], row["Symbol"]) == (severity, "<unloaded:gone>+0x105")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("is_mapped", "severity"), [(False, "low"), (True, "high")])
def test_a_thread_that_returns_to_an_unloaded_driver(name: str, is_mapped: bool, severity: str) -> None:
    """Memory that is gone proves no caller."""
    forged = FindingImage(name)
    base = forged.kernel.base + AWAY
    forged.kernel.unloaded("gone.sys", base, base + 0x4000)
    if is_mapped:
        forged.kernel.space.map(base, 0x1000)
    forged.kernel_returns_to(base + 0x105)
    row = only(found(forged.image(), UNLOADED))
    assert (row["Severity"], row["How"]) == (severity, "unwind")


def processes(name: str) -> Kernel:
    """Three processes, and a thread in the one in the middle."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    for pid in (1000, 1008, 1016):
        app = kernel.process(f"app{pid}.exe", pid=pid)
        app.module("ntdll.dll")
    return kernel


def process_of(kernel: Kernel, pid: int) -> Process:
    return next(process for process in kernel.processes if process.pid == pid)


def apart(kernel: Kernel, process: Process, first: int) -> List[Thread]:
    """Adds five threads whose structures share no page, with IDs from `first` on."""
    threads = []
    for tid in range(first, first + 20, 4):
        kernel.space.allocate(0x3000)
        threads.append(process.thread(tid))
    return threads


def unlink(kernel: Kernel, links: int) -> None:
    """Takes an entry off its list."""
    size = kernel.bits // 8
    ahead, behind = (kernel.space.read_int(links + offset, size) for offset in (0, size))
    kernel.space.write_int(behind, ahead, size)
    kernel.space.write_int(ahead + size, behind, size)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("threads", "severity"), [(True, "high"), (False, "low")])
def test_a_process_that_its_list_lacks(name: str, threads: bool, severity: str) -> None:
    """One without a thread is being made or taken apart."""
    kernel = processes(name)
    hidden = process_of(kernel, 1008)
    if threads:
        hidden.thread(1012)
    image = kernel.image()
    unlink(kernel, hidden.eprocess.at("ActiveProcessLinks"))
    row = only(found(image, HIDDEN))
    assert (row["Severity"], row["PID"], row["Process"]) == (severity, 1008, "app1008.exe")
    assert "found by PspCidTable" in row["Evidence"]
    assert (row["Innocent"] == NONE_KNOWN) == threads


@pytest.mark.parametrize("name", ("xp-x86", "win10-x64"))
def test_a_process_that_the_list_did_not_have_yet(name: str) -> None:
    """The image has the end of the list as it was before the process was created."""
    kernel = processes(name)
    new = process_of(kernel, 1016)
    new.thread(1020)
    image = kernel.image()
    unlink(kernel, new.eprocess.at("ActiveProcessLinks"))
    row = only(found(image, HIDDEN))
    assert (row["Severity"], row["PID"]) == ("high", 1016)
    assert row["Innocent"] == "no listed process is newer: it may have been created while the image was taken"


def test_a_process_without_a_known_time_is_not_called_the_newest() -> None:
    """The time of its creation is not in the image."""
    kernel = processes("win10-x64")
    hidden = process_of(kernel, 1008)
    hidden.thread(1012)
    image = kernel.image()
    unlink(kernel, hidden.eprocess.at("ActiveProcessLinks"))
    kernel.space.write_int(hidden.eprocess.at("CreateTime.QuadPart"), 0, 8)
    assert only(found(image, HIDDEN))["Innocent"] == NONE_KNOWN


@pytest.mark.parametrize("name", ["win7-x86", "win11-x64"])
@pytest.mark.parametrize(("state", "expected"), [(5, ["medium"]), (4, [])])
def test_an_unlisted_process_whose_exit_time_was_written(name: str, state: int, expected: List[str]) -> None:
    """Threads that have not ended say that the process has not."""
    kernel = processes(name)
    hidden = process_of(kernel, 1008)
    hidden.thread(1012, state=state)
    hidden.eprocess["ExitTime.QuadPart"] = filetime(seconds=3600)
    image = kernel.image()
    unlink(kernel, hidden.eprocess.at("ActiveProcessLinks"))
    rows = found(image, HIDDEN)
    assert [row["Severity"] for row in rows] == expected
    assert all(row["PID"] == 1008 and "1 live thread in its list" in row["Evidence"] for row in rows)


@pytest.mark.parametrize("name", ALL)
def test_listed_and_exited_processes_are_silent(name: str) -> None:
    kernel = processes(name)
    process_of(kernel, 1008).thread(1012)
    ended = kernel.process("ended.exe", pid=1020, exited=True)
    image = kernel.image()
    unlink(kernel, ended.eprocess.at("ActiveProcessLinks"))
    assert found(image, HIDDEN) == []


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("state", "severity"), [(5, ["medium"]), (0, ["low"]), (4, [])])
def test_a_thread_that_its_list_lacks(name: str, state: int, severity: list[str]) -> None:
    """One that never ran may be new; one that has ended is on no list."""
    kernel = processes(name)
    app = process_of(kernel, 1008)
    app.thread(1012)
    thread = app.thread(1028, state=state)
    image = kernel.image()
    unlink(kernel, thread.ethread.at("ThreadListEntry"))
    rows = found(image, HIDDEN)
    assert [row["Severity"] for row in rows] == severity
    assert all((row["PID"], row["TID"]) == (1008, 1028) for row in rows)


@pytest.mark.parametrize("name", ("xp-x86", "win10-x64"))
@pytest.mark.parametrize("zeros", [False, True])
def test_threads_between_pages_of_the_list_that_are_absent(name: str, zeros: bool) -> None:
    """They are in the image, and no way along the list leads to them: nobody hides them.

    Programs that copy memory write zeros for pages that they cannot read.
    """
    kernel = processes(name)
    threads = apart(kernel, process_of(kernel, 1008), 1012)
    image = kernel.image()
    for thread in (threads[1], threads[3]):
        lose(kernel, thread.ethread.at("ThreadListEntry"), zeros)
    rows = found(image, HIDDEN)
    assert [(row["Severity"], row["TID"]) for row in rows] == [("low", threads[2].tid)]
    assert rows[0]["Innocent"] == "pages of the list are not in the image"


def lose(kernel: Kernel, address: int, zeros: bool) -> None:
    """Takes a page out of the image, or fills it with zeros."""
    if zeros:
        kernel.space.write(address & ~0xFFF, bytes(0x1000))
    else:
        kernel.space.set_state(address, 8, State.PAGEFILE)


WRITTEN = [0x41414141, 0xFFFF800000001001, 0xFFFF800000002000, 0]
"""Links that no lost page explains. No object of the kernel can be at two of them. PspCidTable has no object
at the third, which is unmapped. Zeros stand among other data here, and a lost page would be all zeros."""


@pytest.mark.parametrize("link", WRITTEN)
def test_links_that_lead_to_no_thread_explain_no_other_thread(link: int) -> None:
    """No page of a list is at such an address: two writes would lower each finding of the process."""
    kernel = processes("win10-x64")
    app = process_of(kernel, 1008)
    threads = [app.thread(1040 + 4 * number) for number in range(5)]
    image = kernel.image()
    head = app.eprocess.at("ThreadListHead")
    unlink(kernel, threads[3].ethread.at("ThreadListEntry"))
    for place, value in ((head, link), (head + 8, link and link + 0x3000)):
        kernel.space.write_int(place, value, 8)
    rows = found(image, HIDDEN)
    assert ("medium", threads[3].tid) in [(row["Severity"], row["TID"]) for row in rows]


@pytest.mark.parametrize("link", WRITTEN)
def test_links_that_lead_to_no_process_explain_no_other_process(link: int) -> None:
    kernel = processes("win10-x64")
    hidden = process_of(kernel, 1008)
    hidden.thread(1012)
    image = kernel.image()
    unlink(kernel, hidden.eprocess.at("ActiveProcessLinks"))
    head = kernel.symbol("PsActiveProcessHead")
    for place, value in ((head, link), (head + 8, link and link + 0x3000)):
        kernel.space.write_int(place, value, 8)
    rows = [row for row in found(image, HIDDEN) if row["PID"] == 1008]
    assert [row["Severity"] for row in rows] == ["high"]


@pytest.mark.parametrize("zeros", [False, True])
def test_threads_of_a_list_whose_head_alone_is_absent(zeros: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head is on one page, and all else that is read of the _EPROCESS on the page before."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    allocate = kernel.space.allocate
    monkeypatch.setattr(kernel.space, "allocate", lambda size, unit=16, **_: allocate(size, unit))
    end = sum(kernel.space.allocated)
    distance = kernel.process("app.exe", pid=1000).eprocess.at("ThreadListHead") - end
    kernel.space.allocate(-(sum(kernel.space.allocated) + distance) % 0x1000)
    app = kernel.process("app.exe", pid=1004)
    head = app.eprocess.at("ThreadListHead")
    assert app.eprocess.at("ImageFileName") + 16 <= head & ~0xFFF
    kernel.space.allocate(0x1000)
    threads = [app.thread(8000 + 4 * number) for number in range(3)]
    image = kernel.image()
    lose(kernel, head, zeros)
    rows = [row for row in found(image, HIDDEN) if row["TID"]]
    assert {(row["Severity"], row["TID"]) for row in rows} == {("low", thread.tid) for thread in threads}


@pytest.mark.parametrize("zeros", [False, True])
def test_one_absent_page_of_the_list_explains_no_other_thread(zeros: bool) -> None:
    """Both walks along the list come to it: only the thread on that page may be missing."""
    kernel = processes("win10-x64")
    threads = apart(kernel, process_of(kernel, 1008), 1040)
    image = kernel.image()
    unlink(kernel, threads[3].ethread.at("ThreadListEntry"))
    lose(kernel, threads[1].ethread.at("ThreadListEntry"), zeros)
    rows = found(image, HIDDEN)
    assert [(row["Severity"], row["TID"]) for row in rows] == [("medium", threads[3].tid)]


def apps_apart() -> Tuple[Kernel, List[Process]]:
    """Five processes whose structures share no page, each with a thread."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    apps = []
    for pid in range(1000, 1040, 8):
        kernel.space.allocate(0x3000)
        apps.append(kernel.process(f"app{pid}.exe", pid=pid))
        apps[-1].thread(pid + 4)
    return kernel, apps


@pytest.mark.parametrize("zeros", [False, True])
def test_one_absent_process_of_the_list_explains_no_other_process(zeros: bool) -> None:
    """Both walks along the list come to it."""
    kernel, apps = apps_apart()
    image = kernel.image()
    unlink(kernel, apps[3].eprocess.at("ActiveProcessLinks"))
    lose(kernel, apps[1].eprocess.at("ActiveProcessLinks"), zeros)
    rows = [row for row in found(image, HIDDEN) if row["PID"] == apps[3].pid]
    assert [row["Severity"] for row in rows] == ["high"]


def test_without_all_of_the_table_of_ids_a_link_may_lead_to_an_absent_process() -> None:
    """The page of PspCidTable that may have the process is not in the image either."""
    kernel, apps = apps_apart()
    last = kernel.process("last.exe", pid=0x4008)
    image = kernel.image()
    hidden = apps[2].eprocess.at("ActiveProcessLinks")
    unlink(kernel, hidden)
    head = kernel.symbol("PsActiveProcessHead")
    for place, value in ((head, 0xFFFF800000002000), (head + 8, 0xFFFF800000005000)):
        kernel.space.write_int(place, value, 8)
    assert kernel.cid is not None
    lose(kernel, kernel.cid.entry(last.pid), False)
    rows = [row for row in found(image, HIDDEN) if row["PID"] == apps[2].pid]
    assert [row["Severity"] for row in rows] == ["low"]


@pytest.mark.parametrize("zeros", [False, True])
def test_processes_between_pages_of_the_list_that_are_absent(zeros: bool) -> None:
    kernel, apps = apps_apart()
    image = kernel.image()
    for app in (apps[1], apps[3]):
        lose(kernel, app.eprocess.at("ActiveProcessLinks"), zeros)
    rows = [row for row in found(image, HIDDEN) if row["PID"] == apps[2].pid]
    assert {row["Severity"] for row in rows} <= {"low"}


@pytest.mark.parametrize("name", ALL)
def test_two_processes_with_the_same_page_tables(name: str) -> None:
    kernel = processes(name)
    for pid in (1000, 1008):
        process_of(kernel, pid).thread(pid + 4)
    image = kernel.image()
    process_of(kernel, 1008).eprocess["Pcb.DirectoryTableBase"] = process_of(kernel, 1000).eprocess[
        "Pcb.DirectoryTableBase"
    ]
    rows = found(image, HIDDEN)
    assert {row["Severity"] for row in rows} == {"medium"}
    assert 1008 in {row["PID"] for row in rows}


@pytest.mark.parametrize("name", ALL)
def test_what_only_a_scan_finds(name: str) -> None:
    """A process on no list and in no table: with a live thread it is hidden, without --scan not checked."""
    kernel = processes(name)
    hidden = kernel.process("ghost.exe", pid=2000, listed=False)
    hidden.thread(2004)
    kernel.process("left.exe", pid=2008, listed=False)
    kernel.process("ended.exe", pid=2016, listed=False, exited=True)
    image = kernel.image()
    assert severities(image, HIDDEN) == []
    reasons = [row["Evidence"] for row in answered(image, check=[HIDDEN]) if row["Severity"] is None]
    assert reasons == ["processes and threads that only a pool scan finds: --scan"]
    rows = found(image, HIDDEN, scan=True)
    assert [(row["Severity"], row["Process"]) for row in rows] == [("high", "ghost.exe")]
    assert all(row["Severity"] for row in answered(image, check=[HIDDEN], scan=True))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("holder", "exited", "expected"),
    [("other", False, ["medium"]), ("itself", False, []), ("", False, []), ("other", True, [])],
)
def test_a_process_that_only_a_scan_and_a_handle_show(
    name: str, holder: str, exited: bool, expected: List[str]
) -> None:
    """Without a thread only a handle of a process that is listed speaks for it; what has exited is left."""
    kernel = processes(name)
    ghost = kernel.process("ghost.exe", pid=2000, listed=False)
    if exited:
        ghost.eprocess["ExitTime.QuadPart"] = filetime(seconds=3600)
    if holder:
        table = HandleTable(kernel.processes[1] if holder == "other" else ghost)
        table.add(0x84, ghost.eprocess)
        table.finish()
    image = kernel.image()
    if holder == "itself":
        # Nor does the kernel's list of tables know this one.
        ring(kernel.space, [kernel.symbol("HandleTableListHead")])
    rows = found(image, HIDDEN, scan=True)
    assert [row["Severity"] for row in rows] == expected
    if rows:
        assert "handle 0x84 of PID 1000 leads to it" in rows[0]["Evidence"]
    assert severities(image, HIDDEN) == []


def test_few_handles_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = processes("win10-x64")
    table = HandleTable(kernel.processes[1])
    table.add(0x84, kernel.system.eprocess)
    table.add(0x88, kernel.process("ghost.exe", pid=2000, listed=False).eprocess)
    table.finish()
    assert severities(kernel.image(), HIDDEN, scan=True) == ["medium"]
    monkeypatch.setattr(hidden, "MAX_HANDLES", 1)
    assert severities(kernel.image(), HIDDEN, scan=True) == []


@pytest.mark.parametrize("name", ALL)
def test_a_recorded_caller_in_an_option_rom(name: str) -> None:
    """QEMU's kvmvapic runs there, of a clean machine: it patches the kernels of XP and 2003 to call it."""
    kernel = recorded(name, AWAY + 0x105)
    kernel.space.tables.map(kernel.base + AWAY, kernel.phys.allocate_at(0xCA))
    row = only(found(kernel.image(), NO_MODULE))
    assert (row["Severity"], row["Confidence"], row["Symbol"]) == ("low", "likely", "<rom>")
    assert "option ROM" in row["Innocent"]


@pytest.mark.parametrize("name", ALL)
def test_a_rom_hides_no_other_code_in_no_module(name: str) -> None:
    """What is near each other is one finding, but not across the border of a ROM."""
    kernel = recorded(name, AWAY + 0x105, AWAY + 0x1105)
    kernel.space.tables.map(kernel.base + AWAY, kernel.phys.allocate_at(0xCA))
    rows = found(kernel.image(), NO_MODULE)
    assert sorted((row["Severity"], row["Symbol"]) for row in rows) == [
        ("high", "<no-module>"),
        ("low", "<rom>"),
    ]
