# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every entry into the kernel that can be forged, with registers that differ from each other."""

from __future__ import annotations

import itertools
from typing import Iterator

from tests.forge import trapentries as entries
from tests.forge import trapframes
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD, Entry, Registers

USER_64, KERNEL_64 = 0xFFFFFADFE4C2FE30, 0xFFFFFADFE4C2EDC8
USER_86, KERNEL_86 = 0xF8A3CD64, 0xF8A3C7C8
LINKAGE = {X64: 0xFFFFF80001041600, X86_OLD: 0x804DC8C1, X86_BLUE: 0x804DC8C1}

# What a stack may have held: nothing, all ones, small numbers, a kernel pointer, selectors and modes.
FILLS = (b"\0", b"\xff", b"\x01\0\0\0\0\0\0\0", b"\x60\xde\xc2\xe4\xdf\xfa\xff\xff", b"\x30\0\0\0", b"\x01")


def filled(fill: bytes) -> trapframes.Poison:
    return lambda address, length: (fill * (length // len(fill) + 1))[:length]


def registers_64(mode: str) -> Registers:
    names = [
        "rax",
        "rcx",
        "rdx",
        "rbx",
        "rsi",
        "rdi",
        "r8",
        "r9",
        "r10",
        "r11",
        "r12",
        "r13",
        "r14",
        "r15",
        "rbp",
    ]
    values = {name: 0x1111_2222_0000_0000 + 0x1_0101 * (place + 1) for place, name in enumerate(names)}
    user = mode != "kernel"
    values.update(dr0=0x77AA1000, dr1=0x77AA2004, dr2=0, dr3=0x77AA400C, dr6=0xFFFF0FF0, dr7=0x455)
    values.update(mxcsr=0x1FA0, irql=0 if user else 2, error_code=6 if user else 2, eflags=0x246)
    values.update(cr2=0x7FF0_1234, gs_base_user=0x7FFFFFDE000, gs_base_kernel=0xFFFFFADFF0001000)
    values.update(rip=0x77EF047A if user else 0xFFFFF80001045678, rsp=0x12F6D8 if user else KERNEL_64)
    values.update(cs={"kernel": 0x10, "user32": 0x23}.get(mode, 0x33), ss=0x2B if user else 0x18)
    return values


def registers_86(mode: str) -> Registers:
    names = ["eax", "ecx", "edx", "ebx", "esi", "edi", "ebp"]
    values = {name: 0x11220000 + 0x101 * (place + 1) for place, name in enumerate(names)}
    user, v86 = mode != "kernel", mode == "v86"
    values.update(dr0=0x77AA1000, dr1=0x77AA2004, dr2=0, dr3=0x77AA400C, dr6=0xFFFF0FF0, dr7=0x455)
    values.update(error_code=6, eflags=0x20246 if v86 else 0x246, exception_list=0x12FFE0, gs=0)
    values.update(eip=0x1234 if v86 else 0x77F0047A if user else 0x8051C678, system_call_return=0x7C90EB94)
    values.update(esp=0x7F0 if v86 else 0x12F6D8 if user else KERNEL_86, ss=0x23 if user else 0x10)
    values.update(cs=0xF000 if v86 else 0x1B if user else 8, fs=0x3B if user else 0x30, ds=0x23, es=0x23)
    values.update(v86_ds=0x3333, v86_es=0x4444, v86_fs=0x2222, v86_gs=0x1111)
    return values


def every_entry(architecture: str) -> Iterator[Entry]:
    wide = architecture == X64
    kinds = entries.KINDS_64 if wide else entries.KINDS_86
    for kind, mode in itertools.product(
        kinds, ("user64", "user32", "kernel") if wide else ("user", "kernel", "v86")
    ):
        kernel = mode == "kernel"
        if (kind in entries.KERNEL_ONLY and not kernel) or (kind in entries.USER_ONLY and kernel):
            continue
        if kind in (entries.SYSCALL, entries.SYSENTER) and mode in ("user32", "v86"):
            continue
        if kind == entries.NMI and (mode == "v86" or architecture == X86_BLUE):
            continue
        for debug, modern in itertools.product((False, True), repeat=2):
            if kernel and debug:
                continue
            previous = USER_64 if wide else USER_86
            linkage = LINKAGE[architecture]
            yield Entry(kind, mode, debug, modern and wide, previous, 1, modern, linkage)


def expected_kind(entry: Entry, architecture: str) -> str:
    if entry.kind in (entries.SYSCALL, entries.SYSENTER, entries.INT2E):
        return "syscall"
    if entry.kind == entries.ZW:
        return "service"
    if architecture == X86_OLD and entry.kind != entries.NMI:
        return ""
    interrupts = (entries.DEVICE, entries.SOFTWARE, entries.NMI)
    return "interrupt" if entry.kind in interrupts else "exception"
