# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Snapshots of ../shared/waits as the process of a forged image: their memory, and threads in system calls.

image = image_of(snapshot)           # KTHREAD has what the sets tell of the system call
"""

from __future__ import annotations

from typing import Dict

from tests.forge import kernels, trapframes
from tests.forge import trapentries as entries
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.pe import Section
from tests.forge.process import Process
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD, Entry
from tests.support.trapsets import registers_64, registers_86
from tests.support.trapthreads import POISON
from tests.support.waitsets import Snapshot

USER_REQUEST, KEYED_EVENT, ALERT = 6, 21, 37
REASONS = {"NtWaitForKeyedEvent": KEYED_EVENT, "NtWaitForAlertByThreadId": ALERT}
WAITING, READY = 5, 1
_TOP = {X64: 0x190, X86_OLD: 0x29C, X86_BLUE: 0x8C}


def kernel_name(snapshot: Snapshot) -> str:
    """Returns the forge's kernel that is next to the build of a snapshot."""
    if snapshot.pointer_size == 4:
        return "xp-x86" if snapshot.build < 6000 else "win10-x86"
    if snapshot.build < 9000:
        return "win7-x64"
    return "win11-x64" if snapshot.build >= 22000 else "win10-x64"


def _module(process: Process, snapshot: Snapshot, index: int) -> None:
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
            wait_reason=REASONS.get(call, USER_REQUEST),
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
    peb = kernel.isf.size("_PEB")
    ranges = [(item["base"], item["base"] + item["size"]) for item in truth["modules"]]
    _threads(kernel, process, snapshot)
    for start, data in snapshot.regions:
        if any(low <= start < high for low, high in ranges):
            continue
        if start == truth["peb"]:
            _overlay(process, start, data, peb)
        elif not any(thread["teb"] == start for thread in truth["threads"]):
            process.region(start, data)
    return kernel.image()


def _overlay(process: Process, start: int, data: bytes, size: int) -> None:
    """Writes the words of a snapshot's PEB that are not 0 over the forged PEB."""
    width = process.space.pointer_size
    process.space.map(start, len(data))
    for place in range(0, len(data), width):
        word = data[place : place + width]
        if any(word):
            process.space.write(start + place, word)
