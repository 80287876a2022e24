# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check of code in sections that are not for code."""

from __future__ import annotations

import pytest

from tests.forge.pe import RDATA, TEXT, Section
from tests.machines import afterwards
from tests.support.clean import libraries
from tests.support.clean.host64 import Host64, Program
from tests.support.findingimages import answered, found
from tests.support.only import only
from winstacks.findings.code.lostsections import NO_SECTION

KERNEL = "win10-x64"
CHECK = "section_not_code"
PATH = "C:\\Program Files\\Vendor\\vendor.dll"
WRITABLE = 0xE0000060
"""Code, data, execution, reading and writing."""
WAIT_EX = "kernelbase!WaitForSingleObjectEx"
BEHIND = 0x1800
"""RVA in .text, behind all functions, on their page."""


def with_flags(flags: int) -> Program:
    """A program with a DLL whose code section has some flags."""
    sections = [
        Section(".text", 0x1000, libraries.TEXT, flags),
        Section(".rdata", 0x1000 + libraries.TEXT, libraries.RDATA, RDATA),
        Section(".data", 0x1000 + libraries.TEXT + libraries.RDATA, libraries.DATA, 0xC0000040),
        Section(".pdata", 0x2000 + libraries.TEXT + libraries.RDATA, 0x1000, RDATA),
    ]
    program = Host64(KERNEL).program("app.exe", functions="main")
    program.load("vendor.dll", functions="Run Wait", path=PATH, sections=sections)
    return program


@pytest.mark.parametrize(
    ("plant", "section"),
    [(afterwards.in_data, ".data of vendorui.dll"), (afterwards.in_data_of_driver, ".data of vendorflt.sys")],
)
def test_code_in_a_section_of_data(plant: afterwards.Plant, section: str) -> None:
    host = Host64(KERNEL)
    process = plant(host)
    row = only(found(host.kernel.image(), CHECK))
    assert (row["Severity"], row["PID"]) == ("high", process.pid)
    assert row["Evidence"].startswith(f"section {section} is not for code: Characteristics 0xc0000040; ")


@pytest.mark.parametrize(
    ("flags", "private", "expected"),
    [(WRITABLE, True, ["medium"]), (WRITABLE, False, []), (TEXT, True, [])],
)
def test_code_behind_the_functions_of_a_section_for_writing(
    flags: int, private: bool, expected: list[str]
) -> None:
    """In a private copy of the page; a page that is the file's, and a section not for writing, are not it."""
    program = with_flags(flags)
    at = program.modules["vendor"][0].base + BEHIND
    write = program.process.space.write if private else program.process.space.write_file
    write(at, b"\x90" * 0x40)
    program.interrupted("main", at=at + 0x20)
    rows = found(program.host.kernel.image(), CHECK)
    assert [row["Severity"] for row in rows] == expected


@pytest.mark.parametrize("private", [True, False])
def test_whose_page_it_is_needs_the_image_section(private: bool) -> None:
    """One write to its structures loses it: what may be the file's is no finding, and the check says so."""
    program = with_flags(WRITABLE)
    vendor = program.modules["vendor"][0]
    write = program.process.space.write if private else program.process.space.write_file
    write(vendor.base + BEHIND, b"\x90" * 0x40)
    program.interrupted("main", at=vendor.base + BEHIND + 0x20)
    image = program.host.kernel.image()
    assert vendor.section is not None
    vendor.section.control_area["Segment"] = 0
    row = only(answered(image, check=[CHECK]))
    assert (row["Severity"], row["Evidence"]) == (None, f"{NO_SECTION}: vendor.dll")


def test_a_function_of_a_section_for_writing() -> None:
    """The image describes it, and the page was unpacked: its bytes are private."""
    program = with_flags(WRITABLE)
    program.process.space.write(program.modules["vendor"][0].base + BEHIND, b"\x90" * 0x40)
    program.waits("main", "vendor!Run", WAIT_EX)
    assert found(program.host.kernel.image(), CHECK) == []
