# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The checks of return addresses that no call left, and of those at which code jumps on."""

from __future__ import annotations

from typing import List, Optional

import pytest

from tests.forge.code import Routine, module_options
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.machines.implants import WAIT_EX
from tests.machines.programs import own_stack
from tests.support.clean.host64 import Host64
from tests.support.findingimages import TID, X64, FindingImage, Row, answered, found
from tests.support.only import only
from winstacks.findings.code.returns import jumps_on, jumps_on_kept

NO_CALL, GADGET = "no_call", "gadget"
CODE = Routine(0x1100, pushes=(3,), alloc=0x28)
SITE, ELSEWHERE = CODE.rva + 0x20, CODE.rva + 0x15
"""Behind a call, and behind none."""
JUMP = b"\xff\x23"


def returning(name: str, rva: int, code: bytes = b"", export: Optional[str] = None) -> FindingImage:
    """A thread that returns to an RVA of a module, and what is there."""
    forged = FindingImage(name)
    forged.returns_to(library(forged, rva, code, export).base + rva)
    return forged


def library(
    forged: FindingImage, rva: int, code: bytes, export: Optional[str], path: Optional[str] = None
) -> Module:
    """A module with one function."""
    options = module_options([CODE], 0x5800, 64)
    data = bytearray(options["contents"][CODE.rva])
    data[rva - CODE.rva : rva - CODE.rva + len(code)] = code
    options["contents"][CODE.rva] = bytes(data)
    exports = {export: CODE.rva} if export else {}
    return forged.app.module("library.dll", exports=exports, path=path, **options)


@pytest.mark.parametrize("name", X64)
def test_a_return_address_behind_no_call(name: str) -> None:
    forged = returning(name, ELSEWHERE)
    row = only(found(forged.image(), NO_CALL))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("medium", "likely", "unwind")
    assert (row["TID"], row["Kind"], row["Technique"]) == (TID, "user", "T1055")
    assert row["Symbol"] == "library+0x1115"
    assert row["Evidence"].startswith(f"no call before {row['Address']:#x}; VAD ")
    assert found(forged.image(), GADGET) == []


@pytest.mark.parametrize("name", X64)
def test_hand_written_code_outside_windows_is_low(name: str) -> None:
    """Cygwin's _sigbe and the end of Boost's contexts are returned to, and called by none."""
    forged = FindingImage(name)
    module = library(forged, ELSEWHERE, b"", None, "C:\\Program Files\\Git\\usr\\bin\\library.dll")
    forged.returns_to(module.base + ELSEWHERE)
    row = only(found(forged.image(), NO_CALL))
    assert (row["Severity"], row["Confidence"]) == ("low", "possible")
    assert row["Innocent"].startswith("code written by hand")


def test_hand_written_code_of_a_program_is_low() -> None:
    """A coroutine of a program that lies in Windows' folder ends in the program's own code."""
    host = Host64("win10-x64")
    own_stack(host, "tool.exe", "finish")
    assert [row["Severity"] for row in found(host.kernel.image(), NO_CALL)] == ["low"]


@pytest.mark.parametrize("name", X64)
def test_a_stub_that_returns_where_no_call_is(name: str) -> None:
    """Contexts that are prepared for a chain of timers name where a stub returns."""
    forged = FindingImage(name)
    trap = forged.thread.kthread["TrapFrame"] + forged.kernel.isf.offset("_KTRAP_FRAME", "Rsp")
    slot = forged.kernel.space.read_int(trap, 8)
    forged.app.space.write_int(slot, library(forged, ELSEWHERE, b"", None).base + ELSEWHERE, 8)
    row = only(found(forged.image(), NO_CALL))
    assert (row["Severity"], row["How"], row["Frame"]) == ("medium", "leaf", 1)


@pytest.mark.parametrize("name", X64)
def test_a_jump_to_which_a_return_leads(name: str) -> None:
    forged = returning(name, ELSEWHERE, JUMP)
    row = only(found(forged.image(), GADGET))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("medium", "likely", "unwind")
    assert row["Evidence"].startswith(f"a jump at {row['Address']:#x}, no call before it; VAD ")
    assert found(forged.image(), NO_CALL) == []


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("code", [JUMP, b"\x41\xff\xe3"])
def test_a_jump_by_a_register_behind_a_call(name: str, code: bytes) -> None:
    row = only(found(returning(name, SITE, code).image(), GADGET))
    assert (row["Severity"], row["Confidence"]) == ("medium", "likely")
    assert "a call before it; VAD " in row["Evidence"]


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("code", [b"\xff\x25", b"\x48\xff\x25"])
def test_a_thunk_behind_a_call_is_low(name: str, code: bytes) -> None:
    forged = returning(name, SITE, code)
    row = only(found(forged.image(), GADGET))
    assert (row["Severity"], row["Confidence"]) == ("low", "possible")
    assert row["Innocent"].startswith("a call precedes the jump")
    assert found(forged.image(), NO_CALL) == []


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("check", [NO_CALL, GADGET])
def test_return_addresses_behind_calls_are_silent(name: str, check: str) -> None:
    assert found(returning(name, SITE).image(), check) == []


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("function", ["runtime.goexit", "runtime.goexit.abi0", "KiUserExceptionDispatcher"])
def test_functions_to_which_nothing_returns_are_silent(name: str, function: str) -> None:
    assert found(returning(name, ELSEWHERE, export=function).image(), NO_CALL) == []


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("beside", [True, False])
def test_code_that_the_process_changed_is_silent(name: str, beside: bool) -> None:
    """That is another check's; without a second process the section of the file shows it."""
    forged = FindingImage(name)
    app = forged.stacks.modules["app"]
    if beside:
        forged.beside("other.exe", 2000)
    app.write(CODE.rva + 0x18, b"\xcd\xcd")
    forged.returns_to(app.base + ELSEWHERE)
    assert answered(forged.image(), check=[NO_CALL]) == []


def crossing(name: str, code: bytes, kept: bool) -> FindingImage:
    """A thread that returns to the first bytes of a page; the process lacks the page before.

    Args:
        name: of the kernel
        code: what is there
        kept: the image section has that page
    """
    forged = FindingImage(name)
    routine = Routine(0x1FF0, pushes=(3,), alloc=0x28)
    options = module_options([routine], 0x5800, 64)
    data = bytearray(options["contents"][routine.rva])
    data[0x12 : 0x12 + len(code)] = code
    options["contents"][routine.rva] = bytes(data)
    module = forged.app.module("library.dll", **options)
    assert module.section is not None
    forged.app.space.set_state(module.base + 0x1000, PAGE, State.PROTOTYPE)
    if not kept:
        module.section.set_state(0x1000, PAGE, State.PAGEFILE)
    forged.returns_to(module.base + 0x2002)
    return forged


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("code", [b"", JUMP])
def test_code_before_a_return_address_that_cannot_be_read(name: str, code: bytes) -> None:
    """Nothing tells whether a call is there: that is said, and a jump behind it is no more than low."""
    image = crossing(name, code, kept=False).image()
    rows = answered(image, check=[NO_CALL])
    assert [(row["Severity"], row["Evidence"]) for row in rows] == [
        (None, "the page is not in memory: library")
    ]
    jumps = found(image, GADGET)
    assert [(row["Severity"], row["Confidence"]) for row in jumps] == [("low", "possible")] * bool(code)
    assert all(", code that cannot be read before it; " in row["Evidence"] for row in jumps)


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("check", "code"), [(NO_CALL, b""), (GADGET, JUMP)])
def test_code_before_a_return_address_that_only_the_section_has(name: str, check: str, code: bytes) -> None:
    row = only(found(crossing(name, code, kept=True).image(), check))
    assert (row["Severity"], row["Symbol"]) == ("medium", "library+0x2002")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ff23", True),
        ("ffe0", True),
        ("41ffe3", True),
        ("ff2500000000", True),
        ("48ff20", True),
        ("ffd0", False),
        ("e900000000", False),
        ("ff", False),
        ("41ff", False),
        ("", False),
    ],
)
def test_jumps_through_a_register_or_memory(code: str, expected: bool) -> None:
    assert jumps_on(bytes.fromhex(code)) == expected


@pytest.mark.parametrize(
    "code, kept",
    [
        ("ffe3", True),  # jmp rbx
        ("ff23", True),  # jmp [rbx]
        ("ff6708", True),  # jmp [rdi+8]
        ("ff6500", True),  # jmp [rbp+0]
        ("41ffe4", True),  # jmp r12
        ("41ff27", True),  # jmp [r15]
        ("48ffe0", False),  # jmp rax
        ("ff21", False),  # jmp [rcx]
        ("41ffe2", False),  # jmp r10
        ("ff2510", False),  # jmp [rip+..]
        ("ff2424", False),  # jmp [rsp]
        ("ffd3", False),  # call rbx
        ("41ff", False),
    ],
)
def test_registers_that_functions_keep(code: str, kept: bool) -> None:
    assert jumps_on_kept(bytes.fromhex(code)) == kept


GADGETS = "kernelbase!BaseDllReadWriteIniFile"


def spoofed(offset: int, lost: bool) -> List[Row]:
    """The findings of a stack that returns into a function of Windows with gadgets.

    Args:
        offset: of the gadget in the function
        lost: whether the kernel stack with the thread's registers is not in the image
    """
    host = Host64("win10-x64")
    program = host.program("app.exe", functions="main Work")
    thread = program.thread("main")
    program.waits("main", GADGETS, WAIT_EX, thread=thread)
    space, inside = program.process.space, program.at(GADGETS)
    slots = range(thread.user_stack_limit, thread.user_stack_base, 8)
    place = next(at for at in slots if space.read_int(at, 8) == inside + 0x20)
    space.write_int(place, inside + offset, 8)
    image = host.kernel.image()
    if lost:
        size = thread.stack_base - thread.stack_limit
        host.kernel.space.set_state(thread.stack_limit, size, State.MISSING)
    return found(image, GADGET)


@pytest.mark.parametrize("offset", [0x15, 0x20, 0x35])
def test_a_gadget_to_which_no_walk_leads(offset: int) -> None:
    row, walked = only(spoofed(offset, lost=True)), only(spoofed(offset, lost=False))
    assert (walked["Severity"], walked["How"]) == ("medium", "unwind")
    assert (row["Severity"], row["Confidence"], row["How"], row["Frame"]) == ("low", "possible", "scan", None)
    assert row["Innocent"].startswith("nothing known in this process; no walk leads to the value")
    assert row["Address"] == walked["Address"] and "; the stack has the address at 0x" in row["Evidence"]


def test_code_that_is_no_gadget_is_passed_by() -> None:
    assert spoofed(0x25, lost=True) == []


def test_a_value_on_a_whole_stack_is_no_gadget() -> None:
    """The walk says which values are return addresses."""
    host = Host64("win10-x64")
    program = host.program("app.exe", functions="main Work")
    thread = program.thread("main")
    program.waits("main", "Work", WAIT_EX, thread=thread)
    program.process.space.write_int(thread.user_stack_base - 8, program.at(GADGETS) + 0x35, 8)
    assert found(host.kernel.image(), GADGET) == []
