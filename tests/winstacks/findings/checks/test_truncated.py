# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check of stacks that end where no stack of Windows ends."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest

from tests.forge import code, context
from tests.forge.code import Routine
from tests.forge.phys import PAGE
from tests.forge.space import Space
from tests.support import callstackimages, flattables
from tests.support.callstackimages import CALLBACK, WAIT_EX, StackImage
from tests.support.callstackimages86 import StackImage86, Wow64Threads
from tests.support.clean.host64 import Host64, Through
from tests.support.findingimages import TID, X64, X86, FindingImage, found
from tests.support.only import only

CHECK = "truncated"


def cut(forged: FindingImage, part: str = "user", left: int = 1) -> int:
    """Writes 0 over the return address of one of the outermost frames; returns the frame's address."""
    assert isinstance(forged.stacks, StackImage)
    frames: List[Tuple[int, int, str]] = forged.stacks.expected[TID, part].frames
    space = forged.app.space if part == "user" else forged.kernel.space
    # The return address of a frame lies below the stack pointer of its caller.
    space.write_int(frames[-left][1] - 8, 0, 8)
    return int(frames[-left - 1][0])


@pytest.mark.parametrize("name", X64)
def test_a_stack_that_was_cut_off(name: str) -> None:
    forged = FindingImage(name)
    address = cut(forged, left=2)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Confidence"], row["TID"], row["Kind"]) == ("medium", "likely", TID, "user")
    assert (row["Address"], row["Frame"], row["How"]) == (address, 1, "leaf")
    assert row["Symbol"].startswith("kernelbase!WaitEx+0x")
    assert row["Evidence"].startswith("the outermost of 2 frames, Sp 0x")
    assert row["Technique"] == "T1036"


@pytest.mark.parametrize("name", X64)
def test_a_stack_above_which_no_ground_of_threads_is_left(name: str) -> None:
    """So end coroutines, such as Ruby's, whose stacks are of their own making."""
    forged = FindingImage(name)
    cut(forged)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Frame"], row["Symbol"][:9]) == ("low", 2, "stacks+0x")
    assert row["Innocent"].startswith("a coroutine's stack")


@pytest.mark.parametrize("name", X64)
def test_whole_stacks_are_silent(name: str) -> None:
    """Threads that wait, that fault, that a dispatcher has sent on, and one of the system."""
    image = StackImage(name)
    image.waiting(1004)
    image.faulted(1008)
    image.dispatched(1012, ("KiUserExceptionDispatcher", CALLBACK), 0x33)
    image.system(12)
    assert found(image.kernel.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_a_call_of_a_null_pointer(name: str, tmp_path: pathlib.Path) -> None:
    """A program's filter waits, after a call of address 0: who called is on the stack."""
    host = Host64(name)
    program = host.program("crashed.exe", functions="main Work Parse Filter")
    thread = program.thread("main")
    dispatcher = Through("KiUserExceptionDispatcher")
    program.waits("main", "Work", "Parse", dispatcher, "ntdll!RtlDispatchException", "Filter", thread=thread)
    space = program.process.space

    def place_of(value: int) -> int:
        slots = range(thread.user_stack_base - 8, thread.user_stack_limit, -8)
        return next(slot for slot in slots if space.read_int(slot, 8) == value)

    returned = program.at("Parse") + 0x20
    machine_frame = place_of(returned - 5)
    space.write_int(machine_frame, 0, 8)
    # The call that led to address 0 has pushed where it would return.
    space.write_int(machine_frame + 0x18, place_of(returned), 8)
    image = host.kernel.image()
    assert found(image, CHECK) == []
    opened = context.open_image(image, tmp_path)
    frames = flattables.frames(opened, kinds=["user"])
    shown = [(row["Symbol"].partition("+")[0], row["How"], row["Status"]) for row in frames]
    place = shown.index(("<zero>", "trap", ""))
    assert shown[place + 1 : place + 4] == [
        ("crashed!Parse", "scan", "unsure"),
        ("crashed!Work", "unwind", "unsure"),
        ("crashed!main", "unwind", "unsure"),
    ]


@pytest.mark.parametrize("name", X64)
def test_a_kernel_stack_that_was_cut_off(name: str) -> None:
    """Its outermost frame is in a driver."""
    image = StackImage(name)
    image.system(12)
    frames = image.expected[12, "kernel"].frames
    image.kernel.space.write_int(frames[-1][1] - 8, 0, 8)
    row = only(found(image.kernel.image(), CHECK))
    assert (row["Severity"], row["Kind"], row["PID"]) == ("medium", "kernel", 4)
    assert row["Symbol"].startswith("disk+0x")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("part", "function"), [("user", "RtlUserThreadStart"), ("kernel", "KiIdleLoop")])
def test_a_module_of_ones_own_cannot_lend_the_name(
    name: str, part: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program and a driver export a function of that name, in which the stack ends."""
    routine = callstackimages.MAIN if part == "user" else callstackimages.DRIVER

    def options(routines: List[Routine], *rest: Any) -> Dict[str, Any]:
        module_options = code.module_options(routines, *rest)
        return (
            {**module_options, "exports": {function: routine.rva}}
            if routines == [routine]
            else module_options
        )

    monkeypatch.setattr(callstackimages, "module_options", options)
    image = StackImage(name)
    thread = image.waiting(TID) if part == "user" else image.system(TID)
    frames = image.expected[TID, part].frames
    space = image.kernel.space if part == "kernel" else thread.process.space
    space.write_int(frames[-1][1] - 8, 0, 8)
    row = only(found(image.kernel.image(), CHECK))
    # No ground of threads is left above the cut of the user's stack.
    assert (row["Severity"], row["Kind"], row["TID"]) == ("low" if part == "user" else "medium", part, TID)
    assert f"!{function}+0x" in row["Symbol"]


@pytest.mark.parametrize("name", X64)
def test_a_walk_that_guessed_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.app.region(0x21000000, b"\x90" * 0x100, size=0x1000, file="\\Windows\\code.bin")
    forged.interrupted_at(0x21000020)
    cut(forged)
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_where_no_function_has_a_name_it_is_silent(name: str) -> None:
    """An ntdll whose exports are not in memory does not tell where stacks end."""
    forged = FindingImage(name)
    cut(forged)
    image = forged.image()
    ntdll = forged.stacks.modules["ntdll"]
    forged.app.space.write(ntdll.base, bytes(0x400))
    assert found(image, CHECK) == []


@pytest.mark.parametrize("name", X64)
def test_a_fiber_is_low(name: str) -> None:
    forged = FindingImage(name)
    cut(forged)
    image = forged.image()
    assert forged.thread.teb is not None
    forged.thread.teb["HasFiberData"] = 1
    row = only(found(image, CHECK))
    assert (row["Severity"], row["Innocent"]) == ("low", "a fiber: the TEB has fiber data")


@pytest.mark.parametrize("name", X64)
def test_a_page_of_zeros_is_low(name: str) -> None:
    """Programs that take images write zeros for what they cannot read."""
    forged = FindingImage(name)
    forged.interrupted_at(forged.stacks.modules["kernelbase"].base + WAIT_EX.rva + 0x15)
    image = forged.image()
    assert isinstance(forged.stacks, StackImage)
    sp = forged.stacks.expected[TID, "user"].frames[0][1]
    forged.app.space.write(sp & ~0xFFF, bytes(0x1000))
    row = only(found(image, CHECK))
    assert (row["Severity"], row["Symbol"]) == ("low", "kernelbase!WaitEx+0x15")
    assert row["Innocent"].startswith("a page of the stack that could not be read")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("runtime", ["jvm.dll", "go.exe"])
def test_a_runtime_that_switches_stacks_is_low(name: str, runtime: str) -> None:
    forged = FindingImage(name)
    cut(forged)
    name_of_runtime = "Go"
    if runtime == "jvm.dll":
        forged.app.module(runtime)
        name_of_runtime = runtime
    image = forged.image()
    if runtime == "go.exe":
        program = forged.stacks.modules["app"].base
        headers = forged.app.space.read(program, 0x400)
        forged.app.space.write(program + headers.index(b".rdata\0\0"), b".symtab\0")
    rows = found(image, CHECK)
    assert [row["Severity"] for row in rows] == ["low"]
    assert rows[0]["Innocent"] == f"{name_of_runtime}: a runtime that switches stacks"


@pytest.mark.parametrize("name", ["win10-x64", "win11-x64"])
@pytest.mark.parametrize("member", ["PicoContext", "Minimal", "Pcb.SecureState.SecureHandle"])
def test_other_kinds_of_processes_are_silent(name: str, member: str) -> None:
    forged = FindingImage(name)
    cut(forged)
    forged.app.eprocess[member] = 1
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", X86)
@pytest.mark.parametrize("whole", [True, False])
def test_on_x86_it_is_low(name: str, whole: bool) -> None:
    image = StackImage86(name)
    image.waiting(TID, interrupted=False)
    if not whole:
        cut86(image.app.space, image.expected[TID, "user"][-1][0])
    rows = [row for row in found(image.kernel.image(), CHECK) if row["Kind"] == "user"]
    assert [row["Severity"] for row in rows] == ([] if whole else ["low"])
    assert all(row["Innocent"].startswith("32-bit code without a frame pointer") for row in rows)


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("whole", [True, False])
def test_with_32_bits_it_is_low(name: str, whole: bool) -> None:
    image = StackImage(name)
    Wow64Threads(image).in_system_call(1016)
    if not whole:
        cut86(image.app.space, image.expected[1016, "wow64"].frames[-1][0])
    rows = found(image.kernel.image(), CHECK)
    assert [(row["Severity"], row["Kind"]) for row in rows] == ([] if whole else [("low", "wow64")])


def cut86(space: Space, outermost: int) -> None:
    """Ends the chain of frame pointers before the outermost frame, whose return address is given."""
    expected = outermost.to_bytes(4, "little")
    pages = {page: space.read(page, PAGE) for page in space.own_pages()}
    slot = only(page + data.index(expected) for page, data in pages.items() if expected in data)
    space.write(slot - 4, bytes(8))
