# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code of images that one process has changed, where its thread goes on."""

from __future__ import annotations

import pathlib
import random
import re
import struct
from typing import Any, Dict, List, Optional, Set, Tuple

import pytest

from tests.forge import modulefile
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.process import Process
from tests.machines import product
from tests.machines.implants import WAIT_EX as WAITS
from tests.support.bare import MACHINES
from tests.support.callstackimages import MAIN, STUB, WAIT_EX
from tests.support.clean.host64 import Host64
from tests.support.findingimages import ALL, TID, X64, FindingImage, answered, found, severities
from tests.support.only import only
from winstacks.findings.code.jumps import follow_jumps
from winstacks.findings.finding import NONE_KNOWN

CHECK = "modified_code"
OTHER_CODE = b"\xcd\x2e" * 0x20
CODE_FLAGS, ALL_FLAGS = 0x60000020, 0xE0000020
"""Characteristics of a section with code: without and with IMAGE_SCN_MEM_WRITE."""


def changed(name: str, rva: int, data: bytes, module: str = "ntdll", beside: int = 2) -> FindingImage:
    """An image in which one process has changed a module, and others have not."""
    forged = FindingImage(name)
    for number in range(beside):
        forged.beside(f"other{number}.exe", 2000 + 4 * number)
    forged.stacks.modules[module].write(rva, data)
    return forged


def jump_to(at: int, target: int) -> bytes:
    return b"\xe9" + struct.pack("<i", target - at - 5)


def hook(forged: FindingImage, target: int, process: Optional[Process] = None) -> None:
    """Puts a jump in the place of the entry of the system call's stub."""
    at = forged.stacks.modules["ntdll"].base + STUB.rva
    (process or forged.app).space.write(at, jump_to(at, target))


def near(forged: FindingImage) -> int:
    """Private memory that such a jump reaches."""
    at = forged.stacks.modules["ntdll"].base + 0x1000000
    forged.app.region(at, b"\xc3", size=0x1000, protection=6)
    return at


@pytest.mark.parametrize("name", ALL)
def test_a_function_that_was_written_over(name: str) -> None:
    forged = changed(name, STUB.rva, OTHER_CODE)
    at = forged.stacks.modules["ntdll"].base + STUB.rva
    row = found(forged.image(), CHECK)[0]
    assert (row["Severity"], row["Confidence"], row["How"], row["Frame"], row["TID"]) == (
        "high",
        "certain",
        "trap",
        0,
        TID,
    )
    assert row["Technique"] == "T1055.001, T1562.001"
    assert f"differ from most of 2 processes, from {at:#x} on cd 2e" in row["Evidence"]
    assert "; PID 200" in row["Evidence"]
    assert row["Innocent"] == "nothing known in this process"


@pytest.mark.parametrize("name", ALL)
def test_a_module_that_only_the_vads_show_is_possible(name: str) -> None:
    """Without the loader's list nothing but the VAD says which module the changed code belongs to."""
    forged = changed(name, STUB.rva, OTHER_CODE)
    image = forged.image()
    assert forged.app.peb is not None
    forged.app.peb["Ldr"] = 0
    row = only(found(image, CHECK))
    assert row["Status"] == "no loader list"
    assert (row["Severity"], row["Confidence"]) == ("medium", "possible")
    assert row["Innocent"] == "the lists that cover the address are incomplete: Status; " + NONE_KNOWN


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("rva", [MAIN.rva, MAIN.rva + 0x18])
def test_a_function_to_which_a_call_returns(name: str, rva: int) -> None:
    """Its entry counts as well as what is around the frame."""
    row = only(found(changed(name, rva, b"\xcc\xcd\xce", "app").image(), CHECK))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("high", "likely", "unwind")
    assert row["Symbol"].startswith("stacks+")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rva", [0x1800, STUB.rva - 0x80])
def test_a_page_with_code_that_nothing_explains_is_medium_where_a_thread_runs_beside_it(
    name: str, rva: int
) -> None:
    row = only(found(changed(name, rva, OTHER_CODE).image(), CHECK))
    assert (row["Severity"], row["PID"], row["Frame"] is not None) == ("medium", 1000, True)
    assert row["Evidence"].startswith("64 bytes differ from most of 2 processes")
    assert "others on its page do not" in row["Innocent"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("data", "beside"), [(b"\xcc", 2), (OTHER_CODE, 1)])
def test_a_breakpoint_beside_it_or_one_other_process_is_low(name: str, data: bytes, beside: int) -> None:
    row = only(found(changed(name, 0x1800, data, beside=beside).image(), CHECK))
    assert row["Severity"] == "low"
    assert row["Evidence"].startswith("a private copy of the page; in ntdll.dll, the file \\Windows")
    assert row["Innocent"].startswith("the function has the bytes of its file")


@pytest.mark.parametrize(
    "code",
    ["4c8bd1 b855000000 48ba0000341200000000 ffe2", "e900000010"],
    ids=["a stub that keeps its number", "a jump to a relay that is not in the image"],
)
def test_a_hook_beside_it_is_low(code: str) -> None:
    row = only(found(changed("win10-x64", 0x1800, bytes.fromhex(code)).image(), CHECK))
    assert (row["Severity"], row["Innocent"].startswith("the function has the bytes of its file")) == (
        "low",
        True,
    )


def test_a_hook_over_a_longer_hook_is_explained() -> None:
    """A product hooks each process by 5 bytes, and one had a hook of 12, whose end is left."""
    host = Host64("win10-x64")
    for number in range(4):
        other = host.program(f"other{number}.exe", functions="main")
        other.waits("main", WAITS)
    program = host.program("app.exe", functions="main")
    program.load("guide.dll", "HookCreate", path="C:\\Program Files\\Guide\\guide.dll", key="guide")
    jump = b"\x48\xb8" + struct.pack("<Q", program.at("guide!HookCreate")) + b"\xff\xe0"
    program.process.space.write(program.at("ntdll!NtCreateFile"), jump)
    program.waits("main", WAITS)
    product.hook_all(host)
    rows = [row for row in found(host.kernel.image(), CHECK) if row["Process"] == "app.exe"]
    assert {row["Severity"] for row in rows} == {"low"}


@pytest.mark.parametrize("name", ALL)
def test_a_copy_of_a_page_with_the_bytes_of_the_file_is_low_and_a_shared_page_is_silent(name: str) -> None:
    forged = changed(name, 0x1800, b"")
    ntdll = forged.stacks.modules["ntdll"]
    forged.app.space.write(ntdll.base + 0x1800, forged.app.space.read(ntdll.base + 0x1800, 1))
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["PID"]) == ("low", 1000)


@pytest.mark.parametrize("name", ALL)
def test_what_all_processes_have_is_compared_with_the_section(name: str) -> None:
    """Several may be overwritten alike; no process can write the section's page."""
    forged = changed(name, STUB.rva, OTHER_CODE)
    for process in forged.kernel.processes:
        if process.pid >= 2000:
            process.space.write(forged.stacks.modules["ntdll"].base + STUB.rva, OTHER_CODE)
    row = only(found(forged.image(), CHECK))
    assert row["Severity"] == "medium"
    assert re.match(r"\d+ bytes? differs? from the section of the file; \d other processes", row["Evidence"])


@pytest.mark.parametrize("name", ALL)
def test_a_private_page_that_all_have_is_low_where_the_section_s_is_lost(name: str) -> None:
    forged = changed(name, STUB.rva, OTHER_CODE)
    ntdll = forged.stacks.modules["ntdll"]
    for process in forged.kernel.processes:
        if process.pid >= 2000:
            process.space.write(ntdll.base + STUB.rva, OTHER_CODE)
    image = forged.image()
    for section in forged.kernel.sections:
        section.set_state(STUB.rva & ~0xFFF, 0x1000, State.MISSING)
    row = only(found(image, CHECK))
    assert (row["Severity"], row["PID"] is not None) == ("low", True)
    assert row["Evidence"].startswith("a private copy of the page, as ")


@pytest.mark.parametrize("name", ALL)
def test_a_hook_that_leads_into_an_image_is_low(name: str) -> None:
    forged = changed(name, 0x1800, b"\xcc")
    target = forged.stacks.modules["kernelbase"].base + WAIT_EX.rva
    hook(forged, target)
    row = only(found(forged.image(), CHECK))
    assert row["Severity"] == "low"
    assert row["Innocent"] == f"the entry jumps to {target:#x} kernelbase!WaitEx"


@pytest.mark.parametrize("name", ALL)
def test_a_relay_that_leads_into_an_image_is_low(name: str) -> None:
    """Hooks reach far images by way of private memory nearby."""
    forged = changed(name, 0x1800, b"\xcc")
    relay, target = near(forged), forged.stacks.modules["kernelbase"].base + WAIT_EX.rva
    place = relay + 0x100
    forged.app.space.write(relay, b"\xff\x25" + struct.pack("<i", 0x100 - 6 if forged.wide else place))
    forged.app.space.write_int(place, target)
    hook(forged, relay)
    assert severities(forged.image(), CHECK) == ["low"]


@pytest.mark.parametrize("name", ALL)
def test_a_hook_that_leads_to_private_memory(name: str) -> None:
    forged = changed(name, 0x1800, b"\xcc")
    target = near(forged)
    hook(forged, target)
    row = only(found(forged.image(), CHECK))
    assert row["Severity"] == "high"
    assert row["Innocent"] == f"the entry jumps to {target:#x} <private>"


def relay(forged: FindingImage, process: Process, number: int, target: int, code: str) -> None:
    """Hooks a process by way of a relay, at an address of its own."""
    at = forged.stacks.modules["ntdll"].base + 0x1000000 + 0x1234560 * number
    relay_code = bytes.fromhex(code.replace("TARGET", target.to_bytes(8, "little").hex()))
    process.region(at & ~0xFFF, size=0x2000, protection=6)
    process.space.write(at, relay_code)
    hook(forged, at, process)


RELAYS = (
    "50 48b8 TARGET 48870424 c3",
    "4883ec08 50 48b8 TARGET 4889442408 58 c3",
    "4889442408 48b8 TARGET ffd0 c3",
)
"""push, exchange, return; one that moves Rsp; one that calls."""


@pytest.mark.parametrize("code", RELAYS)
@pytest.mark.parametrize(("hooked", "expected"), [(3, set()), (1, {"high"})])
def test_a_hook_of_all_processes_each_with_a_relay_of_its_own(
    code: str, hooked: int, expected: set[str]
) -> None:
    forged = changed("win10-x64", 0x1800, b"\xcc", beside=3)
    target = forged.app.module("guard.dll", exports={"Hook": 0x1100}).base + 0x1100
    for number, process in enumerate(
        [process for process in forged.kernel.processes if process.pid >= 1000][: hooked + 1]
    ):
        if process is not forged.app:
            process.module("guard.dll", target - 0x1100)
        relay(forged, process, number, target, code)
    rows = found(forged.image(), CHECK)
    assert {row["Severity"] for row in rows} - {"low"} == expected
    hooks = [row for row in rows if row["Frame"] == 0]
    assert all("into guard.dll" in row["Innocent"] for row in hooks)
    assert bool(hooks) == bool(expected)


@pytest.mark.parametrize("room", [0x10, 0x40, 0x100])
def test_a_relay_whose_last_bytes_call_its_product(room: int) -> None:
    """What is read of a relay ends with the memory behind it, or after 100h bytes."""
    forged = changed("win10-x64", 0x1800, b"\xcc", beside=3)
    product = forged.app.module("guard.dll", exports={"Hook": 0x1100})
    processes = [process for process in forged.kernel.processes if process.pid >= 1000]
    for number, process in enumerate(processes[:2]):
        if process is not forged.app:
            process.module("guard.dll", product.base)
        page = product.base + 0x100000 * (number + 1)
        process.region(page, size=0x1000, protection=6)
        at = page + 0x1000 - room
        jump = b"\xe9" + struct.pack("<i", product.base + 0x1100 - page - 0x1000)
        process.space.write(at, jump.rjust(room, b"\x90"))
        hook(forged, at, process)
    row = only(row for row in found(forged.image(), CHECK) if row["PID"] == forged.app.pid)
    assert "into guard.dll" in row["Innocent"]


@pytest.mark.parametrize(
    ("hooked", "lost", "severity"), [(4, 0, "low"), (2, 0, "high"), (4, 2, "low"), (4, 3, "high")]
)
def test_a_thread_that_returns_to_such_a_relay(hooked: int, lost: int, severity: str) -> None:
    """A relay that is not in memory says nothing of its process; one that is has to be there."""
    forged = changed("win10-x64", 0x1800, b"\xcc", beside=3)
    target = forged.app.module("guard.dll", exports={"Hook": 0x1100}).base + 0x1100
    processes = [process for process in forged.kernel.processes if process.pid >= 1000]
    for number, process in enumerate(processes[:hooked]):
        if process is not forged.app:
            process.module("guard.dll", target - 0x1100)
        relay(forged, process, number, target, RELAYS[2])
    at = forged.stacks.modules["ntdll"].base + 0x1000000
    forged.returns_to(at + 17)
    for number in range(1, lost + 1):
        page = at + 0x1234560 * number
        processes[number].space.set_state(page - page % 0x1000, 0x1000, State.PAGEFILE)
    rows = [row for row in found(forged.image(), "unbacked") if row["PID"] == 1000]
    assert [row["Severity"] for row in rows] == [severity]


VENDOR = "C:\\Program Files\\Vendor\\"


def products(*files: str, loaded: str = "", kept: bool = False) -> Dict[str, Any]:
    """The first row of a process beside others, which a product hooks, too.

    Args:
        files: of the product in each process, the own one first; "" for no hook
        loaded: a DLL that the process has loaded besides
        kept: whether the process has the bytes of the file on a page of its own
    """
    forged = changed("win10-x64", 0x1800, b"", beside=len(files) - 1)
    base = forged.stacks.modules["kernelbase"].base + 0x200000
    at = forged.stacks.modules["ntdll"].base + STUB.rva
    processes = [process for process in forged.kernel.processes if process.pid >= 1000]
    for number, (process, file) in enumerate(zip(processes, files)):
        for name in {file, loaded if process is forged.app else ""} - {""}:
            process.module(name, base + 0x100000 * (name == "new.dll"), path=f"{VENDOR}{name}")
        if file:
            relay(forged, process, number, base + 0x100000 * (file == "new.dll") + 0x1100, RELAYS[0])
    if kept:
        forged.app.space.write(at, forged.app.space.read(at, 0x10))
    return found(forged.image(), CHECK)[0]


def test_a_process_that_a_product_leaves_out_has_the_bytes_of_the_file() -> None:
    """Its page is a copy of its own all the same; others outvote neither file nor section."""
    row = products("", *["guard.dll"] * 3, kept=True)
    assert (row["Severity"], row["Frame"]) == ("low", 0)
    assert row["Evidence"].startswith("the bytes of the file, and not those of most of 3 processes, from 0x")
    assert "; in ntdll.dll, the file \\Windows\\System32\\ntdll.dll; " in row["Evidence"]
    assert "; the hook leads into guard.dll, not loaded here; " in row["Evidence"]
    assert row["Innocent"].startswith("a product that leaves this process out: it has not loaded guard.dll")


def test_a_hook_that_was_taken_out_leaves_the_product_behind() -> None:
    row = products("", *["guard.dll"] * 3, loaded="guard.dll", kept=True)
    assert row["Severity"] == "high"
    assert "; the hook leads into guard.dll, the file \\Program Files\\Vendor\\guard.dll; " in row["Evidence"]
    assert row["Innocent"].startswith("the hook was taken out: this process has loaded guard.dll")


@pytest.mark.parametrize(
    ("files", "severity", "words"),
    [
        (("guard.dll", "guard.dll", "", "", ""), "low", "so do the hooks of 1 other process that has loaded"),
        (("guard.dll", "", "", ""), "medium", "guard.dll, which this process has loaded"),
        (("new.dll", *["guard.dll"] * 9, "new.dll"), "low", "it has not loaded guard.dll"),
        (("new.dll", *["guard.dll"] * 4), "medium", "it has not loaded guard.dll"),
    ],
)
def test_a_hook_that_not_all_processes_have(files: Tuple[str, ...], severity: str, words: str) -> None:
    """Some programs only; or two versions of a product at once. Whose DLL is loaded decides."""
    row = products(*files)
    assert (row["Severity"], row["Frame"]) == (severity, 0)
    assert words in row["Innocent"]
    assert "; the hook leads into " + min(set(files) - {""}) in row["Evidence"]


def test_a_hook_beside_a_product_whose_dll_is_loaded_is_high() -> None:
    row = products("new.dll", *["guard.dll"] * 3, loaded="guard.dll")
    assert row["Severity"] == "high"


def test_a_given_file_outvotes_what_most_processes_have(tmp_path: pathlib.Path) -> None:
    """Others were written over; the section's page is not in the image."""
    forged = changed("win10-x64", 0x1800, b"\xcc", beside=3)
    ntdll = forged.stacks.modules["ntdll"]
    for process in forged.kernel.processes:
        if process.pid >= 2000:
            process.space.write(ntdll.base + STUB.rva, OTHER_CODE)
    image, files = forged.image(), modulefile.save([ntdll], tmp_path)
    for section in forged.kernel.sections:
        section.set_state(STUB.rva & ~0xFFF, 0x1000, State.MISSING)
    assert found(image, CHECK)[0]["Severity"] == "high"
    rows = found(image, CHECK, binaries=[str(files)])
    assert {row["Severity"] for row in rows if row["Frame"] == 0} == {"low"}


SAVES = "4889442408" * 0x1C
"""Stores of registers: a relay that saves them all is long."""


@pytest.mark.parametrize(
    ("offset", "written", "severity"),
    [(0x20, "", "low"), (0x9C, "", "low"), (0x9C, "90" * 0x20, "high"), (0xF0, "50" * 0x40, "high")],
)
def test_a_thread_that_was_interrupted_in_such_a_relay(offset: int, written: str, severity: str) -> None:
    """Code that other processes do not have in their relays is no relay's."""
    forged = changed("win10-x64", 0x1800, b"\xcc", beside=3)
    target = forged.app.module("guard.dll", exports={"Hook": 0x1100}).base + 0x1100
    for number, process in enumerate([process for process in forged.kernel.processes if process.pid >= 1000]):
        if process is not forged.app:
            process.module("guard.dll", target - 0x1100)
        relay(forged, process, number, target, SAVES + RELAYS[2])
    at = forged.stacks.modules["ntdll"].base + 0x1000000 + offset
    forged.app.space.write(at - len(written) // 4, bytes.fromhex(written))
    forged.interrupted_at(at)
    rows = [row for row in found(forged.image(), "unbacked") if row["PID"] == 1000]
    assert [(row["Severity"], row["How"]) for row in rows] == [(severity, "trap")]


def test_one_of_these_hooks_that_leads_elsewhere() -> None:
    forged = changed("win10-x64", 0x1800, b"\xcc", beside=3)
    target = forged.app.module("guard.dll", exports={"Hook": 0x1100}).base + 0x1100
    for number, process in enumerate([process for process in forged.kernel.processes if process.pid >= 1000]):
        if process is not forged.app:
            process.module("guard.dll", target - 0x1100)
        led_to = target if process is not forged.app else 0x1234
        relay(forged, process, number, led_to, RELAYS[0])
    assert {row["Severity"] for row in found(forged.image(), CHECK) if row["PID"] == 1000} == {"high"}


@pytest.mark.parametrize("name", ALL)
def test_a_hook_and_other_changes(name: str) -> None:
    """A jump into an image explains itself, and nothing else."""
    forged = changed(name, STUB.rva + 0x11, b"\xcc\xcd\xce\xcf")
    hook(forged, forged.stacks.modules["kernelbase"].base + WAIT_EX.rva)
    assert severities(forged.image(), CHECK) == ["high"]


def family(
    name: str, hooked: int, program: str = "stacks.exe", parent: str = "stacks.exe", lost: int = 0
) -> List[Dict[str, object]]:
    """The findings of a program's child that has a thunk, as so many of its two siblings have.

    So many siblings, from the last one on, have lost the page.
    """
    forged = changed(name, 0x1800, b"\xcc")
    forged.app.eprocess["InheritedFromUniqueProcessId"] = 900
    forged.beside(parent, 900)
    siblings = [forged.beside(program, 3000 + 4 * number, ppid=900) for number in range(2)]
    for number, process in enumerate([forged.app, *siblings[:hooked]]):
        hook(forged, near(forged) + 0x10000 * number, process)
    image = forged.image()
    page = (forged.stacks.modules["ntdll"].base + STUB.rva) & ~(PAGE - 1)
    for process in siblings[2 - lost :]:
        process.space.set_state(page, PAGE, State.MISSING)
    return [row for row in found(image, CHECK) if row["PID"] == 1000]


@pytest.mark.parametrize("name", ALL)
def test_a_thunk_that_every_child_of_a_program_has_is_low(name: str) -> None:
    """Each has memory of its own to which the thunk leads."""
    row = only(family(name, 2))
    assert row["Severity"] == "low"
    assert str(row["Innocent"]).endswith("<private>; so does every child of stacks.exe")


@pytest.mark.parametrize(("hooked", "lost", "severity"), [(1, 1, "low"), (0, 1, "high"), (0, 2, "high")])
def test_children_whose_page_is_not_in_the_image_say_nothing(hooked: int, lost: int, severity: str) -> None:
    """The others decide, and without any other nothing explains the thunk."""
    assert only(family("win10-x64", hooked, lost=lost))["Severity"] == severity


@pytest.mark.parametrize(
    ("hooked", "program", "parent"),
    [(1, "stacks.exe", "stacks.exe"), (2, "stacks.exe", "explorer.exe"), (2, "another.exe", "stacks.exe")],
)
def test_a_thunk_that_not_every_child_has(hooked: int, program: str, parent: str) -> None:
    row = only(family("win10-x64", hooked, program, parent))
    assert row["Severity"] == "high"


@pytest.mark.parametrize("name", X64)
def test_a_frame_that_a_scan_found_is_low(name: str) -> None:
    """Nothing tells how to go on from a mapped file, so that the caller is a guess."""
    forged = changed(name, WAIT_EX.rva, OTHER_CODE[:4], "kernelbase")
    forged.guesses("kernelbase")
    rows = found(forged.image(), CHECK)
    assert [(row["Severity"], row["Confidence"]) for row in rows] == [("low", "possible")]


@pytest.mark.parametrize("name", ALL)
def test_one_other_process(name: str) -> None:
    """Either of the two may have been changed."""
    row = only(found(changed(name, STUB.rva, OTHER_CODE, beside=1).image(), CHECK))
    assert (row["Severity"], row["Confidence"]) == ("high", "possible")
    assert row["Innocent"].startswith("only one other process maps the file")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    ("of_file", "of_process", "severity"),
    [(CODE_FLAGS, CODE_FLAGS, "medium"), (ALL_FLAGS, ALL_FLAGS, "low"), (CODE_FLAGS, ALL_FLAGS, "medium")],
)
def test_without_a_second_process_the_section_is_compared(
    name: str, of_file: int, of_process: int, severity: str
) -> None:
    """A module that no other process maps: only by the file's headers its section is writable."""
    forged = changed(name, WAIT_EX.rva, OTHER_CODE, "kernelbase", beside=0)
    base, space = forged.stacks.modules["kernelbase"].base, forged.app.space
    place = base + space.read(base, 0x400).index(b".text\0") + 0x24
    space.write_file(place, struct.pack("<I", of_file))
    if of_process != of_file:
        space.write(place, struct.pack("<I", of_process))
    image = forged.image()
    row = only(found(image, CHECK))
    assert (row["Severity"], row["Confidence"]) == (severity, "likely")
    assert "differ from the section of the file, which no other process maps" in row["Evidence"]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("beside", [0, 2])
@pytest.mark.parametrize(
    ("of_file", "of_process", "severities"),
    [
        ("random", "code", {"low"}),
        ("half", "code", {"medium"}),
        # No call can be seen before the frame's address: it is a guess, or no frame.
        ("code", "random", {"low", "medium"}),
        ("random", "other", {"low", "medium"}),
    ],
)
def test_a_program_that_decrypts_itself(
    name: str, beside: int, of_file: str, of_process: str, severities: Set[str]
) -> None:
    """The file's page is encrypted. A page that is masked now was not decrypted."""
    forged = FindingImage(name)
    module = forged.stacks.modules["app"]
    page, space = module.base + MAIN.rva // PAGE * PAGE, forged.app.space
    code = space.read(page, PAGE)
    cipher = [random.Random(f"{name} {seed}").randbytes(PAGE) for seed in range(2)]
    pages = {
        "random": cipher[0],
        "other": cipher[1],
        "code": code,
        "half": cipher[0][: PAGE // 2].ljust(PAGE, b"\0"),
    }
    space.write_file(page, pages[of_file])
    space.write(page, pages[of_process])
    for number in range(beside):
        forged.beside(f"other{number}.exe", 2000 + 4 * number)
    rows = [row for row in found(forged.image(), CHECK) if row["PID"] == forged.app.pid]
    assert {row["Severity"] for row in rows} <= severities
    assert rows or of_process != "code"
    decrypted = severities == {"low"}
    assert all(row["Innocent"].startswith("the file's page has no code") == decrypted for row in rows)


@pytest.mark.parametrize("name", ALL)
def test_without_a_second_process_and_the_section_it_is_not_checked(name: str) -> None:
    """One row says so, of however many frames; pages of the section need no second process."""
    forged = changed(name, STUB.rva, OTHER_CODE, beside=0)
    forged.stacks.modules["app"].write(MAIN.rva, OTHER_CODE)
    for module in forged.stacks.modules.values():
        if module.section is not None:
            for page in {STUB.rva & ~0xFFF, MAIN.rva & ~0xFFF}:
                forged.app.space.read(module.base + page, 1)
                module.section.set_state(page, 0x1000, State.PAGEFILE)
    rows = answered(forged.image(), check=[CHECK])
    assert [(row["Severity"], row["Status"]) for row in rows] == [(None, "not checked")]
    kernel, reason, *_ = rows[0]["Evidence"].split("; ")
    assert kernel == "the kernel's code: there is no second copy of it"
    assert reason.startswith("no second process maps the file: ")
    assert "ntdll" in reason


@pytest.mark.parametrize("name", X64)
def test_pages_of_the_section_need_no_second_process(name: str) -> None:
    rows = answered(FindingImage(name).image(), check=[CHECK])
    assert [row["Evidence"] for row in rows] == ["the kernel's code: there is no second copy of it"]


def read(memory: Dict[int, bytes], address: int, length: int) -> Optional[bytes]:
    for start, data in memory.items():
        if start <= address and address + length <= start + len(data):
            return data[address - start : address - start + length]
    return None


AT, FAR = 0x401000, 0x7FF812345678


@pytest.mark.parametrize(
    ("code", "pointer_size", "expected"),
    [
        ("eb 10", 8, AT + 0x12),
        ("eb fe", 8, AT),
        ("e9 00 01 00 00", 4, AT + 0x105),
        ("e9 fb ff ff ff", 8, AT),
        ("ff 25 0a 00 00 00 cc cc cc cc cc cc cc cc cc cc 78 56 34 12 f8 7f 00 00", 8, FAR),
        ("ff 25 10 10 40 00 cc cc cc cc cc cc cc cc cc cc 78 56 34 12", 4, 0x12345678),
        ("ff 25 00 00 50 00", 4, None),
        ("48 b8 78 56 34 12 f8 7f 00 00 ff e0", 8, FAR),
        ("49 bb 78 56 34 12 f8 7f 00 00 41 ff e3", 8, FAR),
        ("48 b8 78 56 34 12 f8 7f 00 00 ff e1", 8, None),
        ("b8 78 56 34 12 ff e0", 4, 0x12345678),
        ("b8 78 56 34 12 ff e0", 8, None),
        ("68 78 56 34 12 c3", 4, 0x12345678),
        ("68 78 56 34 12 c7 44 24 04 f8 7f 00 00 c3", 8, FAR),
        ("4c 8b d1 b8 18 00 00 00", 8, None),
        ("", 8, None),
    ],
)
def test_jumps(code: str, pointer_size: int, expected: Optional[int]) -> None:
    memory = {AT: bytes.fromhex(code)}
    assert (
        follow_jumps(lambda address, length: read(memory, address, length), AT, MACHINES[pointer_size])
        == expected
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shared", (True, False), ids=("shared", "own"))
def test_a_file_is_the_second_copy_that_no_process_has(
    name: str, shared: bool, tmp_path: pathlib.Path
) -> None:
    """One process alone has the module; or the page was written to that all processes share."""
    forged = changed(name, STUB.rva, OTHER_CODE, beside=0)
    ntdll = forged.stacks.modules["ntdll"]
    if shared:
        forged = changed(name, STUB.rva, b"", beside=2)
        ntdll = forged.stacks.modules["ntdll"]
        forged.app.space.write_file(ntdll.base + STUB.rva, OTHER_CODE)
        assert not found(forged.image(), CHECK)
    files = modulefile.save([ntdll], tmp_path)
    row = found(forged.image(), CHECK, binaries=[str(files)])[0]
    assert (row["Severity"], row["Confidence"], row["Frame"]) == ("high", "certain", 0)
    assert f"differ from the file {tmp_path}" in row["Evidence"]
    assert f"from {ntdll.base + STUB.rva:#x} on cd 2e" in row["Evidence"]
    assert "; the file has " in row["Evidence"]
    assert "differs from the file: page" in row["Status"]


@pytest.mark.parametrize("name", X64)
def test_with_a_file_neither_process_nor_section_is_needed(name: str, tmp_path: pathlib.Path) -> None:
    forged = changed(name, STUB.rva, OTHER_CODE, beside=0)
    image, ntdll = forged.image(), forged.stacks.modules["ntdll"]
    assert ntdll.section is not None
    ntdll.section.set_state(STUB.rva & ~0xFFF, 0x1000, State.PAGEFILE)
    assert any("no second process maps the file" in row["Evidence"] for row in answered(image, check=[CHECK]))
    given = answered(image, check=[CHECK], binaries=[str(modulefile.save([ntdll], tmp_path))])
    assert given[0]["Severity"] == "high"
    assert not any("no second process" in row["Evidence"] for row in given)
