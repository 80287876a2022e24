# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps that were written without a list of modules: what they lack is no damage and no finding."""

from __future__ import annotations

import pathlib
import struct
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.minidump import callstacks, info, tracefindings, traces

from tests.forge import minidump, smalldump
from tests.forge.minidump import Module
from tests.forge.smalldump import SmallDump
from tests.support.only import only
from tests.support.processdumps import OpenedDump

CODE, STACK, PRIVATE = 0x7FF010001000, 0x7FF000000000, 0x7FF020000000
KERNEL, KERNEL_STACK = 0xFFFFF80312200000, 0xFFFFD00012345000

PROGRAM_BASE = 0x140000000
COMMIT, READ_EXECUTE, READ_WRITE = 0x1000, 0x20, 4
TYPE_IMAGE, TYPE_PRIVATE = 0x1000000, 0x20000
WARNING = "The file has no list of modules: which module has an address is unknown"
NO_LIST = "module list not in the file"
ABSENT = interfaces.renderers.BaseAbsentValue


def dump(
    path: pathlib.Path,
    ip: int,
    listed: bool,
    regions: bool,
    modules: Sequence[Module] = (),
    code: bool = False,
) -> OpenedDump:
    """A dump of a process with one thread, which has its registers and its stack."""
    data = bytearray(0x4D0)
    struct.pack_into("<I", data, 0x30, 0x100003)
    struct.pack_into("<Q", data, 0x98, STACK + 0x100)
    struct.pack_into("<Q", data, 0xF8, ip)
    writer = minidump.Writer()
    writer.system_info()
    writer.misc_info(100)
    if listed:
        writer.modules(modules)
    if code:
        writer.memory([(CODE, b"\xcc" * 0x100)])
    writer.threads([minidump.WrittenThread(8, 0, (STACK, bytes(0x200)), bytes(data))])
    if regions:
        rows = [
            (CODE, CODE, READ_EXECUTE, 0x1000, COMMIT, READ_EXECUTE, TYPE_IMAGE),
            (PRIVATE, PRIVATE, READ_EXECUTE, 0x1000, COMMIT, READ_EXECUTE, TYPE_PRIVATE),
            (STACK, STACK, READ_WRITE, 0x1000, COMMIT, READ_WRITE, TYPE_PRIVATE),
        ]
        writer.memory_infos(sorted(rows))
    path.write_bytes(writer.bytes())
    return OpenedDump(path)


def stack_of(opened: OpenedDump) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    rows = opened.rows(callstacks.CallStacks)
    return (
        next(row for depth, row in rows if not depth and row["Part"] == "user"),
        next(row for depth, row in rows if depth),
    )


def warned(caplog: pytest.LogCaptureFixture) -> List[str]:
    return [each.getMessage() for each in caplog.records if "list of modules" in each.getMessage()]


@pytest.mark.parametrize("regions", [False, True])
def test_a_process_without_a_list(
    regions: bool, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = dump(tmp_path / "process.dmp", CODE + 0x10, listed=False, regions=regions)
    stack, frame = stack_of(opened)
    assert (frame["Symbol"], frame["Backing"], frame["Status"]) == ("<unknown>", "unknown", NO_LIST)
    assert isinstance(stack["Unbacked"], ABSENT)
    assert NO_LIST in stack["Status"] and "code in no module" not in stack["Status"]
    row = next(row for _, row in opened.rows(traces.StackTraces) if row["Kind"] == "user")
    assert isinstance(row["Unbacked"], ABSENT)
    assert NO_LIST in row["Status"]
    values = {row["Member"]: row["Value"] for _, row in opened.rows(info.Info, brief=True)}
    assert "no-module" not in " ".join(values.values())
    findings = [row for _, row in opened.rows(tracefindings.TraceFindings)]
    assert {row["Finding"] for row in findings if row["Status"] != "not checked"} == {"nothing_found"}
    assert set(warned(caplog)) == {WARNING}


def test_private_memory_is_private_without_a_list_of_modules(tmp_path: pathlib.Path) -> None:
    """MemoryInfoList proves what the memory is: there Unbacked is known."""
    stack, frame = stack_of(dump(tmp_path / "process.dmp", PRIVATE + 0x10, listed=False, regions=True))
    assert (frame["Symbol"], frame["Backing"], stack["Unbacked"]) == ("<private>", "private", 1)


def test_an_empty_list_is_a_list(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    stack, frame = stack_of(dump(tmp_path / "process.dmp", CODE + 0x10, listed=True, regions=False))
    assert (frame["Symbol"], frame["Backing"], frame["Status"]) == ("<no-module>", "none", "VADs incomplete")
    assert "code in no module" in stack["Status"]
    assert warned(caplog) == []


PROGRAM = Module(PROGRAM_BASE, 0x10000, 1, "C:\\app.exe")
DLL = Module(CODE & -0x10000, 0x10000, 1, "C:\\Windows\\System32\\ntdll.dll")


def cut_list(path: pathlib.Path, there: int, ip: int = CODE + 0x10) -> OpenedDump:
    """A dump of two modules, whose list ends after some bytes; the second module has the code."""
    opened = dump(path, ip, listed=True, regions=False, modules=[PROGRAM, DLL], code=True)
    data = bytearray(path.read_bytes())
    count, directory = struct.unpack_from("<II", data, 8)
    rows = [directory + 12 * number for number in range(count)]
    row = only(row for row in rows if struct.unpack_from("<I", data, row)[0] == 4)
    _, size, rva = struct.unpack_from("<III", data, row)
    struct.pack_into("<I", data, row + 8, len(data))
    path.write_bytes(data + data[rva : rva + min(size, there)])
    return opened


@pytest.mark.parametrize("there", [0, 2, 4, 4 + 107])
def test_a_list_of_which_the_file_has_nothing(there: int, tmp_path: pathlib.Path) -> None:
    opened = cut_list(tmp_path / "process.dmp", there)
    stack, frame = stack_of(opened)
    assert (frame["Symbol"], frame["Backing"], frame["Status"]) == ("<unknown>", "unknown", NO_LIST)
    assert isinstance(stack["Unbacked"], ABSENT)
    assert not unbacked(opened)


@pytest.mark.parametrize("there", [4 + 108, 4 + 2 * 108])
def test_an_address_that_no_stream_describes(there: int, tmp_path: pathlib.Path) -> None:
    """Nothing was searched that could show that no memory is there; a whole list shows that no module is."""
    _, frame = stack_of(cut_list(tmp_path / "process.dmp", there, PRIVATE + 0x10))
    doubt = "VADs incomplete" if there == 4 + 2 * 108 else "module list incomplete, VADs incomplete"
    assert (frame["Symbol"], frame["Backing"], frame["Status"]) == ("<no-module>", "none", doubt)


@pytest.mark.parametrize("there", [4 + 108, 4 + 108 + 50])
def test_a_list_of_which_the_file_has_a_part(there: int, tmp_path: pathlib.Path) -> None:
    """The memory may be of a module behind the end of the file: every row made of it doubts."""
    opened = cut_list(tmp_path / "process.dmp", there)
    _, frame = stack_of(opened)
    doubt = "module list incomplete, protection unknown"
    assert (frame["Symbol"], frame["Status"]) == ("<private>", doubt)
    assert [(row["Severity"], row["Confidence"], row["Status"]) for row in unbacked(opened)] == [
        ("medium", "possible", doubt)
    ]


def test_a_whole_list(tmp_path: pathlib.Path) -> None:
    opened = cut_list(tmp_path / "process.dmp", 4 + 2 * 108)
    _, frame = stack_of(opened)
    assert (frame["Symbol"], frame["Status"]) == ("ntdll+0x1010", "headers unreadable")
    assert not unbacked(opened)


def unbacked(opened: OpenedDump) -> List[Dict[str, Any]]:
    rows = [row for _, row in opened.rows(tracefindings.TraceFindings)]
    return [row for row in rows if row["Finding"] == "unbacked" and row["Status"] != "not checked"]


def test_a_small_kernel_dump_with_no_drivers(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A count of 0 and no offset: Windows wrote no list. A count without its list is damage."""
    small = SmallDump(wide=True)
    small.drivers([smalldump.Driver("ntoskrnl.exe", KERNEL, 0x800000)])
    small.crash(0xD1, (0x10, 2, 0, 1), smalldump.context(True, KERNEL + 0x1234, KERNEL_STACK + 0x40))
    data = bytearray(small.file())
    offset, count = places(data)
    struct.pack_into("<I", data, offset, 0)
    (tmp_path / "damaged.dmp").write_bytes(data)
    rows = OpenedDump(tmp_path / "damaged.dmp").rows(callstacks.CallStacks)
    assert next(row["Status"] for depth, row in rows if depth) == "module list incomplete"
    assert warned(caplog) == [
        "The kernel's list of modules is broken: a module may be missing from the names"
    ]
    caplog.clear()
    struct.pack_into("<I", data, count, 0)
    (tmp_path / "none.dmp").write_bytes(data)
    opened = OpenedDump(tmp_path / "none.dmp")
    rows = opened.rows(callstacks.CallStacks)
    assert next(row["Status"] for depth, row in rows if depth) == NO_LIST
    assert isinstance(next(row["Unbacked"] for depth, row in rows if not depth), ABSENT)
    assert "code in no module" not in only(row["Status"] for depth, row in rows if not depth)
    assert warned(caplog) == [WARNING]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_small_kernel_dump_whose_count_of_drivers_is_too_small(left: int, tmp_path: pathlib.Path) -> None:
    """Behind the counted drivers lies another: the address may be in it, and no finding is high."""
    small = SmallDump(wide=True)
    bases = [KERNEL, KERNEL + 0x10000000, KERNEL + 0x20000000]
    names = ("ntoskrnl.exe", "ntfs.sys", "tcpip.sys")
    small.drivers([smalldump.Driver(name, base, 0x800000) for name, base in zip(names, bases)])
    small.crash(0xD1, (0x10, 2, 0, 1), smalldump.context(True, bases[2] + 0x1234, KERNEL_STACK + 0x40))
    data = bytearray(small.file())
    count = 0x2000 + 0x34
    assert struct.unpack_from("<I", data, count) == (3,)
    struct.pack_into("<I", data, count, 3 - left)
    (tmp_path / "small.dmp").write_bytes(data)
    opened = OpenedDump(tmp_path / "small.dmp")
    _, frame = next(row for row in opened.rows(callstacks.CallStacks) if row[0])
    findings = [row for _, row in opened.rows(tracefindings.TraceFindings)]
    severities = {row["Severity"] for row in findings if row["Finding"] == "kernel_no_module"}
    if left:
        assert (frame["Symbol"], frame["Status"]) == ("<no-module>", "module list incomplete")
        assert "high" not in severities
    else:
        assert (frame["Symbol"], severities) == ("tcpip+0x1234", set())


def places(data: bytearray) -> Tuple[int, int]:
    """The offsets in the file of DriverListOffset and DriverCount, which is behind it."""
    at = 0x2000 + 0x30
    offset, count = struct.unpack_from("<II", data, at)
    assert count == 1 and 0x2000 < offset < len(data)
    return at, at + 4
