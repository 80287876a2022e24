# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The threads of the sample image: what each of them did when it entered the kernel."""

from __future__ import annotations

import struct

from . import trapentries, trapframes
from .kernel import Kernel
from .process import Process
from .thread import Thread
from .trapentries import X64, Entry, Registers

_TOP = 0x190
_IN_USE = 0x1800
_EXCEPTION_FRAME = 0x1E0
_RECORD = 0xA8
_NONVOLATILE = ("Rbx", "Rdi", "Rsi", "R12", "R13", "R14", "R15")
_ACCESS_VIOLATION = 0xC0000005


WAIT_NUMBER, BEHIND_SYSCALL = 4, 0x14
"""What NtWaitForSingleObject calls (win10), and how far into it a thread waits."""

TEB32 = 0x7FFDB000
"""A 32-bit TEB lies below 4 GB."""


def registers(**known: int) -> Registers:
    """A register state of user mode with everything that an entry may store, each value another."""
    names = [f"r{name}" for name in ("ax", "cx", "dx", "bx", "si", "di", "bp", *map(str, range(8, 16)))]
    values = {name: 0x1D2_0000_0000 + 0x1_1010 * number for number, name in enumerate(names)}
    values.update(mxcsr=0x1F80, eflags=0x246, irql=0, error_code=0, cr2=0, gs_base_user=0xEF00004000)
    values.update(cs=0x33, ss=0x2B)
    values.update(known)
    return values


def enter(thread: Thread, kind: str, state: Registers) -> int:
    """Lets a thread enter the kernel from user mode; returns the address of its trap frame."""
    address = thread.stack_base - _TOP
    entry = Entry(kind, "user32" if state["cs"] == 0x23 else "user64", mitigated=True)
    _write(thread, entry, state, address)
    if kind == trapentries.SYSCALL:
        thread.kthread["TrapFrame"] = address
    thread.kthread["KernelStack"] = thread.stack_base - _IN_USE
    return address


def fault(kernel: Kernel, thread: Thread, state: Registers) -> int:
    """A page fault in the kernel that was dispatched as an exception."""
    address = trapframes.kernel_address(X64, trapentries.PAGE_FAULT, state["rsp"])
    _write(thread, Entry(trapentries.PAGE_FAULT, "kernel"), state, address)
    frame = address - _EXCEPTION_FRAME
    for name in _NONVOLATILE:
        place = frame + kernel.isf.offset("_KEXCEPTION_FRAME", name)
        kernel.space.write_int(place, state[name.lower()])
    record = struct.pack("<IIQQI", _ACCESS_VIOLATION, 0, 0, state["rip"], 2)
    kernel.space.write(address - _RECORD, record)
    kernel.space.write_int(address - 8, kernel.symbol("KiPageFault") + 0x3D)
    kernel.space.write_int(frame - 8, kernel.symbol("KiExceptionDispatch") + 0x2C)
    return address


def _write(thread: Thread, entry: Entry, state: Registers, address: int) -> None:
    # What was there before is what a reader must not take for registers.
    stale = trapframes.stack_poison
    forged = trapframes.forge(X64, entry, state, address, stale)
    thread.process.kernel.space.write(address, forged.data)


def context32(**known: int) -> bytes:
    """A 32-bit CONTEXT with its control and integer registers. Offsets: WOW64_CONTEXT of winnt.h."""
    offsets = {"edi": 0x9C, "esi": 0xA0, "ebx": 0xA4, "edx": 0xA8, "ecx": 0xAC, "eax": 0xB0, "ebp": 0xB4}
    offsets.update(eip=0xB8, cs=0xBC, eflags=0xC0, esp=0xC4, ss=0xC8)
    data = bytearray(0x2CC)
    values = dict(known, cs=0x23, eflags=0x246, ss=0x2B)
    for name, value in values.items():
        struct.pack_into("<I", data, offsets[name], value)
    struct.pack_into("<I", data, 0, 0x10007)
    return bytes(data)


def wait(thread: Thread, address: int, **known: int) -> int:
    """A thread that waits in a system call, with the registers given."""
    thread.kthread.maybe("SystemCallNumber", WAIT_NUMBER)
    return enter(thread, trapentries.SYSCALL, registers(rip=address, rax=WAIT_NUMBER, **known))


def interrupt(thread: Thread, address: int, **known: int) -> int:
    """A thread that a device interrupted, and that was then taken off its processor."""
    return enter(thread, trapentries.DEVICE, registers(rip=address, **known))


def add(kernel: Kernel, updater: Process, legacy: Process, injected: int) -> None:
    """Adds threads to the sample: one that waits, one interrupted in injected code, one that faulted in the
    kernel and is running, and one of a 32-bit process.
    """
    ntdll = next(module for module in updater.modules if module.name == "ntdll.dll")
    start = ntdll.at("RtlUserThreadStart")
    first, second, third = (updater.thread(4312 + 4 * number, start=start) for number in (1, 2, 3))
    waits = ntdll.at("NtWaitForSingleObject") + BEHIND_SYSCALL
    wait(first, waits, rsp=first.user_stack_base - 0x248, r10=0x8C)
    interrupt(second, injected + 0x2C4, rsp=second.user_stack_base - 0x2B8)
    wait(third, waits, rsp=third.user_stack_base - 0x318, r10=0x30)
    bad = 0x41414141_00000010
    state = registers(
        cs=0x10,
        ss=0x18,
        rip=kernel.symbol("IofCallDriver") + 0x42,
        rsp=third.stack_base - 0x808,
        cr2=bad,
        rax=bad - 0x10,
        eflags=0x10246,
    )
    fault(kernel, third, state)
    kernel.cpus[0].current(third)
    half = legacy.wow
    if half is not None:
        own = next(module for module in legacy.modules if module.name == "ntdll.dll")
        thread = legacy.thread(5124, start=own.at("RtlUserThreadStart"))
        module = next(module for module in half.modules if module.name == "ntdll.dll")
        eip = module.at("RtlUserThreadStart") + 0x2F
        half.thread(thread, context=context32(eip=eip, esp=0x6FFD20, eax=0x30), teb=TEB32)
        sp, ground = thread.user_stack_base - 0x1A8, own.at("RtlUserThreadStart") + 0x21
        wait(thread, own.at("NtWaitForSingleObject") + BEHIND_SYSCALL, rsp=sp)
        legacy.space.write_int(sp, ground, 8)
