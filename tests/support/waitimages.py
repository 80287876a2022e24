# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Snapshots of ../shared/waits as the process of a forged image: their memory, and threads in system calls.

image = image_of(snapshot)           # KTHREAD has what the sets tell of the system call
image = wow64_image_of(snapshot)     # a 32-bit snapshot as the lower half of a 64-bit process
"""

from __future__ import annotations

from typing import Dict, Union

from tests.forge import kernels, samplethreads, trapframes
from tests.forge import trapentries as entries
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.pe import Section
from tests.forge.process import Process
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD, Entry
from tests.forge.wow64 import Wow64
from tests.support.trapsets import registers_64, registers_86
from tests.support.trapthreads import POISON
from tests.support.waitsets import Snapshot

USER_REQUEST, KEYED_EVENT, ALERT, SLEEP = 6, 21, 37, 4
REASONS = {"NtWaitForKeyedEvent": KEYED_EVENT, "NtWaitForAlertByThreadId": ALERT, "NtDelayExecution": SLEEP}
WAITING, READY = 5, 1
_TOP = {X64: 0x190, X86_OLD: 0x29C, X86_BLUE: 0x8C}


def kernel_name(snapshot: Snapshot) -> str:
    """Returns the forge's kernel that is next to the build of a snapshot."""
    if snapshot.pointer_size == 4:
        return "xp-x86" if snapshot.build < 6000 else "win10-x86"
    if snapshot.build < 9000:
        return "win7-x64"
    return "win11-x64" if snapshot.build >= 22000 else "win10-x64"


def _module(process: Union[Process, Wow64], snapshot: Snapshot, index: int) -> None:
    """Adds a module with the pages that a snapshot has of it."""
    described = snapshot.truth["modules"][index]
    base, size = described["base"], described["size"]
    pages = {start - base: data for start, data in snapshot.regions if base <= start < base + size}
    exports: Dict[str, int] = snapshot.header["exports"] if index == 0 else {}
    if index == 0:
        low = min(exports.values()) & ~0xFFF
        sections = [Section(".text", low, (max(exports.values()) + 0x1FFF & ~0xFFF) - low, 0x60000020)]
        free = (
            rva for rva in range(size - 0x3000 & ~0xFFF, 0, -0x1000) if not {rva, rva + 0x1000} & {*pages}
        )
        process.module(
            described["name"],
            base,
            size=size,
            sections=sections,
            exports=exports,
            exports_rva=next(free),
            contents=pages,
            pdb=False,
        )
        return
    whole = pages.pop(0)
    sections = [Section(".text", 0x1000, 0x3000, 0x60000020), Section(".data", 0x8000, 0x8000, 0xC0000040)]
    process.module(
        described["name"],
        base,
        size=size,
        sections=sections,
        contents={0x1000: whole[0x1000:]},
        pdb=False,
        dll=False,
    )


def _threads(kernel: Kernel, process: Process, snapshot: Snapshot) -> None:
    wide = snapshot.pointer_size == 8
    old = kernel.isf.has("_KTRAP_FRAME", "DbgArgPointer")
    architecture = X64 if wide else X86_OLD if old else X86_BLUE
    for described in snapshot.truth["threads"]:
        call = described["call"]
        state = WAITING if described["state"] == "waiting" else READY
        thread = process.thread(
            described["tid"],
            state=state,
            wait_reason=described.get("reason", REASONS.get(call, USER_REQUEST)),
            teb=described["teb"],
            user_stack_size=0x1000,
        )
        assert thread.teb is not None
        thread.teb["NtTib.StackLimit"], thread.teb["NtTib.StackBase"] = described["stack"]
        if call:
            thread.kthread.maybe("FirstArgument", described["args"][0])
        registers = registers_64("user64") if wide else registers_86("user")
        registers.update(described["regs"])
        kind = (entries.SYSCALL if call else entries.DEVICE) if wide else entries.INT2E
        entry = Entry(kind, "user64" if wide else "user", mitigated=False)
        frame = thread.stack_base - _TOP[architecture]
        forged = trapframes.forge(architecture, entry, registers, frame, POISON)
        kernel.space.write(frame, forged.data)
        thread.kthread["TrapFrame"] = frame
        thread.kthread["KernelStack"] = thread.stack_base - 0x2000


def image_of(snapshot: Snapshot) -> Image:
    """Returns an image whose only program is the process of a snapshot."""
    known, truth = kernels.load(kernel_name(snapshot)), snapshot.truth
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("waits.exe", truth["pid"], peb=truth["peb"])
    _module(process, snapshot, 1)
    _module(process, snapshot, 0)
    ranges = [(item["base"], item["base"] + item["size"]) for item in truth["modules"]]
    _threads(kernel, process, snapshot)
    for start, data in snapshot.regions:
        if any(low <= start < high for low, high in ranges):
            continue
        if start == truth["peb"]:
            _overlay(process, start, data, process.space.pointer_size)
        elif not any(thread["teb"] == start for thread in truth["threads"]):
            process.region(start, data)
    return kernel.image()


def _overlay(process: Process, start: int, data: bytes, width: int) -> None:
    """Writes the words of a snapshot's PEB that are not 0 over the forged PEB."""
    process.space.map(start, len(data))
    for place in range(0, len(data), width):
        word = data[place : place + width]
        if any(word):
            process.space.write(start + place, word)


def wow64_image_of(snapshot: Snapshot) -> Image:
    """Returns an image in which a 32-bit snapshot is the half of a process that WoW64 runs.

    Esp stands at the return address of the stub, as wow64cpu keeps it (measured: 14393 and 19041).
    """
    known, truth = kernels.load("win10-x64"), snapshot.truth
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("waits.exe", truth["pid"])
    ntdll = process.module("ntdll.dll", exports={"NtWaitForSingleObject": 0x1100}, pdb=False)
    half = process.wow64(peb=truth["peb"])
    tebs = {thread["teb"] for thread in truth["threads"]}
    for index in (1, 0):
        _module(half, snapshot, index)
    for described in truth["threads"]:
        waits = described["state"] == "waiting"
        reason = REASONS.get(described["call"], USER_REQUEST)
        thread = process.thread(described["tid"], state=WAITING if waits else READY, wait_reason=reason)
        state = samplethreads.registers(rip=ntdll.base + 0x1114, rsp=thread.user_stack_base - 0x100)
        samplethreads.enter(thread, entries.SYSCALL, state)
        regs = described["regs"]
        names = ("eax", "ebx", "ecx", "edx", "esi", "edi", "ebp", "eip")
        esp = regs["esp"] + (4 if described["call"] else 0)
        context = samplethreads.context32(**{name: regs[name] for name in names}, esp=esp)
        half.thread(thread, context=context, teb=described["teb"])
        assert thread.teb is not None
        # The set's TEBs are too far from the 64-bit ones: NtTib.ExceptionList leads to them.
        thread.teb.maybe("WowTebOffset", 0)
        for place, value in zip((4, 8), reversed(described["stack"])):
            process.space.write_int(described["teb"] + place, value, 4)
    ranges = [(item["base"], item["base"] + item["size"]) for item in truth["modules"]]
    for start, data in snapshot.regions:
        if start in tebs or any(low <= start < high for low, high in ranges):
            continue
        if start == truth["peb"]:
            _overlay(process, start, data, 4)
        else:
            process.region(start, data)
    return kernel.image()
