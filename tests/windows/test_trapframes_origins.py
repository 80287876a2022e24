# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.trapframes`: where the frames of threads come from, and what is wrong with them."""

from __future__ import annotations

import pathlib
import struct

import pytest

from tests.forge import kernels, trapframes
from tests.forge import trapentries as entries
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.pe import Function
from tests.forge.thread import Thread
from tests.forge.trapentries import X64, Entry
from tests.support import traplayouts
from tests.support.only import only
from tests.support.trapimages import LiveImage, with_functions
from tests.support.trapsets import registers_64
from tests.support.trapthreads import TOP, in_system_call, make_kernel, masked, put, shown


def test_threads_that_have_no_registers_of_user_mode(tmp_path: pathlib.Path) -> None:
    """One that has ended has no stack, and no image has VTL 1: only of the third a frame is missing."""
    kernel = make_kernel()
    kernel.process("ended.exe", pid=1000).thread(1004).end()
    isolated = kernel.process("LsaIso.exe", pid=1008)
    isolated.eprocess["Pcb.SecureState.SecureHandle"] = 0x140000015
    threads = [isolated.thread(1012), kernel.process("app.exe", pid=1016).thread(1020)]
    for thread in threads:
        kernel.space.write(thread.stack_base - 0x1000, bytes(0x1000))
    rows = LiveImage(kernel, tmp_path).rows()
    assert shown(rows, "TID", "Origin", "Status") == [(1020, "top", "no saved registers")]


def test_status_of_the_thread(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel(cpus=2)
    app = kernel.process("app.exe", pid=1000)
    threads = [app.thread(1004 + 4 * number) for number in range(6)]
    addresses = [in_system_call(kernel, thread) for thread in threads]
    running, dead, stale, outside, unread, _ = threads
    kernel.cpus[1].current(running)
    dead.end()
    # Its pointer leads to bytes below what it has in use.
    stale.kthread["KernelStack"] = stale.stack_base - 0x100
    outside.kthread["TrapFrame"] = dead.stack_base - TOP
    kernel.space.set_state(unread.stack_base - 0x1000, 0x1000, State.PAGEFILE)
    kernel.space.write(addresses[5], bytes(TOP))
    rows = LiveImage(kernel, tmp_path).rows()
    assert shown(rows, "TID", "Origin", "State", "Status") == [
        (1004, "thread", "Running", "running"),
        (1008, "thread", "Terminated", "terminated"),
        (1012, "thread", "Waiting", "stale"),
        (1016, "thread", "Waiting", "outside the stack"),
        (1016, "top", "Waiting", ""),
        (1020, "thread", "Waiting", "unreadable"),
        (1024, "thread", "Waiting", "not a trap frame"),
        (1024, "top", "Waiting", "no saved registers"),
    ]
    assert [row["Rip"] for row in rows if row["Status"] not in ("", "running", "terminated", "stale")] == [
        None
    ] * 4


def test_a_thread_that_was_interrupted_has_a_frame_that_nothing_points_to(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    registers = registers_64("user64")
    address = thread.stack_base - TOP
    expected = put(kernel, thread, Entry(entries.DEVICE, "user64"), registers, address)
    thread.kthread["KernelStack"] = thread.stack_base - 0x2000
    row = only(LiveImage(kernel, tmp_path).rows())
    assert (row["Origin"], row["TrapKind"], row["TrapFrame"]) == ("top", "interrupt", masked(address))
    assert {name: row[name] for name in expected} == expected
    assert row["Unsure"] == "Rsi"
    assert row["Rbx"] is None


@pytest.mark.parametrize("name", ["win10-x64", "xp-x86"])
def test_the_top_of_a_stack_that_is_paged_out(name: str, tmp_path: pathlib.Path) -> None:
    """A thread from user mode has a frame there; one of the kernel's own need not."""
    kernel = make_kernel(name)
    user = kernel.process("app.exe", pid=1000).thread(1004)
    own = kernel.system.thread(8)
    image = kernel.image()
    for thread in (user, own):
        thread.kthread["KernelStack"] = thread.stack_limit
        kernel.space.set_state(thread.stack_limit, thread.stack_base - thread.stack_limit, State.PAGEFILE)
    live = LiveImage(kernel, tmp_path, image)
    row = only(live.rows(scan_stacks=True))
    assert (row["TID"], row["Origin"], row["Status"], row["Rip"]) == (1004, "top", "unreadable", None)


def page_fault(kernel: Kernel, thread: Thread, handler: int, dispatcher: int) -> int:
    """A page fault from kernel mode that was dispatched: with an exception frame below it."""
    registers = dict(registers_64("kernel"), rsp=thread.stack_base - 0x1008, rip=kernel.base + 0x1234)
    address = trapframes.kernel_address(X64, entries.PAGE_FAULT, registers["rsp"])
    put(kernel, thread, Entry(entries.PAGE_FAULT, "kernel"), registers, address)
    structure = traplayouts.structure(kernel.isf, "_KEXCEPTION_FRAME")
    frame = address - 0x1E0
    for name in ("Rbx", "Rsi", "Rdi", "R12", "R13", "R14", "R15"):
        kernel.space.write(frame + structure.offset(name), struct.pack("<Q", registers[name.lower()]))
    record = struct.pack("<IIQQI", 0xC0000005, 0, 0, registers["rip"], 2)
    kernel.space.write(address - 0xA8, record)
    kernel.space.write(address - 8, struct.pack("<Q", handler))
    kernel.space.write(frame - 8, struct.pack("<Q", dispatcher))
    return address


@pytest.mark.parametrize("named", [True, False])
def test_an_exception_frame_gives_the_nonvolatile_registers(named: bool, tmp_path: pathlib.Path) -> None:
    known = with_functions(
        kernels.load("win10-x64"),
        f"dispatch-{named}",
        [("KiPageFault", 0x40000), ("KiExceptionDispatch", 0x50000)],
    )
    bounds = [Function(begin, begin + 0x1000, 0) for begin in (0x40000, 0x50000)]
    kernel = Kernel(known.table, functions=bounds, **known.options())
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    in_system_call(kernel, thread)
    far = 0x7000_0000
    handler, dispatcher = (
        (kernel.base + 0x40321, kernel.base + 0x5012C) if named else (kernel.base + far, kernel.base + far)
    )
    address = page_fault(kernel, thread, handler, dispatcher)
    row = next(
        row
        for row in LiveImage(kernel, tmp_path).rows(scan_stacks=True)
        if row["TrapFrame"] == masked(address)
    )
    registers = dict(registers_64("kernel"), rsp=thread.stack_base - 0x1008)
    for name in ("Rbx", "Rsi", "Rdi", "R12", "R13", "R14", "R15", "Rax", "Rbp", "R11", "Rsp"):
        assert row[name] == registers[name.lower()], name
    assert (row["Origin"], row["TrapKind"], row["Mode"]) == ("stack", "exception", "kernel")
    assert (row["FaultAddress"], row["ErrorCode"]) == (registers["cr2"], registers["error_code"])
    unsure = "" if named else "Rbx Rsi Rdi R12 R13 R14 R15 ErrorCode FaultAddress"
    assert row["Unsure"] == unsure
    assert row["GsSwap"] is None


def test_below_what_is_in_use_frames_are_stale(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    top = in_system_call(kernel, thread)
    address = page_fault(kernel, thread, 0, 0)
    thread.kthread["KernelStack"] = address + TOP
    rows = LiveImage(kernel, tmp_path).rows(scan_stacks=True)
    assert shown(rows, "TrapFrame", "Origin", "Status") == [
        (masked(top), "thread", ""),
        (masked(address), "stack", "stale"),
    ]


def test_the_chain_of_services(tmp_path: pathlib.Path) -> None:
    kernel = make_kernel()
    app = kernel.process("app.exe", pid=1000)
    linkage = kernel.symbol("KiServiceLinkage")

    def service(thread: Thread, depth: int, previous: int) -> int:
        registers = dict(registers_64("kernel"), rsp=thread.stack_base - depth)
        address = trapframes.kernel_address(X64, entries.ZW, registers["rsp"])
        put(
            kernel,
            thread,
            Entry(entries.ZW, "kernel", previous=previous, linkage=linkage),
            registers,
            address,
        )
        thread.kthread["TrapFrame"] = address
        return address

    sound = app.thread(1004)
    top = in_system_call(kernel, sound)
    second = service(sound, 0x1008, top)
    third = service(sound, 0x1808, second)
    # A chain that leads back to itself, and one that leads to user memory.
    cycle = app.thread(1008)
    itself = service(cycle, 0x1008, 0)
    service(cycle, 0x1008, itself)
    wild = app.thread(1012)
    lost = service(wild, 0x1008, 0x7FF0000)
    for thread in (sound, cycle, wild):
        thread.kthread["KernelStack"] = thread.stack_limit
    rows = LiveImage(kernel, tmp_path).rows()
    assert shown(rows, "TID", "TrapFrame", "TrapKind", "Status") == [
        (1004, masked(third), "service", ""),
        (1004, masked(second), "service", ""),
        (1004, masked(top), "syscall", ""),
        (1008, masked(itself), "service", ""),
        (1008, masked(itself), None, "cycle"),
        (1008, None, None, "no saved registers"),
        (1012, masked(lost), "service", ""),
        (1012, 0x7FF0000, None, "outside the stack"),
        (1012, None, None, "no saved registers"),
    ]


def test_stack_segments(tmp_path: pathlib.Path) -> None:
    """After a call to user mode the thread runs on another segment; both begin with a system call."""
    kernel = make_kernel()
    thread = kernel.process("app.exe", pid=1000).thread(1004)
    old_base, old_limit = thread.stack_base, thread.stack_limit
    old_initial = old_base - 0x370
    base, limit = kernel.space.reserve(0x6000) + 0x6000, 0
    limit = base - 0x6000
    kernel.space.map(limit, 0x6000)
    initial = base - 0x370
    control = kernel.obj("_KSTACK_CONTROL", initial)
    control["StackBase"] = base
    for name, value in (
        ("StackBase", old_base),
        ("StackLimit", old_limit),
        ("InitialStack", old_initial),
        ("KernelStack", old_initial - 0x800),
    ):
        control[f"Previous.{name}"] = value
    kernel.obj("_KSTACK_CONTROL", old_initial)["StackBase"] = old_base
    thread.kthread.put(StackBase=base, StackLimit=limit, InitialStack=initial, KernelStack=initial - 0x1000)
    entry = Entry(entries.SYSCALL, "user64", mitigated=True)
    for top in (initial, old_initial):
        put(kernel, thread, entry, registers_64("user64"), top - TOP)
    thread.kthread["TrapFrame"] = initial - TOP
    rows = LiveImage(kernel, tmp_path).rows()
    assert shown(rows, "TrapFrame", "Origin", "Status") == [
        (masked(initial - TOP), "thread", ""),
        (masked(old_initial - TOP), "top", ""),
    ]
