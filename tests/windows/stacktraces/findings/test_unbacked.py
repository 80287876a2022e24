# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Checks of code that no file backs: in a thread's stack, in what Windows recorded, and asleep."""

from __future__ import annotations

from typing import Callable

import pytest
from volatility3.plugins.windows.stacktraces.findings import functiontables

from tests.forge.paging import State
from tests.forge.vad import EXECUTE_READWRITE, READWRITE
from tests.support.callstackimages import GETTER_RVA, HEAD_RVA
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

ELSEWHERE = 0x41000000
UNBACKED, HISTORY, ASLEEP = "unbacked", "history_unbacked", "not_executable"


@pytest.mark.parametrize("name", ALL)
def test_a_thread_that_was_interrupted_in_private_memory(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    (row,) = found(forged.image(), UNBACKED)
    assert (row["Severity"], row["Confidence"], row["How"]) == ("high", "certain", "trap")
    assert (row["PID"], row["TID"], row["Kind"], row["Frame"]) == (1000, TID, "user", 0)
    assert (row["Address"], row["Symbol"]) == (PRIVATE + 0x20, "<private>")
    assert "VAD 0x20000000-0x20000fff private PAGE_EXECUTE_READWRITE" in row["Evidence"]
    assert "bytes 90 90 90 90" in row["Evidence"]
    assert row["Technique"] == "T1055, T1620"
    assert row["TraceId"].startswith("user:")


@pytest.mark.parametrize("name", X64)
def test_a_thread_that_returns_to_private_memory(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.returns_to(RETURNS)
    (row,) = found(forged.image(), UNBACKED)
    assert (row["Severity"], row["How"], row["Address"]) == ("high", "unwind", RETURNS)


@pytest.mark.parametrize("name", ALL)
def test_the_same_in_a_mapped_file_is_silent(name: str) -> None:
    forged = FindingImage(name)
    forged.private(file="\\Windows\\code.bin")
    forged.interrupted_at(PRIVATE + 0x20)
    assert found(forged.image(), UNBACKED) == []


@pytest.mark.parametrize("name", X64)
def test_the_same_where_nothing_may_be_executed_is_another_finding(name: str) -> None:
    forged = FindingImage(name)
    forged.private(READWRITE)
    forged.forbid()
    forged.interrupted_at(PRIVATE + 0x20)
    assert {row["Finding"] for row in found(forged.image())} == {ASLEEP}


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(("start", "severity"), [(PRIVATE, "low"), (PRIVATE + 0x800, "high")])
def test_a_registered_function_table(name: str, start: int, severity: str) -> None:
    """Only that of the range itself explains the frame."""
    forged = FindingImage(name)
    forged.private()
    forged.register_table(start, start + 0x800, count=3)
    forged.interrupted_at(PRIVATE + 0x20)
    forged.recorded(RETURNS)
    rows = {row["Finding"]: row for row in found(forged.image())}
    assert {rows[check]["Severity"] for check in (UNBACKED, HISTORY)} == {severity}
    said = rows[UNBACKED]["Innocent"]
    assert ("function table registered for 0x20000000-0x200007ff" in said) == (severity == "low")


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


def _without_range(forged: FindingImage) -> None:
    _link(forged, ELSEWHERE)


def _with_zeros(forged: FindingImage) -> None:
    _link(forged, 0)


def _with_other_code(forged: FindingImage) -> None:
    forged.app.space.write(forged.stacks.modules["ntdll"].base + GETTER_RVA, b"\x90" * 0x10)


@pytest.mark.parametrize("name", X64)
@pytest.mark.parametrize(
    ("change", "severity"),
    [
        (_without_getter, "low"),
        (_without_head, "low"),
        (_without_element, "low"),
        (_with_zeros, "low"),
        (_without_range, "high"),
        (_with_other_code, "high"),
    ],
)
def test_function_tables_that_are_not_in_the_image(
    name: str, change: Callable[[FindingImage], None], severity: str
) -> None:
    """What is missing may explain it: low, and that is said. What was changed explains nothing."""
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    forged.recorded(RETURNS)
    change(forged)
    for check in (UNBACKED, HISTORY):
        row, *rest = answered(forged.image(), check=[check])
        assert row["Severity"] == severity
        told = "function tables are not in the image: private code is low in PID 1000"
        assert [each["Evidence"] for each in rest] == [told] * (severity == "low")


def test_a_list_of_function_tables_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    forged = FindingImage("win10-x64")
    forged.private()
    forged.register_table(PRIVATE, PRIVATE + 0x800, count=40)
    forged.interrupted_at(PRIVATE + 0x20)
    monkeypatch.setattr(functiontables, "MAX_TABLES", 8)
    assert severities(forged.image(), UNBACKED) in (["high"], ["low"])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("runtime", ["clr.dll", "coreclr.dll", "jvm.dll"])
def test_a_runtime_that_is_only_loaded_lowers_the_confidence(name: str, runtime: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.interrupted_at(PRIVATE + 0x20)
    forged.app.module(runtime)
    (row,) = found(forged.image(), UNBACKED)
    assert (row["Severity"], row["Confidence"]) == ("high", "likely")
    assert row["Innocent"].startswith(f"{runtime} loaded")


@pytest.mark.parametrize("name", X64)
def test_a_frame_that_a_scan_found_is_low(name: str) -> None:
    """Nothing tells how to go on from a mapped file, so that the caller is a guess."""
    forged = FindingImage(name)
    forged.private()
    forged.app.region(0x21000000, b"\x90" * 0x100, size=0x1000, file="\\Windows\\code.bin")
    forged.interrupted_at(0x21000020)
    place = forged.kernel.space.read_int(forged.thread.kthread["TrapFrame"] + 0x180)
    forged.app.space.write_int(place, RETURNS, 8)
    (row,) = found(forged.image(), UNBACKED)
    assert (row["Severity"], row["Confidence"], row["How"]) == ("low", "possible", "scan")


@pytest.mark.parametrize("name", ALL)
def test_a_recorded_caller_in_private_memory(name: str) -> None:
    forged = FindingImage(name)
    forged.private()
    forged.recorded(RETURNS)
    (row,) = found(forged.image(), HISTORY)
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
    (row,) = found(forged.image(), HISTORY)
    assert row["Severity"] == "low"
    assert row["Innocent"].startswith("a module that was unloaded")


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
        (HISTORY, None, "not checked", "no trace is kept in this image")
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
