# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code of no file by the modules that are next to it on the stack, and by lost pages on the way to it."""

from __future__ import annotations

from typing import Any, Dict

import pytest

from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.machines import unnamed
from tests.support.clean.host64 import Host64, Private, Program, Through
from tests.support.findingimages import found
from tests.support.only import only

KERNEL = "win10-x64"
CHECK = "unbacked"
FOLDER = "C:\\Program Files\\Vendor"
TEMP = "C:\\Users\\ann\\AppData\\Local\\Temp"
WAIT_EX = "kernelbase!WaitForSingleObjectEx"
RAISED = (
    Through("KiUserExceptionDispatcher"),
    "ntdll!RtlDispatchException",
    "ntdll!RtlpCallVectoredHandlers",
)
"""Calls of Windows above code in which an exception was raised."""


def program_of(folder: str = FOLDER, ranges: int = 8) -> Program:
    """A program of a vendor with a DLL and memory with code, in which no thread is yet."""
    program = Host64(KERNEL).program("app.exe", functions="main Work", folder=FOLDER)
    program.load("engine.dll", "Run Compiled Wait", path=f"{folder}\\engine.dll")
    for _ in range(ranges):
        program.jitted()
    return program


def code_in(program: Program) -> Private:
    """The last memory with code."""
    return Private(
        next(vad.start for vad in reversed(program.process.vads) if not vad.image and vad.protection & 2)
    )


def row_of(program: Program) -> Dict[str, Any]:
    """The one row of the check."""
    return only(found(program.host.kernel.image(), CHECK))


@pytest.mark.parametrize(
    ("folder", "ranges", "severity"), [(FOLDER, 8, "low"), (FOLDER, 1, "medium"), (TEMP, 8, "medium")]
)
def test_a_module_on_both_sides(folder: str, ranges: int, severity: str) -> None:
    """A compiler of the program; little code; a DLL that lies where nothing else does."""
    program = program_of(folder, ranges)
    program.waits("main", "engine!Run", code_in(program), "engine!Wait", WAIT_EX)
    row = row_of(program)
    assert row["Severity"] == severity
    assert row["Innocent"] == "code that a module made: engine!Run+0x20 is on both sides of it on the stack"


@pytest.mark.parametrize(("ranges", "severity"), [(8, "low"), (1, "medium")])
def test_interrupted_below_a_module(ranges: int, severity: str) -> None:
    program = program_of(ranges=ranges)
    program.interrupted("main", "engine!Run", code_in(program))
    assert row_of(program)["Severity"] == severity


@pytest.mark.parametrize(
    ("ranges", "caller", "severity"), [(8, True, "low"), (2, True, "high"), (8, False, "high")]
)
def test_code_of_several_ranges_that_called_each_other(ranges: int, caller: bool, severity: str) -> None:
    """As a compiler makes it that gives each function memory of its own; else a module explains one range."""
    program = program_of(ranges=ranges)
    bases = [vad.start for vad in program.process.vads if not vad.image and vad.protection & 2]
    callers = ("main", "engine!Run") if caller else ()
    program.interrupted(*callers, Private(bases[0]), Private(bases[1]))
    rows = found(program.host.kernel.image(), CHECK)
    assert [row["Severity"] for row in rows if row["Frame"] == 0] == [severity]


@pytest.mark.parametrize(("ranges", "severity"), [(8, "low"), (1, "medium")])
def test_a_module_handles_the_exception_in_code_that_it_called(ranges: int, severity: str) -> None:
    """As emulators do, whose code reads memory that may not be there."""
    program = program_of(ranges=ranges)
    program.waits("main", "engine!Run", code_in(program), *RAISED, "engine!Wait", WAIT_EX)
    row = row_of(program)
    assert (row["Severity"], row["How"]) == (severity, "trap")
    assert row["Innocent"] == "code that a module made: engine!Run+0x20 is on both sides of it on the stack"


def test_an_exception_that_windows_handles_explains_nothing() -> None:
    program = program_of()
    program.waits("main", "engine!Run", code_in(program), *RAISED, WAIT_EX)
    assert row_of(program)["Severity"] == "high"


def test_code_that_calls_windows_is_not_explained() -> None:
    program = program_of()
    program.waits("main", "engine!Run", code_in(program), WAIT_EX)
    assert row_of(program)["Severity"] == "high"


def test_code_that_windows_called_is_not_explained() -> None:
    program = program_of()
    program.waits(code_in(program), "engine!Wait", WAIT_EX)
    assert row_of(program)["Severity"] == "high"


def test_a_module_that_was_changed_explains_nothing() -> None:
    """Its function differs from the file's."""
    program = program_of()
    program.process.space.write(program.at("engine!Run"), b"\x48\x31\xc0\x90")
    program.waits("main", "engine!Run", code_in(program), "engine!Wait", WAIT_EX)
    assert row_of(program)["Severity"] == "high"


@pytest.mark.parametrize(("state", "severity"), [(State.PROTOTYPE, "low"), (State.PAGEFILE, "high")])
def test_a_module_whose_code_is_not_in_memory(state: State, severity: str) -> None:
    """The entry of the page leads to the section: the process has not changed it; or to the page file."""
    program = program_of()
    program.interrupted("main", "engine!Run", code_in(program))
    image = program.host.kernel.image()
    module, _ = program.modules["engine"]
    page = program.at("engine!Run") & -PAGE
    assert module.section is not None
    program.process.space.set_state(page, PAGE, state)
    module.section.set_state(page - module.base, PAGE, State.PROTOTYPE)
    module.section.finish()
    assert only(found(image, CHECK))["Severity"] == severity


def test_callers_whose_code_is_not_in_memory() -> None:
    """The stack has return addresses; calls before them cannot be seen."""
    program = program_of()
    program.interrupted("main", "engine!Run", code_in(program))
    image = program.host.kernel.image()
    for module, _ in program.modules.values():
        assert module.section is not None
        program.process.space.set_state(module.base, module.size, State.PROTOTYPE)
        module.section.set_state(0, module.size, State.PROTOTYPE)
        module.section.finish()
    row = only(found(image, CHECK))
    assert (row["Severity"], row["Confidence"]) == ("medium", "likely")
    assert "the code to which the stack above may lead is not in the image" in row["Innocent"]


@pytest.mark.parametrize(
    "situation", [unnamed.emulator, unnamed.graphics_driver, unnamed.numba], ids=lambda item: item.__name__
)
def test_programs_that_no_list_names(situation: Any) -> None:
    host = Host64(KERNEL)
    situation(host)
    rows = found(host.kernel.image(), CHECK)
    assert {row["Severity"] for row in rows} == {"low"}


@pytest.mark.parametrize(("lost", "severity"), [(False, "high"), (True, "medium")])
def test_unwind_data_that_is_not_in_the_image_lowers_confidence(lost: bool, severity: str) -> None:
    """Private code that Windows called, and the table of the function that returns there is lost."""
    program = program_of(ranges=1)
    program.waits("main", code_in(program), WAIT_EX)
    image = program.host.kernel.image()
    if lost:
        module = program.modules["kernelbase"][0]
        assert module.section is not None
        program.process.space.set_state(module.base, PAGE, State.MISSING)
        module.section.set_state(0, PAGE, State.MISSING)
    row = only(found(image, CHECK))
    assert (row["Severity"], row["Confidence"]) == (severity, "possible" if lost else "likely")
