# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check of debug registers."""

from __future__ import annotations

import pathlib

import pytest
from volatility3.plugins.minidump import tracefindings

from tests.forge import context
from tests.forge.paging import State
from tests.support.findingimages import ALL, TID, X64, FindingImage, found
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from tests.support.writtendumps import process_of, write_dump
from winstacks.findings.checks import debug_registers
from winstacks.findings.facts import CheckFacts
from winstacks.names.symbolizer import Symbolizer
from winstacks.stacklist.traces import StackCollector

CHECK = "debug_registers"
ENABLED = 0x401
"""Dr7 with the first breakpoint, for execution, and the bit that is always set."""
STUB = 0x1100


@pytest.mark.parametrize("name", ALL)
def test_a_breakpoint_in_ntdll(name: str) -> None:
    forged = FindingImage(name)
    address = forged.stacks.modules["ntdll"].base + STUB
    forged.breaks_at(address, ENABLED)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["PID"], row["TID"]) == ("medium", 1000, TID)
    assert (row["Address"], row["Symbol"]) == (address, "ntdll!NtWait")
    assert row["Evidence"].startswith(f"Dr0 {address:#x} for execution, Dr7 0x401, DebugPort 0; VAD ")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("control", "severity"), [(0x30401, "low"), (0x401, "medium")])
def test_a_guard_of_an_export_table(name: str, control: int, severity: str) -> None:
    """EMET lets reads of it break; to run it makes no sense, so that nothing innocent does that."""
    forged = FindingImage(name)
    module = forged.stacks.modules["ntdll"]
    space, header = forged.app.space, module.base + forged.app.space.read_int(module.base + 0x3C, 4)
    rva = space.read_int(header + (0x88 if forged.wide else 0x78), 4)
    forged.breaks_at(module.base + rva + 0x1C, control)
    row = only(found(forged.image(), CHECK))
    assert row["Severity"] == severity
    assert row["Innocent"].startswith("a guard of the export table") == (severity == "low")


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("control", "severity"), [(0x30401, "low"), (0x401, "medium")])
def test_without_headers_data_may_be_an_export_table(control: int, severity: str, zeros: bool) -> None:
    """A breakpoint on code is no guard, whatever is missing. Tools write zeros for what they cannot read."""
    forged = FindingImage("win10-x64")
    module = forged.stacks.modules["ntdll"]
    forged.breaks_at(module.base + STUB, control)
    image = forged.image()
    if zeros:
        forged.app.space.write(module.base, bytes(0x1000))
    else:
        forged.app.space.set_state(module.base, 0x1000, State.MISSING)
        assert module.section is not None
        module.section.set_state(0, 0x1000, State.MISSING)
    row = only(found(image, CHECK))
    assert row["Severity"] == severity
    assert ("which would show whether this is its export table" in row["Innocent"]) == (severity == "low")


@pytest.mark.parametrize(("offset", "value"), [(0, 0), (0x3C, 0x100000), (0x3C, 0xFF8)])
def test_headers_that_are_written_over_are_not_absent(offset: int, value: int) -> None:
    """One write to the process's own copy does not lower what the thread did."""
    forged = FindingImage("win10-x64")
    module = forged.stacks.modules["ntdll"]
    forged.breaks_at(module.base + STUB, 0x30401)
    image = forged.image()
    forged.app.space.write_int(module.base + offset, value, 4)
    forged.app.space.set_state(module.base + 0x1000, 0x1000, State.PAGEFILE)
    assert only(found(image, CHECK))["Severity"] == "medium"


@pytest.mark.parametrize("name", ALL)
def test_one_that_is_not_enabled_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.breaks_at(forged.stacks.modules["ntdll"].base + STUB, 0x404)
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("whole_system", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_each_register_has_its_own_bits(number: int, whole_system: bool) -> None:
    """Dr7 enables each breakpoint for the task or for the whole system, and has the kind of each."""
    forged = FindingImage("win10-x64")
    address = forged.stacks.modules["ntdll"].base + STUB
    kind = (1 + number) % 4
    control = 0x400 | 1 << 2 * number + whole_system | kind << 16 + 4 * number
    forged.breaks_at(address, control, address + 1, address + 2, address + 3)
    row = only(found(forged.image(), CHECK))
    assert row["Address"] == address + number
    what = ("execution", "writes", "ports", "access")[kind]
    assert row["Evidence"].startswith(f"Dr{number} {address + number:#x} for {what}, Dr7 {control:#x}, ")


@pytest.mark.parametrize("name", X64)
def test_one_in_any_dll_of_windows(name: str) -> None:
    """A breakpoint diverts any function, and not only those that a list names."""
    forged = FindingImage(name)
    address = forged.stacks.modules["kernelbase"].base + STUB
    forged.breaks_at(address, ENABLED)
    row = only(found(forged.image(), CHECK))
    assert (row["Severity"], row["Address"]) == ("medium", address)


@pytest.mark.parametrize("name", ALL)
def test_one_in_the_program_itself_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.breaks_at(forged.stacks.modules["app"].base + STUB, ENABLED)
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", ALL)
def test_that_of_a_debugger_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.breaks_at(forged.stacks.modules["ntdll"].base + STUB, ENABLED)
    forged.app.eprocess["DebugPort"] = forged.kernel.base + 0x10000
    assert found(forged.image(), CHECK) == []


@pytest.mark.parametrize("name", ALL)
def test_registers_that_may_not_have_been_saved_are_low(name: str, tmp_path: pathlib.Path) -> None:
    forged = FindingImage(name)
    forged.breaks_at(forged.stacks.modules["ntdll"].base + STUB, ENABLED)
    opened = context.open_image(forged.image(), tmp_path)
    symbolizer = Symbolizer(opened.image)
    stack = only(stack for stack in StackCollector(symbolizer).list_stacks() if stack.kind == "user")
    assert stack.entry is not None
    unsure = stack._replace(entry=stack.entry._replace(unsure=("Dr7",)))
    for checked_stack, severity in ((stack, "medium"), (unsure, "low")):
        finding = only(debug_registers.check_stack(checked_stack, CheckFacts(symbolizer)))
        assert finding.severity == severity


@pytest.mark.parametrize("name", ALL)
def test_an_unreadable_debug_port_is_reported(name: str, tmp_path: pathlib.Path) -> None:
    forged = FindingImage(name)
    forged.breaks_at(forged.stacks.modules["ntdll"].base + STUB, ENABLED)
    opened = context.open_image(forged.image(), tmp_path)
    symbolizer = Symbolizer(opened.image)
    stack = only(stack for stack in StackCollector(symbolizer).list_stacks() if stack.kind == "user")
    facts = CheckFacts(symbolizer)
    unknown = stack._replace(space=stack.space._replace(eprocess=0))
    assert list(debug_registers.check_stack(unknown, facts)) == []
    reason = only(facts.left_out(CHECK))
    assert "DebugPort, which says whether a debugger set it, cannot be read" in reason


@pytest.mark.parametrize("debugged", [False, True])
def test_a_breakpoint_in_a_dump(debugged: bool, tmp_path: pathlib.Path) -> None:
    """The CONTEXT of a thread has the registers, and the PEB says whether a debugger is attached."""
    forged = FindingImage("win10-x64")
    address = forged.stacks.modules["ntdll"].base + STUB
    forged.breaks_at(address, ENABLED)
    assert forged.app.peb is not None
    forged.app.peb["BeingDebugged"] = int(debugged)
    opened = context.open_image(forged.image(), tmp_path)
    path = tmp_path / "app.dmp"
    write_dump(opened, process_of(opened, forged.app.pid), path)
    rows = [row for _, row in OpenedDump(path).rows(tracefindings.TraceFindings, check=[CHECK])]
    shown = [row["Evidence"].partition("; ")[0] for row in rows if row["Finding"] == CHECK]
    if debugged:
        reason = only(shown)
        assert "BeingDebugged of the PEB says that a debugger is there" in reason
    else:
        assert shown == [f"Dr0 {address:#x} for execution, Dr7 0x401, BeingDebugged 0"]
