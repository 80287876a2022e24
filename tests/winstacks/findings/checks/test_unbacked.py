# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks of code outside all files: in a thread's stack, in what Windows recorded, and asleep."""

from __future__ import annotations

from typing import Callable

import pytest

from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.vad import EXECUTE_READ, EXECUTE_READWRITE, READONLY, READWRITE
from tests.support.callstackimages import GETTER_RVA, HEAD_RVA, WAIT_EX
from tests.support.clean.host64 import Host64, Private
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
from tests.support.only import only, rows_of
from winstacks.names import registeredtables

ELSEWHERE = 0x41000000
NO_ACCESS = 0
UNBACKED, HISTORY, ASLEEP = "unbacked", "history_unbacked", "not_executable"


@pytest.mark.parametrize("name", ALL)
def test_a_thread_that_was_interrupted_in_private_memory(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    row = only(found(forged.image(), UNBACKED))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("high", "certain", "trap")
    assert (row["PID"], row["TID"], row["Kind"], row["Frame"]) == (1000, TID, "user", 0)
    assert (row["Address"], row["Symbol"]) == (PRIVATE + 0x20, "<private>")
    assert "VAD 0x20000000-0x20000fff private PAGE_EXECUTE_READWRITE" in row["Evidence"]
    assert "bytes 90 90 90 90" in row["Evidence"]
    assert row["Technique"] == "T1055, T1620"
    assert row["TraceId"].startswith("user:")


@pytest.mark.parametrize("name", ALL)
def test_live_threads_outweigh_the_time_at_which_their_process_has_ended(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    forged.app.eprocess["ExitTime.QuadPart"] = 0x1DA000000000000
    assert severities(forged.image(), "unbacked") == ["high"]


@pytest.mark.parametrize("name", X64)
def test_a_thread_that_returns_to_private_memory(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.returns_to(RETURNS)
    row = only(found(forged.image(), UNBACKED))
    assert (row["Severity"], row["How"], row["Address"]) == ("high", "unwind", RETURNS)


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("protection", [EXECUTE_READWRITE, NO_ACCESS])
def test_a_return_from_windows_to_where_no_call_is_now(name: str, protection: int) -> None:
    """Code that is encrypted while it sleeps, or that pushes an address and jumps."""
    forged = FindingImage(name)
    forged.private()
    if protection == NO_ACCESS:
        forged.app.space.set_state(PRIVATE, 0x1000, State.PAGEFILE)
    forged.returns_to(PRIVATE + 0x20)
    row = only(found(forged.image(), UNBACKED))
    assert (row["Severity"], row["How"], row["Address"]) == ("high", "unwind", PRIVATE + 0x20)


def _hooked(forged: FindingImage, rva: int) -> None:
    """Writes to the page of the function that returns, beside it or into it."""
    forged.stacks.modules["kernelbase"].write(WAIT_EX.rva + rva, b"\xe9\1\2\3\4")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("rva", "severity"), [(0x200, "high"), (0x60, "low")])
def test_the_same_where_a_product_changed_another_function_of_the_page(
    name: str, rva: int, severity: str
) -> None:
    """What returns is as in its file, or it is not: then the way there is a guess."""
    forged = FindingImage(name)
    forged.private()
    _hooked(forged, rva)
    forged.returns_to(PRIVATE + 0x20)
    assert severities(forged.image(), UNBACKED) == [severity]


@pytest.mark.parametrize(
    ("beside", "rva", "severity"), [(3, 0x200, "high"), (0, 0x200, "low"), (3, 0x60, "low")]
)
def test_the_same_where_the_file_has_lost_that_page(beside: int, rva: int, severity: str) -> None:
    """Other processes have it still."""
    forged = FindingImage("win10-x64")
    forged.private()
    others = [forged.beside(f"other{number}.exe", 2000 + 4 * number) for number in range(beside)]
    kernelbase = forged.stacks.modules["kernelbase"]
    _hooked(forged, rva)
    for other in others:
        other.space.write(kernelbase.base + WAIT_EX.rva + 0x200, b"\xe9\5\6\7\x08")
    forged.returns_to(PRIVATE + 0x20)
    image = forged.image()
    assert kernelbase.section is not None
    kernelbase.section.set_state(0x1000, PAGE, State.MISSING)
    assert [row["Severity"] for row in found(image, UNBACKED) if row["PID"] == 1000] == [severity]


@pytest.mark.parametrize("name", X64)
def test_the_same_asleep_where_no_call_is_now(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.forbid()
    forged.returns_to(PRIVATE + 0x20)
    rows = found(forged.image())
    assert [(row["Finding"], row["Severity"]) for row in rows] == [(ASLEEP, "high")]


@pytest.mark.parametrize("name", X64)
def test_a_stub_that_private_code_called_and_masked(name: str) -> None:
    """An indirect call of a stub: its top slot is the return address."""
    forged = FindingImage(name)
    forged.private()
    frame = forged.kernel.space.read_int(
        forged.thread.kthread["TrapFrame"] + forged.kernel.isf.offset("_KTRAP_FRAME", "Rsp"), 8
    )
    forged.app.space.write_int(frame, PRIVATE + 0x20, 8)
    row = only(found(forged.image(), UNBACKED))
    assert (row["Severity"], row["How"], row["Frame"]) == ("high", "leaf", 1)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("protection", "pico", "expected"),
    [(EXECUTE_READ, 0, ["high"]), (READONLY, 0, []), (EXECUTE_READ, 1, [])],
)
def test_the_same_in_a_view_of_a_data_file(
    name: str, protection: int, pico: int, expected: list[str]
) -> None:
    """Programs of WSL are mapped as such views, and run in pico processes."""
    forged = FindingImage(name)
    forged.private(protection, file="\\Windows\\code.bin")
    if protection == READONLY:
        forged.forbid()
    if pico and not forged.app.eprocess.maybe("PicoContext", pico):
        return
    forged.interrupted_at(PRIVATE + 0x20)
    assert severities(forged.image(), UNBACKED) == expected


@pytest.mark.parametrize("name", X64)
def test_the_same_where_nothing_may_be_executed_is_another_finding(name: str) -> None:
    forged = FindingImage(name)
    forged.private(READWRITE)
    forged.forbid()
    forged.interrupted_at(PRIVATE + 0x20)
    assert {row["Finding"] for row in found(forged.image())} == {ASLEEP}


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    ("start", "now", "before"), [(PRIVATE, "medium", "low"), (PRIVATE + 0x800, "high", "high")]
)
def test_a_registered_function_table(name: str, start: int, now: str, before: str) -> None:
    """Only that of the range itself explains the frame; on a stack of Windows alone it is no excuse."""
    forged = FindingImage(name)
    forged.private()
    forged.register_table(start, start + 0x800, count=3)
    forged.interrupted_at(PRIVATE + 0x20)
    forged.recorded(RETURNS)
    rows = {row["Finding"]: row for row in found(forged.image())}
    assert [rows[check]["Severity"] for check in (UNBACKED, HISTORY)] == [now, before]
    innocent = rows[UNBACKED]["Innocent"]
    assert ("function table registered for 0x20000000-0x200007ff" in innocent) == (before == "low")


@pytest.mark.parametrize("name", X64)
def test_a_function_table_whose_limit_was_moved(name: str) -> None:
    """A table of other memory that now ends behind the code: the finding says that it ends elsewhere."""
    forged = FindingImage(name)
    forged.private()
    forged.app.region(PRIVATE - 0x1000, size=0x1000)
    forged.register_table(PRIVATE - 0x1000, PRIVATE + 0x1000)
    forged.interrupted_at(PRIVATE + 0x20)
    row = only(found(forged.image(), UNBACKED))
    message = (
        "function table registered for 0x1ffff000-0x20000fff, which ends in other memory than it begins in"
    )
    assert row["Severity"] == "medium"
    assert row["Innocent"].startswith(message)


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize("protection", [EXECUTE_READWRITE, READWRITE])
def test_what_forbids_to_execute_is_shown(name: str, protection: int) -> None:
    """One bit of a page makes another finding: Evidence says that the VAD lets code run."""
    forged = FindingImage(name)
    forged.private(protection)
    forged.forbid()
    forged.interrupted_at(PRIVATE + 0x20)
    row = only(found(forged.image(), ASLEEP))
    assert row["Severity"] == "medium"
    assert ("not executable, against its VAD" in row["Evidence"]) == (protection == EXECUTE_READWRITE)


def _without_getter(forged: FindingImage) -> None:
    ntdll = forged.stacks.modules["ntdll"]
    assert ntdll.section is not None
    forged.app.space.set_state(ntdll.base + GETTER_RVA, 0x1000, State.PROTOTYPE)
    ntdll.section.set_state(GETTER_RVA, 0x1000, State.PAGEFILE)


def _without_head(forged: FindingImage) -> None:
    forged.app.space.set_state(forged.stacks.modules["ntdll"].base + HEAD_RVA, 0x1000, State.PAGEFILE)


def _without_element(forged: FindingImage) -> None:
    forged.app.region(ELSEWHERE, size=0x1000, state=State.PAGEFILE)
    _link(forged, ELSEWHERE)


def _link(forged: FindingImage, element: int) -> None:
    head = forged.stacks.modules["ntdll"].base + HEAD_RVA
    forged.app.space.write(head, element.to_bytes(8, "little") * 2)


def _with_a_page_of_zeros(forged: FindingImage) -> None:
    head = forged.stacks.modules["ntdll"].base + HEAD_RVA
    forged.app.space.write(head - head % PAGE, bytes(PAGE))


def _without_range(forged: FindingImage) -> None:
    _link(forged, ELSEWHERE)


def _with_zeros(forged: FindingImage) -> None:
    """The page holds other data, so that it was read."""
    _link(forged, 0)
    forged.app.space.write_int(forged.stacks.modules["ntdll"].base + HEAD_RVA + 0x20, 1, 8)


def _with_code(forged: FindingImage, code: bytes) -> None:
    forged.app.space.write(forged.stacks.modules["ntdll"].base + GETTER_RVA, code)


def _with_other_code(forged: FindingImage) -> None:
    _with_code(forged, b"\x90" * 8)


def _with_no_code(forged: FindingImage) -> None:
    _with_code(forged, bytes(8))


def _with_another_head(forged: FindingImage) -> None:
    """It would lie on a page that is not in memory."""
    _with_code(forged, b"\x48\x8d\x05" + (HEAD_RVA - 0x1000 - GETTER_RVA - 7).to_bytes(4, "little") + b"\xc3")
    page = forged.stacks.modules["ntdll"].base + HEAD_RVA - 0x1000
    forged.app.space.set_state(page - page % PAGE, PAGE, State.PAGEFILE)


def _without_headers(forged: FindingImage) -> None:
    forged.app.space.write(forged.stacks.modules["ntdll"].base + 0x3C, bytes(8))


def _with_other_exports(forged: FindingImage) -> None:
    base, space = forged.stacks.modules["ntdll"].base, forged.app.space
    directory = base + space.read_int(base + 0x3C, 4) + 0x88
    space.write(directory, (0x7FFF0000).to_bytes(4, "little") + space.read(directory + 4, 4))


def _element(forged: FindingImage) -> int:
    """Registers an element that explains nothing; returns its address."""
    forged.register_table(ELSEWHERE, ELSEWHERE + 0x1000, count=3)
    return forged.app.space.read_int(forged.stacks.modules["ntdll"].base + HEAD_RVA, 8)


def _with_a_link_to_nothing(forged: FindingImage) -> None:
    forged.app.space.write_int(_element(forged), 0, 8)


def _with_an_element_back_to_nothing(forged: FindingImage) -> None:
    forged.app.space.write_int(_element(forged) + 8, 0, 8)


def _with_a_range_of_everything(forged: FindingImage) -> None:
    element = _element(forged)
    forged.app.space.write_int(element + 0x20, 0x10000, 8)
    forged.app.space.write_int(element + 0x28, 0x7FFFFFFF0000, 8)


def _with_half_an_element(forged: FindingImage) -> None:
    """Its links end where the memory ends."""
    head, end = forged.stacks.modules["ntdll"].base + HEAD_RVA, ELSEWHERE + 0x1000
    forged.app.region(ELSEWHERE, head.to_bytes(8, "little") * 0x200, size=0x1000)
    _link(forged, end - 0x10)


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    ("change", "lacks"),
    [
        (_without_getter, "the code of RtlGetFunctionTableListHead"),
        (_without_head, "the head of their list at 0x"),
        (_with_a_page_of_zeros, "the head of their list at 0x"),
        (_without_element, f"the element at {ELSEWHERE:#x}"),
    ],
)
def test_function_tables_that_are_not_in_the_image(
    name: str, change: Callable[[FindingImage], None], lacks: str
) -> None:
    """What is missing is neither innocent nor guilty: Confidence is lower, and a row says what is missing."""
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    forged.recorded(RETURNS)
    change(forged)
    for check in (UNBACKED, HISTORY):
        row, gap = rows_of(2, answered(forged.image(), check=[check]))
        assert (row["Severity"], row["Confidence"]) == ("high", "likely")
        assert row["Innocent"].startswith("nothing known in this process, but its list of function tables")
        assert gap["Status"] == "not checked"
        reason = "private code is less sure, because function tables of the process are not in the image"
        assert gap["Evidence"].startswith(f"{reason}: PID 1000, {lacks}")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    "change",
    [
        *(_without_range, _with_zeros, _with_other_code, _with_no_code, _with_another_head),
        *(_without_headers, _with_other_exports, _with_a_link_to_nothing, _with_an_element_back_to_nothing),
        *(_with_a_range_of_everything, _with_half_an_element),
    ],
)
def test_function_tables_that_were_changed(name: str, change: Callable[[FindingImage], None]) -> None:
    """A few bytes that the process wrote explain nothing: its private code stays high."""
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    image = forged.image()
    change(forged)
    rows = answered(image, check=[UNBACKED])
    assert [row["Severity"] for row in rows] == ["high"]


def test_a_list_of_function_tables_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = FindingImage("win10-x64")
    forged.private()
    forged.register_table(PRIVATE, PRIVATE + 0x800, count=40)
    forged.interrupted_at(PRIVATE + 0x20)
    monkeypatch.setattr(registeredtables, "MAX_TABLES", 8)
    assert severities(forged.image(), UNBACKED) in (["high"], ["low"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("runtime", ["clr.dll", "coreclr.dll", "jvm.dll"])
def test_a_runtime_that_is_only_loaded_lowers_the_confidence(name: str, runtime: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    forged.app.module(runtime)
    row = only(found(forged.image(), UNBACKED))
    assert (row["Severity"], row["Confidence"]) == ("high", "likely")
    assert row["Innocent"].startswith(f"{runtime} loaded")


@pytest.mark.parametrize("name", X64)
def test_a_frame_that_a_scan_found_is_low(name: str) -> None:
    """Nothing tells how to go on from a mapped file, so that the caller is a guess."""
    forged = FindingImage(name)
    forged.private()
    forged.app.region(0x21000000, b"\x90" * 0x100, size=0x1000, file="\\Windows\\code.bin")
    forged.app.space.tables.forbid_execution(0x21000000)
    forged.interrupted_at(0x21000020)
    place = forged.kernel.space.read_int(forged.thread.kthread["TrapFrame"] + 0x180)
    forged.app.space.write_int(place, RETURNS, 8)
    row = only(found(forged.image(), UNBACKED))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("low", "possible", "scan")


@pytest.mark.parametrize("name", ALL)
def test_a_recorded_caller_in_private_memory(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.recorded(RETURNS)
    row = only(found(forged.image(), HISTORY))
    assert (row["Severity"], row["Confidence"], row["How"]) == ("high", "certain", "recorded")
    assert (row["Kind"], row["Address"], row["TID"]) == ("std", RETURNS, None)


@pytest.mark.parametrize("name", X64)
def test_a_recorded_caller_that_sleeps(name: str) -> None:
    """Its memory may not be executed now: the past is remembered all the same."""
    forged = FindingImage(name)
    forged.private(READWRITE)
    forged.forbid()
    forged.recorded(RETURNS)
    assert severities(forged.image(), HISTORY) == ["medium"]


@pytest.mark.parametrize("name", ALL)
def test_a_recorded_caller_where_nothing_is_now_is_low(name: str) -> None:
    forged = FindingImage(name)
    forged.recorded(0x31000105)
    row = only(found(forged.image(), HISTORY))
    assert row["Severity"] == "low"
    assert row["Innocent"].startswith("an unloaded module")


@pytest.mark.parametrize("name", ALL)
def test_recorded_callers_in_images_are_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.recorded(forged.stacks.modules["app"].base + 0x1120)
    assert found(forged.image(), HISTORY) == []


@pytest.mark.parametrize("name", ALL)
def test_without_any_trace_the_past_is_not_checked(name: str) -> None:
    rows = answered(FindingImage(name).image(), check=[HISTORY])
    assert [(row["Finding"], row["Severity"], row["Status"], row["Evidence"]) for row in rows] == [
        (HISTORY, None, "not checked", "the image has no recorded stack")
    ]


@pytest.mark.parametrize("name", X64)
def test_a_thread_that_is_to_return_to_memory_that_may_not_be_executed(name: str) -> None:
    forged = FindingImage(name)
    forged.private(EXECUTE_READWRITE)
    forged.forbid()
    forged.returns_to(RETURNS)
    rows = found(forged.image())
    assert [(row["Finding"], row["Severity"], row["How"]) for row in rows] == [(ASLEEP, "high", "unwind")]
    assert "not executable" in rows[0]["Evidence"]


@pytest.mark.parametrize("name", ALL)
def test_a_jump_to_data_is_medium(name: str) -> None:
    """On x86 too, where PAE's entries can forbid execution."""
    forged = FindingImage(name)
    forged.private(READWRITE)
    forged.forbid()
    forged.interrupted_at(PRIVATE + 0x20)
    assert severities(forged.image(), ASLEEP) == ["medium"]


@pytest.mark.parametrize("name", ALL)
def test_memory_that_may_not_be_executed_beside_the_stack_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.private(READWRITE)
    forged.forbid()
    assert found(forged.image(), ASLEEP) == []


@pytest.mark.parametrize("name", X64)
def test_a_registered_range_that_may_not_be_executed_is_low(name: str) -> None:
    forged = FindingImage(name)
    forged.private(EXECUTE_READWRITE)
    forged.forbid()
    forged.register_table(PRIVATE, PRIVATE + 0x1000)
    forged.returns_to(RETURNS)
    assert severities(forged.image(), ASLEEP) == ["low"]


@pytest.mark.parametrize("path", ["C:\\Program Files\\Guard\\guard.dll", "C:\\Windows\\System32\\guard.dll"])
def test_private_code_that_called_a_module_names_it(path: str) -> None:
    """Evidence has the module; where no hook leads into the code, Innocent says nothing of hooks."""
    host = Host64("win10-x64")
    program = host.program("office.exe", functions="main")
    module = program.load(
        "guard.dll", **({"path": path} if path else {"path": "C:\\Windows\\System32\\guard.dll"})
    )
    assert module.base
    chain = ("guard!HookNtCreateFile", "kernelbase!WaitForSingleObjectEx")
    program.waits("main", Private(program.jitted(0x2000)), *chain)
    row = only(found(host.kernel.image(), UNBACKED))
    assert row["Severity"] == "high"
    assert "; called guard!HookNtCreateFile" in row["Evidence"]
    assert row["Innocent"].startswith("nothing known")


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("loader", "vads"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_runtime_may_be_among_modules_that_both_lists_lack(name: str, loader: bool, vads: bool) -> None:
    """One whole list names all modules."""
    forged = FindingImage(name)
    forged.private()
    forged.returns_to(RETURNS)
    image = forged.image()
    if loader:
        assert forged.app.peb is not None
        forged.app.peb["Ldr"] = 0
    if vads:
        for count in ("VadCount", "VadRoot.NumberGenericTableElements"):
            forged.app.eprocess.maybe(count, 1000)
    row = only(found(image, "unbacked"))
    assert row["Severity"] == "high"
    assert row["Confidence"] == ("possible" if loader and vads else "likely")
    assert ("may have a runtime" in row["Innocent"]) == (loader and vads)
