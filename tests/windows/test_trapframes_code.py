# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86: the caller's instruction tells what a frame saved, where the process cannot have changed it since."""

from __future__ import annotations

import pathlib
from typing import Optional

import pytest

from tests.forge import kernels, trapframes
from tests.forge import trapentries as entries
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.process import Process
from tests.forge.thread import Thread
from tests.forge.trapentries import X86_OLD, Entry
from tests.support.only import only
from tests.support.trapforge import TOP_DISTANCE
from tests.support.trapimages import LiveImage, Row, with_functions
from tests.support.trapsets import filled, registers_86

BASE = 0x77880000
EIP = BASE + 0x1234
CALLBACK_RETURN, SERVICE, MOVE = b"\xcd\x2b", b"\xcd\x2e", b"\x8b\xc0"

SECTION = "section"
"""The page is the section's."""
NOT_THERE = "not in the working set"
"""The same, but the process has no page there at the moment."""
OWN_COPY = "own copy"
PRIVATE = "private"
WRITABLE = "shared and writable"
"""The page is the section's, and whoever maps it may write to it."""
IN_TRANSITION = "in transition"
WRITABLE_IN_TRANSITION = "shared and writable, in transition"
PROOF = (SECTION, NOT_THERE, IN_TRANSITION)
PLACES = (*PROOF, OWN_COPY, PRIVATE, WRITABLE, WRITABLE_IN_TRANSITION)


def put_code(process: Process, code: bytes, where: str) -> Optional[Module]:
    """Puts the caller's instruction before EIP."""
    place = EIP - len(code)
    if where == PRIVATE:
        process.region(BASE + 0x1000, size=0x1000)
        process.space.write(place, code)
        return None
    module = process.module("code.dll", BASE, contents={place - BASE: code})
    if where == OWN_COPY:
        process.space.write(place, code)
    elif where in (NOT_THERE, IN_TRANSITION, WRITABLE_IN_TRANSITION):
        process.space.set_state(BASE + 0x1000, 0x1000, State.PROTOTYPE)
    if where in (IN_TRANSITION, WRITABLE_IN_TRANSITION):
        assert module.section is not None
        module.section.set_state(0x1000, 0x1000, State.TRANSITION)
    return module


def row_of(entry: Entry, code: bytes, where: str, folder: pathlib.Path) -> Row:
    """The row of a frame that an entry left, of a thread that was called from such code."""
    known = with_functions(kernels.load("win7-x86"), "asserting", [("KiRaiseAssertion", 0x1000)])
    kernel = Kernel(known.table, **known.options())
    kernel.obj("_KUSER_SHARED_DATA", kernel.kuser)["SystemCallReturn"] = EIP + 0x100
    process = kernel.process("app.exe", pid=1000)
    thread = process.thread(1004)
    module = put_code(process, code, where)
    frame(kernel, thread, entry)
    live = LiveImage(kernel, folder)
    if where in (WRITABLE, WRITABLE_IN_TRANSITION):
        make_writable(live, module)
    return only(live.rows())


def frame(kernel: Kernel, thread: Thread, entry: Entry) -> None:
    """Forges the frame from user mode at the top of a thread's stack."""
    registers = dict(registers_86("user"), eip=EIP)
    if entry.kind == entries.DEVICE:
        # So does a service look that no other came before.
        registers["edx"] = 0
    address = thread.stack_base - TOP_DISTANCE[X86_OLD]
    forged = trapframes.forge(X86_OLD, entry, registers, address, filled(b"\0"))
    kernel.space.write(address, forged.data)
    thread.kthread["KernelStack"] = thread.stack_base - 0x2000


def make_writable(live: LiveImage, module: Optional[Module]) -> None:
    """Makes the prototype PTE of the code's page that of a section with IMAGE_SCN_MEM_SHARED."""
    assert module is not None
    assert module.section is not None
    place = module.section.entries + 8
    memory = live.opened.layer
    entry = int.from_bytes(memory.read(place, 8), "little")
    # MM_EXECUTE_READWRITE in place of MM_EXECUTE_WRITECOPY; Write in place of CopyOnWrite.
    entry = entry & ~(1 << 9) | 1 << 11 if entry & 1 else entry & ~(7 << 5) | 6 << 5
    live.poke(place, entry.to_bytes(8, "little"))


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize(("code", "stored"), [(CALLBACK_RETURN, True), (SERVICE, False)])
def test_whether_ecx_was_stored(code: bytes, stored: bool, where: str, tmp_path: pathlib.Path) -> None:
    row = row_of(Entry(entries.INT2E, "user"), code, where, tmp_path)
    assert row["TrapKind"] == "syscall"
    unsure = where not in PROOF
    assert ("Rcx" in row["Unsure"].split()) == unsure
    assert (row["Rcx"] is not None) == (stored or unsure)


@pytest.mark.parametrize("where", PLACES)
def test_whether_it_was_a_trap(where: str, tmp_path: pathlib.Path) -> None:
    """An exception or interrupt that looks like a service: what lies before Eip is no int instruction."""
    row = row_of(Entry(entries.DEVICE, "user"), MOVE, where, tmp_path)
    unsure = where not in PROOF
    assert ("Rax" in row["Unsure"].split()) == unsure
    assert row["Rax"] == registers_86("user")["eax"]
