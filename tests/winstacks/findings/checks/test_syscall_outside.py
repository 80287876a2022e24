# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check of system calls that no stub of Windows made."""

from __future__ import annotations

import pathlib
import struct
from typing import List, Optional

import pytest
from volatility3.plugins.minidump import tracefindings

from tests.forge import context, kernels
from tests.forge.code import system_call_stub
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.callbackimages import CallbackImage
from tests.support.callstackimages import BEHIND_SYSCALL, NUMBER, STUB
from tests.support.findingimages import (
    PRIVATE,
    TID,
    X64,
    X86,
    FindingImage,
    answered,
    found,
    severities,
)
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from tests.support.writtendumps import process_of, write_dump
from winstacks.findings.code import stubs
from winstacks.process.thread import TERMINATED, WAITING

CHECK = "syscall_outside"
RVA = 0x1800
OTHER = NUMBER + 7
COPY = PRIVATE + 0x40
"""Where private memory has a copy of a stub."""


class Calling(FindingImage):
    """A thread in a system call, and what it may have been made by."""

    def from_private(self, code: Optional[bytes] = None, number: int = NUMBER) -> None:
        """The call was made in private memory, by a stub if no code is given."""
        code = system_call_stub(number, 0xA) if code is None else code
        self.private()
        self.app.space.write(COPY, code)
        self.enters_at(COPY + len(code) - 1)

    def from_module(self, name: str, code: Optional[bytes] = None) -> Module:
        """The call was made in a module."""
        code = system_call_stub(NUMBER) if code is None else code
        module = self.app.module(name, contents={RVA: code})
        self.enters_at(module.base + RVA + len(code) - 1)
        return module

    def numbered(self, newest: int, saved: int = -1) -> None:
        """Sets the number of the newest call, and what the trap frame has of it."""
        self.thread.kthread.maybe("SystemCallNumber", newest)
        place = self.thread.kthread["TrapFrame"] + self.kernel.isf.offset("_KTRAP_FRAME", "Rax")
        self.kernel.space.write_int(place, newest if saved < 0 else saved, 8)

    def patched(self, target: int, around: int = 1) -> None:
        """Gives the process a win32u with three stubs, the middle one of which jumps away."""
        codes = [system_call_stub(NUMBER - around), b"", system_call_stub(NUMBER + around)]
        codes[1] = b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0"
        rvas = [RVA + 0x20 * place for place in range(3)]
        exports = {f"NtUserCall{place}": rva for place, rva in enumerate(rvas)}
        self.app.module("win32u.dll", exports=exports, contents=dict(zip(rvas, codes)))

    def thunk(self, target: int) -> None:
        """Patches a stub to lead into the private memory, and there on to another address."""
        self.app.space.write(PRIVATE, b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0")
        self.patched(PRIVATE)

    def stub_of(self, function: str, number: int) -> None:
        """Replaces ntdll by one that exports another stub, too."""
        ntdll = self.stacks.modules["ntdll"]
        at = self.app.module("ntdll.dll", exports={function: RVA}, contents={RVA: system_call_stub(number)})
        assert at.base != ntdll.base


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("code", [None, b"\x90\x0f\x05\xc3", b"\x90\xcd\x2e\xc3"])
def test_a_call_from_private_memory(name: str, code: Optional[bytes]) -> None:
    forged = Calling(name)
    forged.from_private(code)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("high", "certain", "trap")
    assert (row["PID"], row["TID"], row["Kind"], row["Frame"]) == (1000, TID, "user", 0)
    assert row["Symbol"] == "<private>"
    assert f"Rip {row['Address']:#x} behind a system call; bytes before" in row["Evidence"]
    assert row["Technique"] == "T1106"


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("interrupt", [False, True])
def test_calls_by_stubs_are_silent(name: str, interrupt: bool) -> None:
    """By syscall, and by the int 2Eh behind it."""
    forged = Calling(name)
    if interrupt:
        forged.from_module("win32u.dll", system_call_stub(NUMBER) + b"\xcd\x2e\xc3")
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_a_call_from_an_image_without_stubs(name: str) -> None:
    forged = Calling(name)
    forged.from_module("tool.dll")
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Confidence"]) == ("medium", "certain")
    assert row["Symbol"].startswith("tool+0x18")
    assert row["Innocent"].startswith("a program that makes system calls itself")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("module", ["win32u.dll", "wow64win.dll", "wow64cpu.dll", "user32.dll", "IMM32.DLL"])
def test_a_call_from_a_module_with_stubs_is_silent(name: str, module: str) -> None:
    """Where there is no win32u, user32 and imm32 have stubs."""
    forged = Calling(name)
    forged.from_module(module)
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_a_call_from_user32_beside_win32u(name: str) -> None:
    forged = Calling(name)
    forged.from_module("user32.dll")
    forged.app.module("win32u.dll")
    assert severities(forged.image(), CHECK) == ["medium"]


@pytest.mark.parametrize("name", X64)
def test_a_place_that_makes_no_call(name: str) -> None:
    forged = Calling(name)
    forged.enters_at(forged.stacks.modules["app"].base + 0x1115)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Confidence"]) == ("medium", "likely")
    assert "not behind a system call" in row["Evidence"]


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("dispatcher", ["KiUserApcDispatcher", "KiUserExceptionDispatcher", "start"])
def test_where_the_kernel_sends_a_thread_is_silent(name: str, dispatcher: str) -> None:
    """The first frame of a new thread, and frames from which a dispatcher goes on."""
    forged = Calling(name)
    if dispatcher == "start":
        address = forged.thread.ethread["StartAddress"]
    else:
        address = forged.stacks.modules["ntdll"].at(dispatcher)
    forged.enters_at(address)
    assert found(forged.image(), CHECK) == []
    forged.enters_at(address + 4)
    assert severities(forged.image(), CHECK) == ["medium"]


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
def test_where_a_thread_was_to_go_on_is_silent(name: str) -> None:
    """NtContinue lets it go on anywhere."""
    forged = Calling(name)
    forged.stub_of("NtContinue", OTHER)
    forged.enters_at(forged.stacks.modules["app"].base + 0x1115)
    forged.numbered(OTHER)
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_a_stub_that_was_left_with_another_number(name: str) -> None:
    forged = Calling(name)
    forged.numbered(OTHER)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Confidence"], row["Symbol"]) == ("medium", "likely", "ntdll!NtWait+0x14")
    assert f"{OTHER:#x}, the stub has {NUMBER:#x}" in row["Evidence"]


@pytest.mark.parametrize("name", X64)
def test_what_the_frame_confirms_is_silent(name: str) -> None:
    """KTHREAD has the number of a newer call, where the kernel stores no number in the frame, too."""
    forged = Calling(name)
    forged.numbered(OTHER, NUMBER)
    forged.stub_of("NtCallbackReturn", OTHER)
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_the_number_of_a_patched_stub_is_not_compared(name: str) -> None:
    forged = Calling(name)
    forged.numbered(OTHER)
    ntdll = forged.stacks.modules["ntdll"]
    forged.app.space.write(ntdll.at("NtWait"), b"\xe9\0\x10\0\0")
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_code_that_is_not_in_memory_is_silent(name: str) -> None:
    forged = Calling(name)
    forged.from_private()
    image = forged.image()
    forged.app.space.set_state(PRIVATE, PAGE, State.MISSING)
    assert found(image, CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_a_thread_that_has_ended_is_silent(name: str) -> None:
    forged = Calling(name)
    forged.from_private()
    forged.thread.end()
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_a_copy_to_which_a_patched_stub_leads_is_low(name: str) -> None:
    forged = Calling(name)
    forged.from_private()
    target = forged.stacks.modules["app"].base + 0x1100
    forged.thunk(target)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Confidence"]) == ("low", "likely")
    assert row["Innocent"].startswith(f"a sandbox: win32u!NtUserCall1 was patched and leads to {target:#x}")


@pytest.mark.parametrize("name", X64)
def test_a_copy_beside_code_that_leads_to_no_module_is_high(name: str) -> None:
    """An implant hooked a stub, and calls by a copy of it: no sandbox's module is behind the hook."""
    forged = Calling(name)
    forged.from_private()
    forged.patched(PRIVATE)
    assert severities(forged.image(), CHECK) == ["high"]


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("kept", "severity"), [(True, "low"), (False, "high")])
def test_a_copy_that_the_sandbox_keeps_is_low(name: str, kept: bool, severity: str) -> None:
    """The patched stub leads into the program, in whose data the address of the copy is."""
    forged = Calling(name)
    forged.from_private()
    app = forged.stacks.modules["app"]
    forged.patched(app.base + 0x1100)
    forged.app.space.map(app.base + 0x7000, 0x100)
    forged.app.space.write_int(app.base + 0x7010, COPY if kept else COPY + 0x40, 8)
    assert severities(forged.image(), CHECK) == [severity]


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("near", ["number", "target", "unpatched"])
def test_a_copy_without_a_patched_stub_is_high(name: str, near: str) -> None:
    forged = Calling(name)
    forged.from_private(number=OTHER if near == "number" else NUMBER)
    if near != "unpatched":
        forged.app.region(0x21000000, b"\x90" * 0x100, size=0x1000)
        forged.patched(PRIVATE if near == "number" else 0x21000000)
    assert severities(forged.image(), CHECK) == ["high"]


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    ("state", "confidence"), [(State.PAGEFILE, "possible"), (State.PROTOTYPE, "certain")]
)
def test_a_copy_of_a_stub_that_is_not_in_the_image(name: str, state: State, confidence: str) -> None:
    """A sandbox may have patched it; where the process shares the page of the section, nobody has."""
    forged = Calling(name)
    forged.from_private(number=OTHER)
    code = system_call_stub(OTHER)
    win32u = forged.app.module("win32u.dll", exports={"NtUserCall1": RVA}, contents={RVA: code})
    image = forged.image()
    forged.app.space.set_state(win32u.base + RVA, PAGE, state)
    row = only(found(image, CHECK))
    assert (row["Severity"], row["Confidence"]) == ("high", confidence)
    assert ("may have patched it" in row["Innocent"]) == (confidence == "possible")


def test_few_searches_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = Calling("win10-x64")
    forged.from_private()
    app = forged.stacks.modules["app"]
    forged.patched(app.base + 0x1100)
    forged.app.space.map(app.base + 0x7000, 0x100)
    forged.app.space.write_int(app.base + 0x7010, COPY, 8)
    monkeypatch.setattr(stubs, "MOST_SEARCHES", 0)
    assert severities(forged.image(), CHECK) == ["high"]


@pytest.mark.parametrize(
    "name",
    [kernel_name for kernel_name in X64 if kernels.load(kernel_name).table.has("_EPROCESS", "PicoContext")],
)
def test_a_pico_process_is_low(name: str) -> None:
    forged = Calling(name)
    forged.from_private(b"\x90\x0f\x05\xc3")
    forged.app.eprocess["PicoContext"] = forged.kernel.base + 0x10000
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Innocent"]) == ("low", "a pico process: a program of WSL")


@pytest.mark.parametrize("name", X86)
def test_on_x86_it_is_not_checked(name: str) -> None:
    rows = answered(FindingImage(name).image(), check=[CHECK])
    assert [(row["Status"], row["Severity"]) for row in rows] == [("not checked", None)]
    assert rows[0]["Evidence"].startswith("in a 32-bit kernel the frame ")


@pytest.mark.parametrize(
    ("place", "expected"), [("private", ["high"]), ("other.dll", ["medium"]), ("win32u.dll", [])]
)
@pytest.mark.parametrize("call", [b"\x90\x0f\x05\xc3", b"\x90\x90\xc3\xc3"])
def test_a_call_in_the_dump_of_a_process(
    place: str, expected: List[str], call: bytes, tmp_path: pathlib.Path
) -> None:
    """A thread that waits has the registers of its system call, which the instruction before Rip shows."""
    forged = Calling("win10-x64")
    if place == "private":
        forged.from_private(call)
    else:
        forged.from_module(place, call)
    opened = context.open_image(forged.image(), tmp_path)
    path = tmp_path / "app.dmp"
    write_dump(opened, process_of(opened, forged.app.pid), path)
    rows = [row for _, row in OpenedDump(path).rows(tracefindings.TraceFindings, check=[CHECK])]
    shown = [row for row in rows if row["Status"] != "not checked" and row["Finding"] == CHECK]
    assert [row["Severity"] for row in shown] == (expected if b"\x0f\x05" in call else [])
    assert all("behind a system call; bytes before 0f 05" in row["Evidence"] for row in shown)


@pytest.mark.parametrize(
    ("outside", "state", "signalled", "expected"),
    [
        (True, WAITING, 0, ["high"]),
        (True, TERMINATED, 1, []),
        (True, TERMINATED, 0, ["high"]),
        (False, WAITING, 0, []),
    ],
)
def test_a_call_that_waits_for_its_callback(
    outside: bool, state: int, signalled: int, expected: List[str]
) -> None:
    """The newest system call is one of the callback; a machine frame has the place of the older call. Nothing
    waits any more in a thread that has ended, whose object is signalled."""
    forged = CallbackImage("win10-x64")
    process = forged.called_back(1004, callbacks=1).process
    process.region(PRIVATE, b"\x90\x0f\x05\xc3".ljust(PAGE, b"\xcc"), protection=EXECUTE_READWRITE)
    image = forged.kernel.image()
    process.threads[0].kthread.put(**{"State": state, "Header.SignalState": signalled})
    ip, thread = forged.modules["ntdll"].base + STUB.rva + BEHIND_SYSCALL, process.threads[0]
    slots = [
        at
        for at in range(thread.user_stack_limit, thread.user_stack_base, 8)
        if process.space.read_int(at, 8) == ip
    ]
    if outside:
        process.space.write_int(only(slots), PRIVATE + 3, 8)
    rows = found(image, CHECK)
    assert [row["Severity"] for row in rows] == expected
    assert all(row["Address"] == PRIVATE + 3 and row["Frame"] for row in rows)
