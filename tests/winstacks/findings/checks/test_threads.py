# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks of where threads were started, and of who opened another process."""

from __future__ import annotations

import re
import struct
from typing import Sequence

import pytest

from tests.forge.handles import named
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.vad import EXECUTE_READWRITE
from tests.support.clean.host64 import GROUND, Host64
from tests.support.clean.wow import Program32
from tests.support.findingimages import (
    ALL,
    PRIVATE,
    RETURNS,
    TID,
    X64,
    FindingImage,
    answered,
    found,
    severities,
)
from tests.support.grid import MASK
from tests.support.only import only
from tests.support.tracedkernels import new_kernel

START, HANDLE = "start_mismatch", "foreign_handle"
CLOSURE = 0x22000000
VM_WRITE, VM_READ, QUERY, SET_CONTEXT = 0x20, 0x10, 0x1000, 0x10


@pytest.mark.parametrize("name", ALL)
def test_a_thread_that_was_started_in_private_memory(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.thread.ethread["Win32StartAddress"] = PRIVATE + 0x40
    row = only(found(forged.image(), START))
    assert (row["Severity"], row["PID"], row["TID"], row["Frame"]) == ("medium", 1000, TID, None)
    assert (row["Address"], row["Symbol"]) == (PRIVATE + 0x40, "<private>")


def test_threads_with_one_start_are_counted_and_not_their_stacks() -> None:
    """Each of two threads has a kernel stack and one of user mode."""
    host = Host64("win10-x64")
    program = host.program("app.exe", functions="main")
    start = program.jitted()
    for _ in range(2):
        thread = program.thread("main")
        program.waits("main", "kernelbase!SleepEx", thread=thread)
        thread.ethread["Win32StartAddress"] = start + 0x40
    row = only(found(host.kernel.image(), START))
    assert str(row["Evidence"]).endswith("; 2 threads")


@pytest.mark.parametrize("name", ALL)
def test_a_thread_that_was_started_where_nothing_is(name: str) -> None:
    forged = FindingImage(name)
    forged.thread.ethread["Win32StartAddress"] = 0x31000000
    row = only(found(forged.image(), START))
    assert (row["Severity"], row["Symbol"]) == ("medium", "<unmapped>")


@pytest.mark.parametrize("name", ALL)
def test_a_thread_that_was_started_in_an_image_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    assert found(forged.image(), START) == []


@pytest.mark.parametrize("name", X64)
def test_a_start_in_a_registered_range_is_low(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.register_table(PRIVATE, PRIVATE + 0x800)
    forged.thread.ethread["Win32StartAddress"] = PRIVATE + 0x40
    assert severities(forged.image(), START) == ["low"]


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        ("f30f1efa 4c8d1510000000 49bbTARGET 41ffe3", "low"),
        ("49ba1122334455667788 48b8TARGET 48ffe0", "low"),
        ("49ba1122334455667788 48b8TARGET ffe0", "low"),
        ("49ba1122334455667788 48b8BASIC ffe0", "medium"),
        ("48b90000000000000000 90", "medium"),
    ],
)
def test_a_start_in_a_closure_or_delegate(code: str, severity: str) -> None:
    """It jumps into a module, other than those that all processes have."""
    forged = FindingImage("win10-x64")
    forged.private()
    ffi = forged.app.module("libffi-8.dll", exports={"ffi_call": 0x1100}).base + 0x1100
    basic = forged.stacks.modules["kernelbase"].base + 0x1100
    for word, address in (("TARGET", ffi), ("BASIC", basic)):
        code = code.replace(word, address.to_bytes(8, "little").hex())
    forged.app.space.write(PRIVATE + 0x40, bytes.fromhex(code))
    forged.thread.ethread["Win32StartAddress"] = PRIVATE + 0x40
    row = only(found(forged.image(), START))
    assert row["Severity"] == severity
    assert row["Innocent"].startswith("a closure or delegate") == (severity == "low")


def test_a_start_in_code_that_is_not_in_the_image() -> None:
    """It may be a closure."""
    forged = FindingImage("win10-x64")
    forged.private()
    forged.thread.ethread["Win32StartAddress"] = PRIVATE + 0x40
    forged.app.space.set_state(PRIVATE, PAGE, State.MISSING)
    row = only(found(forged.image(), START))
    assert (row["Severity"], row["Confidence"]) == ("medium", "possible")
    assert row["Innocent"].endswith("jumps into a module, is not in the image")


@pytest.mark.parametrize(
    ("target", "severity"), [("libffi-8!ffi_closure_win64_inner", "low"), ("kernelbase!SleepEx", "medium")]
)
def test_a_closure_of_a_32_bit_program(target: str, severity: str) -> None:
    """Its code is read as 32-bit code, whichever stack of the thread is looked at."""
    host = Host64("win10-x64")
    program = Program32(host, "python.exe", "libffi-8.dll", functions="main")
    program.wide.process.region(CLOSURE, size=0x1000, protection=EXECUTE_READWRITE)
    distance = program.narrow.at(target) - CLOSURE - 10
    program.narrow.space.write(CLOSURE, b"\xb8\0\0\0\x22\xe9" + struct.pack("<i", distance))
    program.wide.waits("start", thread=program.wide.thread(win32_start=CLOSURE))
    assert set(severities(host.kernel.image(), START)) == {severity}


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    ("ground", "start", "expected"),
    [
        (GROUND, "kernelbase!SleepEx", ["low"]),
        (GROUND[:1], "kernelbase!SleepEx", ["low"]),
        (GROUND, "Work", []),
        (GROUND[:1], "kernel32!BaseThreadInitThunk", []),
        (("ntdll!RtlUserFiberStart",), "kernelbase!SleepEx", []),
    ],
)
def test_the_ground_called_another_image_than_that_of_the_start(
    name: str, ground: Sequence[str], start: str, expected: list[str]
) -> None:
    """Functions are never compared, only images; and only above the functions in which threads begin."""
    host = Host64(name)
    program = host.program("app.exe", functions="main Work")
    thread = program.thread(start)
    program.waits("main", "kernelbase!WaitForSingleObjectEx", ground=ground, thread=thread)
    rows = found(host.kernel.image(), START)
    assert [row["Severity"] for row in rows] == expected
    for row in rows:
        assert (row["Confidence"], row["TID"], row["Kind"]) == ("possible", thread.tid, "user")
        assert (row["Symbol"], row["Innocent"].partition(": ")[2]) == (start, "app!main+0x20")


@pytest.mark.parametrize("name", X64)
def test_a_thread_whose_start_routine_has_returned_began_in_no_other_image(name: str) -> None:
    """It waits in ntdll, in what a DLL does when a thread ends."""
    host = Host64(name)
    program = host.program("app.exe", functions="main Work")
    thread = program.thread("Work")
    program.waits("ntdll!RtlExitUserThread", "kernelbase!SleepEx", ground=GROUND, thread=thread)
    assert found(host.kernel.image(), START) == []


def test_before_vista_starts_are_not_checked() -> None:
    kernel = new_kernel("xp-x86")
    kernel.process("app.exe", pid=1000).thread(1004)
    rows = answered(kernel.image(), check=[START])
    assert "before Vista Win32StartAddress is overwritten" in [row["Evidence"] for row in rows]
    assert {row["Severity"] for row in rows} == {None}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("victim", ["victim.exe", "lsass.exe", "LSASS.EXE"])
def test_private_code_that_opened_another_process_to_write(name: str, victim: str) -> None:
    forged = FindingImage(name)
    forged.private()
    other = forged.kernel.process(victim, pid=2000)
    forged.opens(other.eprocess, VM_WRITE | QUERY, RETURNS)
    row = only(found(forged.image(), HANDLE))
    assert (row["Severity"], row["PID"], row["TID"], row["Kind"]) == ("high", 1000, TID, "handle")
    assert f"handle 0x84 to Process {victim} Pid 2000, PROCESS_VM_WRITE; VAD" in row["Evidence"]
    assert row["Technique"] == ("T1055" if victim == "victim.exe" else "T1003.001")


@pytest.mark.parametrize("name", ["win10-x64", "win7-x86"])
def test_a_handle_that_was_duplicated_into_another_process(name: str) -> None:
    """The row is of the process with the code: by the ID that the event has, which another one pretends."""
    forged = FindingImage(name)
    forged.private()
    forged.kernel.process("twin.exe", pid=2004).eprocess["UniqueProcessId"] = forged.app.pid
    victim, holder = (forged.kernel.process(f"{pid}.exe", pid) for pid in (2000, 2008))
    forged.opens(victim.eprocess, VM_WRITE, RETURNS, holder=holder)
    row = only(found(forged.image(), HANDLE))
    assert (row["Severity"], row["PID"], row["Process"], row["TID"]) == ("high", 1000, "stacks.exe", TID)
    assert row["ProcessOffset"] == forged.app.eprocess.address & MASK
    assert row["Evidence"].startswith("handle 0x84 of 2008.exe (2008) to Process 2000.exe Pid 2000, ")
    assert f" --pid 1000 --address {RETURNS:#x}" in row["Next"]


def test_a_process_that_gives_another_a_handle_to_itself_is_silent() -> None:
    forged = FindingImage("win10-x64")
    forged.private()
    forged.opens(forged.app.eprocess, VM_WRITE, RETURNS, holder=forged.kernel.process("in.exe", pid=2000))
    assert found(forged.image(), HANDLE) == []


def test_a_process_whose_id_was_overwritten_opened_another() -> None:
    forged = FindingImage("win10-x64")
    forged.private()
    forged.opens(forged.kernel.process("victim.exe", pid=2000).eprocess, VM_WRITE, RETURNS)
    forged.app.eprocess["UniqueProcessId"] = 3000
    row = only(found(forged.image(), HANDLE))
    assert (row["Severity"], row["PID"], row["Symbol"]) == ("high", 3000, "<private>")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("victim", "access", "expected"),
    [("lsass.exe", VM_READ, ["high"]), ("victim.exe", VM_READ, []), ("victim.exe", QUERY, [])],
)
def test_which_rights_matter(name: str, victim: str, access: int, expected: list[str]) -> None:
    """To read is enough where it is lsass that is read."""
    forged = FindingImage(name)
    forged.private()
    forged.opens(forged.kernel.process(victim, pid=2000).eprocess, access, RETURNS)
    assert severities(forged.image(), HANDLE) == expected


@pytest.mark.parametrize(
    ("access", "rights"),
    [
        (0x2, "PROCESS_CREATE_THREAD"),
        (0x8, "PROCESS_VM_OPERATION"),
        (0x20, "PROCESS_VM_WRITE"),
        (0x40, "PROCESS_DUP_HANDLE"),
        (0x42, "PROCESS_CREATE_THREAD PROCESS_DUP_HANDLE"),
    ],
)
def test_each_right_to_a_process_that_matters(access: int, rights: str) -> None:
    forged = FindingImage("win10-x64")
    forged.private()
    forged.opens(forged.kernel.process("victim.exe", pid=2000).eprocess, access | QUERY, RETURNS)
    row = only(found(forged.image(), HANDLE))
    assert f"Process victim.exe Pid 2000, {rights}; VAD" in row["Evidence"]


@pytest.mark.parametrize(("name", "offset"), [("win7-x64", 8), ("win10-x64", -8)])
def test_a_moved_handle_table_is_told(name: str, offset: int) -> None:
    """The handle leads to no object, or is in no entry: what private code opened is lost."""
    forged = FindingImage(name)
    forged.private()
    forged.opens(forged.kernel.process("victim.exe", pid=2000).eprocess, VM_WRITE, RETURNS)
    image = forged.image()
    place = forged.app.eprocess["ObjectTable"] + forged.kernel.isf.offset("_HANDLE_TABLE", "TableCode")
    forged.kernel.space.write_int(place, forged.kernel.space.read_int(place, 8) + offset, 8)
    row = only(answered(image, check=[HANDLE]))
    assert row["Severity"] is None
    assert re.search(r"such code opened .*: stacks\.exe$", row["Evidence"])


@pytest.mark.parametrize("name", ALL)
def test_a_process_that_opened_itself_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.opens(forged.app.eprocess, VM_WRITE, RETURNS)
    assert found(forged.image(), HANDLE) == []


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("own", [False, True])
def test_private_code_that_opened_a_thread(name: str, own: bool) -> None:
    forged = FindingImage(name)
    forged.private()
    other = forged.app if own else forged.kernel.process("victim.exe", pid=2000)
    forged.opens(other.thread(2004).ethread, SET_CONTEXT, RETURNS)
    assert severities(forged.image(), HANDLE) == ([] if own else ["high"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("C:\\Users\\ann\\tool.exe", ["low"]),
        ("C:\\Program Files\\Tool\\tool.exe", []),
        ("C:\\Windows\\System32\\tool.exe", []),
    ],
)
def test_a_program_that_opened_another_process(name: str, path: str, expected: list[str]) -> None:
    forged = FindingImage(name)
    tool = forged.app.module("tool.exe", path=path)
    forged.opens(forged.kernel.process("victim.exe", pid=2000).eprocess, VM_WRITE, tool.base + 0x1010)
    assert severities(forged.image(), HANDLE) == expected


@pytest.mark.parametrize(
    ("path", "expected"), [("C:\\Users\\ann\\", ["low"]), ("C:\\", ["low"]), ("C:\\Windows\\", [])]
)
def test_a_second_ntdll_makes_no_folder_windows_own(path: str, expected: list[str]) -> None:
    """An implant may map such a file from its own folder: which of the two is Windows' own is unknown."""
    forged = FindingImage("win10-x64")
    forged.app.module("ntdll.dll", path=f"{path}System32\\ntdll.dll")
    tool = forged.app.module("tool.exe", path=f"{path}tool.exe")
    forged.opens(forged.kernel.process("victim.exe", pid=2000).eprocess, VM_WRITE, tool.base + 0x1010)
    assert severities(forged.image(), HANDLE) == expected


@pytest.mark.parametrize("name", X64)
def test_a_registered_range_that_opened_another_process_is_low(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.register_table(PRIVATE, PRIVATE + 0x800)
    forged.opens(forged.kernel.process("victim.exe", pid=2000).eprocess, VM_WRITE, RETURNS)
    assert severities(forged.image(), HANDLE) == ["low"]


@pytest.mark.parametrize("name", ALL)
def test_events_of_other_objects_are_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.opens(named(forged.kernel, "_KEVENT", "Event", "Ready"), 0x1F0003, RETURNS)
    assert found(forged.image(), HANDLE) == []


@pytest.mark.parametrize("name", ALL)
def test_without_handle_traces_it_is_not_checked(name: str) -> None:
    rows = answered(FindingImage(name).image(), check=[HANDLE])
    assert [(row["Status"], row["Evidence"]) for row in rows] == [
        ("not checked", "no process traces its handles")
    ]
