# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Modules of which the loader's lists and headers say something else than the VADs."""

from __future__ import annotations

import re
import struct
from typing import Any, Dict, Optional

import pytest

from tests.forge.obj import Obj
from tests.forge.phys import PAGE
from tests.forge.space import Space
from tests.forge.vad import Vad
from tests.support.callstackimages import STUB, StackImage
from tests.support.callstackimages86 import Wow64Threads
from tests.support.findingimages import ALL, TID, X64, FindingImage, answered, found
from tests.support.only import only

CHECK = "module_mismatch"
NT_HEADERS = 0x80
TIMESTAMP, SIZE_OF_IMAGE = NT_HEADERS + 8, NT_HEADERS + 24 + 0x38
DIRECTORIES = {True: NT_HEADERS + 24 + 0x70, False: NT_HEADERS + 24 + 0x60}


def vad_of(forged: FindingImage, module: str = "app") -> Vad:
    base = forged.stacks.modules[module].base
    return next(vad for vad in forged.app.vads if vad.start == base)


def the_row(forged: FindingImage) -> Dict[str, Any]:
    return only(found(forged.image(), CHECK))


@pytest.mark.parametrize("name", ALL)
def test_modules_as_the_vads_say_are_silent(name: str) -> None:
    assert answered(FindingImage(name).image(), check=[CHECK]) == []


@pytest.mark.parametrize("name", ALL)
def test_private_memory_in_the_place_of_a_module(name: str) -> None:
    forged = FindingImage(name)
    vad = vad_of(forged)
    vad.file = vad.section = None
    vad.image = False
    row = the_row(forged)
    assert (row["Severity"], row["TID"], row["Technique"]) == ("high", TID, "T1055.012")
    assert row["Evidence"].startswith("the loader lists a module where no file is mapped; the loader has C:")
    assert ", the VAD no file; VAD " in row["Evidence"]


@pytest.mark.parametrize("name", ALL)
def test_another_file_in_the_place_of_a_module(name: str) -> None:
    forged = FindingImage(name)
    vad = vad_of(forged)
    vad.file, vad.section = "\\Windows\\System32\\calc.exe", None
    row = the_row(forged)
    assert row["Severity"] == "high"
    assert re.match(
        r"the loader names another file than the VAD; the loader has C:\\\S+\\stacks.exe, "
        r"the VAD \\Windows\\System32\\calc.exe; VAD ",
        row["Evidence"],
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("entry", "silent"), [("RUSTUP~1.EXE", True), ("RUSTIC~1.EXE", False)])
def test_a_short_name_is_that_of_the_file(name: str, entry: str, silent: bool) -> None:
    """A program that was started as RUSTUP~1.EXE."""
    forged = renamed(name, "rustup-init.exe", "other.pdb")
    entry_of(forged, entry)
    assert [row["Severity"] for row in found(forged.image(), CHECK)] == ([] if silent else ["high"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("pdb", "severity"), [("stacks.pdb", "low"), ("calc.pdb", "high")])
def test_a_file_that_was_renamed_or_linked_has_its_name_in_its_headers(
    name: str, pdb: str, severity: str
) -> None:
    """The section has the name by which the file was opened first, or the target of a link."""
    row = the_row(renamed(name, "setup-5d1.tmp", pdb))
    assert row["Severity"] == severity
    assert row["Innocent"].startswith("the file was renamed, or started by a link") == (severity == "low")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("started", "same", "severity"),
    [
        ("stacks.exe", True, "low"),
        ("other.exe", True, "high"),
        ("stacks.exe", False, "high"),
        ("", True, "high"),
    ],
)
def test_a_file_with_two_names(name: str, started: str, same: bool, severity: str) -> None:
    """The section has the name by which the file was opened first; hollowing maps another section."""
    forged = renamed(name, "rustup.exe", "rust.pdb")
    isf, space, process = forged.kernel.isf, forged.kernel.space, forged.app.eprocess
    section = forged.stacks.modules["app"].section
    assert section is not None
    area = section.control_area.address if same else section.control_area.address + 0x1000
    kind = "_SECTION" if isf.has("_SECTION", "u1.ControlArea") else "_SECTION_OBJECT"
    section_object = Obj(space, isf, kind, space.allocate(0x100))
    if kind == "_SECTION":
        section_object["u1.ControlArea"] = area
    else:
        section_object["Segment"] = space.allocate(0x100)
        space.write_int(section_object["Segment"] + isf.offset("_SEGMENT", "ControlArea"), area)
    process["SectionObject"] = section_object.address
    audit = Obj(space, isf, "_UNICODE_STRING", space.allocate(0x20))
    put_string(space, audit, f"\\Device\\HarddiskVolume2\\Users\\ann\\.cargo\\bin\\{started}")
    process["SeAuditProcessCreationInfo.ImageFileName"] = audit.address if started else 0
    forged.app.audited = bool(started)
    row = the_row(forged)
    assert row["Severity"] == severity
    assert row["Innocent"].startswith("the file has two names") == (severity == "low")


def put_string(space: Space, string: Obj, text: str) -> None:
    """Writes a UNICODE_STRING."""
    data = text.encode("utf-16-le")
    place = space.allocate(len(data))
    space.write(place, data)
    string["Length"], string["MaximumLength"], string["Buffer"] = len(data), len(data), place


@pytest.mark.parametrize("name", ALL)
def test_a_module_without_vad(name: str) -> None:
    forged = FindingImage(name)
    forged.app.vads.remove(vad_of(forged))
    row = the_row(forged)
    assert (row["Severity"], row["Symbol"][:6]) == ("medium", "stacks")
    assert row["Innocent"] == "the module was just unloaded"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("rva", "severity", "message"),
    [(TIMESTAMP, "high", "TimeDateStamp 0x4"), (SIZE_OF_IMAGE, "high", "SizeOfImage")],
)
def test_headers_of_another_image(name: str, rva: int, severity: str, message: str) -> None:
    forged = FindingImage(name)
    value = 0x40000000 if rva == TIMESTAMP else forged.stacks.modules["app"].size + 0x3000
    forged.stacks.modules["app"].write(rva, struct.pack("<I", value))
    row = the_row(forged)
    assert row["Severity"] == "high"
    assert message in row["Evidence"]
    assert "those of the file" in row["Evidence"]


@pytest.mark.parametrize("name", ALL)
def test_headers_that_are_written_to_with_the_same_are_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.stacks.modules["app"].write(0x40, b"This program")
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", ALL)
def test_a_vad_of_another_size(name: str) -> None:
    """Where nothing but the VAD says how long the file is."""
    forged = FindingImage(name)
    vad = vad_of(forged)
    vad.section, vad.size = None, vad.size + 0x14000
    row = the_row(forged)
    assert row["Severity"] == "medium"
    assert row["Evidence"].startswith("the headers say SizeOfImage ")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("behind", [0x1000, 0x3000, 0x5000])
def test_pages_behind_an_image_are_silent(name: str, behind: int) -> None:
    """Windows 11 24H2 maps pages of its own behind images; neither list nor header counts them."""
    forged = FindingImage(name)
    vad = vad_of(forged)
    vad.section, vad.size = None, vad.size + behind
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", ALL)
def test_a_size_that_only_the_loader_says(name: str) -> None:
    forged = FindingImage(name)
    entry = forged.stacks.modules["app"].entry
    assert entry is not None
    entry["SizeOfImage"] = 0x30000
    row = the_row(forged)
    assert row["Severity"] == "low"
    assert row["Evidence"].startswith("the loader's SizeOfImage is not that of the VAD, ")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("mapped", [True, False])
def test_both_lists_of_a_wow64_process(name: str, mapped: bool) -> None:
    """A module of the 32-bit list alone is on a list."""
    forged = FindingImage(name)
    assert isinstance(forged.stacks, StackImage)
    threads = Wow64Threads(forged.stacks)
    threads.in_system_call(1008)
    if not mapped:
        base = threads.modules["app"].base
        forged.app.vads[:] = [vad for vad in forged.app.vads if vad.start != base]
    rows = found(forged.image(), CHECK)
    assert [(row["Severity"], row["Kind"]) for row in rows] == ([] if mapped else [("medium", "wow64")])


def unlisted(name: str, managed: Optional[int] = None, runtime: str = "") -> FindingImage:
    """An image that no loader list has, in which a thread was interrupted.

    Args:
        name: of the kernel
        managed: Flags of its COR20 header; None: it has none
        runtime: a module that the process has loaded
    """
    forged = FindingImage(name)
    contents = {0x1000: b"\x90" * 0x100}
    if managed is not None:
        directory = DIRECTORIES[forged.wide] + 14 * 8
        contents.update(
            {directory: struct.pack("<II", 0x2000, 0x48), 0x2000: bytes(16) + struct.pack("<I", managed)}
        )
        contents[0x2020] = bytes(0x40)
    module = forged.app.module("plain.dll", listed=False, contents=contents)
    if runtime:
        forged.app.module(runtime)
    forged.interrupted_at(module.base + 0x1020)
    return forged


@pytest.mark.parametrize("name", ALL)
def test_an_image_that_no_list_has(name: str) -> None:
    row = the_row(unlisted(name))
    assert (row["Severity"], row["Symbol"]) == ("medium", "<mapped:plain.dll>+0x1020")
    assert row["Evidence"].startswith(
        "no loader list has the image <mapped:plain.dll>; the loader has no entry, "
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("jumps", "others", "folder", "severity"),
    [
        (True, True, "Windows\\System32", "low"),
        (False, True, "Windows\\System32", "medium"),
        (True, False, "Windows\\System32", "medium"),
        (True, True, "ProgramData", "medium"),
    ],
)
def test_a_hotpatch_is_mapped_by_the_kernel(
    name: str, jumps: bool, others: bool, folder: str, severity: str
) -> None:
    """No list has it; a function of ntdll jumps there, in each process."""
    forged = FindingImage(name)
    base = forged.stacks.modules["kernelbase"].base + 0x200000
    beside = forged.beside("other.exe", 2000)
    for process in (forged.app, *([beside] if others else [])):
        path = f"C:\\{folder}\\ntdll_patch.dll"
        process.module("ntdll_patch.dll", base, path=path, listed=False, contents={0x1000: b"\x90" * 0x100})
        at = forged.stacks.modules["ntdll"].base + STUB.rva
        if jumps:
            process.space.write(at, b"\xe9" + struct.pack("<i", base + 0x1000 - at - 5))
    forged.interrupted_at(base + 0x1020)
    row = the_row(forged)
    assert row["Severity"] == severity
    assert row["Innocent"].startswith("a hotpatch that the kernel mapped") == (severity == "low")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("managed", "runtime", "expected"),
    [
        (1, "clr.dll", ["low"]),
        (1, "", ["medium"]),
        (1, "jvm.dll", ["medium"]),
        (0, "clr.dll", ["low"]),
        (0, "", ["medium"]),
        (None, "clr.dll", ["medium"]),
    ],
)
def test_images_of_dot_net(name: str, managed: Optional[int], runtime: str, expected: list[str]) -> None:
    """The runtime maps them, if there is one. A header that promises no native code explains no frame."""
    rows = found(unlisted(name, managed, runtime).image(), CHECK)
    assert [row["Severity"] for row in rows] == expected


@pytest.mark.parametrize("name", ALL)
def test_lists_that_are_damaged_are_not_checked(name: str) -> None:
    forged = unlisted(name)
    assert forged.app.loader is not None
    image = forged.image()
    forged.app.space.write_int(forged.app.loader.head.at("InLoadOrderModuleList"), 0x1230)
    rows = answered(image, check=[CHECK])
    assert [(row["Severity"], row["Evidence"]) for row in rows] == [
        (None, "the loader's lists cannot be followed: stacks.exe")
    ]


def renamed(name: str, file: str, pdb: str) -> FindingImage:
    """An image whose program has another name in its section, and names of its own in its headers."""
    forged = FindingImage(name)
    module, space = forged.stacks.modules["app"], forged.app.space
    for page in range(module.base, module.base + module.size, PAGE):
        data = space.read(page, PAGE) if space.holds(page) else b""
        for written, own in ((b"stacks.pdb\0", pdb), (b"stacks.exe\0", f"{pdb[:-4]}.exe")):
            if written in data:
                text = own.encode().ljust(len(written), b"\0")
                space.write_file(page + data.index(written), text[: len(written)])
    put_string(forged.kernel.space, file_of(forged).member("FileName"), f"\\Program Files\\Tools\\{file}")
    return forged


def entry_of(forged: FindingImage, file: str) -> None:
    """Lets the loader's entry of the program have a name."""
    entry = forged.stacks.modules["app"].entry
    assert entry is not None
    entry.text("BaseDllName", file)
    entry.text("FullDllName", f"C:\\PROGRA~1\\Tools\\{file}")


def file_of(forged: FindingImage) -> Obj:
    """The _FILE_OBJECT of the program."""
    section = forged.stacks.modules["app"].section
    assert section is not None
    space, isf = forged.kernel.space, forged.kernel.isf
    pointer = space.read_int(section.control_area.at("FilePointer")) & ~(2 * space.pointer_size - 1)
    return Obj(space, isf, "_FILE_OBJECT", pointer)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("member", "size", "value"), [("DeletePending", 1, 1), ("FileName.Length", 2, 0)])
def test_an_image_whose_file_is_gone(name: str, member: str, size: int, value: int) -> None:
    forged = FindingImage(name)
    forged.kernel.space.write_int(file_of(forged).at(member), value, size)
    row = the_row(forged)
    assert (row["Severity"], row["Technique"]) == ("high", "T1055.013")
    assert row["Evidence"].startswith("the file of the image ")


@pytest.mark.parametrize("name", X64)
def test_a_frame_that_a_scan_found_is_low(name: str) -> None:
    forged = FindingImage(name)
    forged.app.vads.remove(vad_of(forged, "kernelbase"))
    forged.guesses("kernelbase")
    assert {row["Severity"] for row in found(forged.image(), CHECK)} == {"low"}


@pytest.mark.parametrize("name", ALL)
def test_modules_without_frames_are_silent(name: str) -> None:
    forged = FindingImage(name)
    other = forged.app.module("other.dll")
    forged.app.vads[:] = [vad for vad in forged.app.vads if vad.start != other.base]
    assert found(forged.image(), CHECK) == []
