# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stack of the thread that crashed begins at its exception: as LLDB and other readers show it."""

from __future__ import annotations

import logging
import pathlib
import re
import shutil
import struct
import subprocess
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import pytest
from minidump.minidumpfile import MinidumpFile
from volatility3.plugins.minidump import (
    callstacks,
    info,
    tracefindings,
    traceframes,
    tracegraph,
    tracereport,
    traces,
    trapframes,
)

from tests.conftest import SHARED
from tests.support.changeddumps import ChangedDump
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from winstacks.findings.facts import CheckFacts
from winstacks.minidump.decode.dumpfile import STREAMS
from winstacks.process.regions import Region

# Its wheel for Python 3.13 is installed on newer ones, too, which cannot load it.
udmp_parser = pytest.importorskip("udmp_parser")

REAL = SHARED / "real_minidumps"
FILES = sorted((*REAL.glob("*.dmp"), *REAL.glob("more/*.dmp")))
WITHOUT = ("tiny-exe-with-cet-xsave", "tiny-exe-with-cet-xsave-x86")
"""Dumps of threads that raised no exception."""
SAME = ("tiny-exe-fastfail", "lldb-fizzbuzz_no_heap")
"""Dumps whose thread has the registers of the exception."""
THREADS, EXCEPTION = 3, 6
SYSTEM_INFO, SYSTEM_MEMORY_INFO, VM_COUNTERS = 7, 21, 22
LATER = "after the exception"

pytestmark = pytest.mark.shared


class Met(NamedTuple):
    """The exception as PyPI's `minidump` finds it, with registers at the offsets of winnt.h."""

    tid: int
    code: int
    ip: int
    sp: int


def stream_at(data: Union[bytes, bytearray], kind: int) -> int:
    """The offset in a file of the first stream of a kind."""
    return ChangedDump(bytes(data)).place(kind)


def parsed(path: pathlib.Path) -> Any:
    logging.disable(logging.ERROR)
    try:
        return MinidumpFile.parse(str(path))
    finally:
        logging.disable(logging.NOTSET)


def met(path: pathlib.Path) -> Optional[Met]:
    theirs = parsed(path)
    if theirs.exception is None or not theirs.exception.exception_records:
        return None
    record = theirs.exception.exception_records[0]
    place, data = record.ThreadContext, path.read_bytes()
    wide = theirs.sysinfo.ProcessorArchitecture.name == "AMD64"
    (ip,) = struct.unpack_from("<Q" if wide else "<I", data, place.Rva + (0xF8 if wide else 0xB8))
    (sp,) = struct.unpack_from("<Q" if wide else "<I", data, place.Rva + (0x98 if wide else 0xC4))
    (code,) = struct.unpack_from("<I", data, stream_at(data, EXCEPTION) + 8)
    return Met(record.ThreadId, code, ip, sp)


@pytest.fixture(params=FILES, ids=[path.stem for path in FILES])
def path(request: pytest.FixtureRequest) -> pathlib.Path:
    chosen: pathlib.Path = request.param
    return chosen


def stacks(path: pathlib.Path) -> List[Tuple[Dict[str, Any], List[Dict[str, Any]]]]:
    """Rows of stacks with the rows of their frames."""
    found: List[Tuple[Dict[str, Any], List[Dict[str, Any]]]] = []
    for depth, row in OpenedDump(path).rows(callstacks.CallStacks):
        if depth:
            found[-1][1].append(row)
        else:
            found.append((row, []))
    return found


def of_crash(path: pathlib.Path) -> List[Tuple[Dict[str, Any], List[Dict[str, Any]]]]:
    return [(row, frames) for row, frames in stacks(path) if "exception" in row["Status"]]


def test_the_first_stack_begins_at_the_exception(path: pathlib.Path) -> None:
    expected, found = met(path), of_crash(path)
    if path.stem in WITHOUT:
        assert (expected, found) == (None, [])
        return
    assert expected is not None
    first, frames = found[0]
    assert (first["TID"], first["Part"]) == (expected.tid, "user")
    assert f"exception {expected.code:#x}" in first["Status"] and LATER not in first["Status"]
    assert (frames[0]["Address"], frames[0]["Sp"], frames[0]["How"]) == (expected.ip, expected.sp, "trap")
    later = [row for row, _ in found[1:]]
    assert [LATER in row["Status"] for row in later] == ([] if path.stem in SAME else [True])
    assert all(row["Part"] == "user" for row in later)


def test_the_later_stack_is_that_of_the_thread_list(path: pathlib.Path) -> None:
    """The thread's own registers, as `udmp_parser` reads them, are not lost."""
    dump = udmp_parser.UserDumpParser()
    assert dump.Parse(path)
    last = {row["TID"]: frames for row, frames in stacks(path)}
    for tid, thread in dump.Threads().items():
        context = thread.Context
        ip, sp = (context.Rip, context.Rsp) if hasattr(context, "Rip") else (context.Eip, context.Esp)
        assert (last[tid][0]["Address"], last[tid][0]["Sp"]) == (ip, sp)


def lldb(path: pathlib.Path) -> Tuple[List[int], Dict[str, int]]:
    """The frames and registers that LLDB shows of the thread with the exception."""
    program = shutil.which("lldb")
    if program is None:
        pytest.skip("lldb is not installed")
    command = [program, "--batch", "-c", str(path), "-o", "bt", "-o", "register read"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout
    frames = [int(address, 16) for address in re.findall(r"frame #\d+: (0x[0-9a-f]+)", shown)]
    registers = {name: int(value, 16) for name, value in re.findall(r"^ +(\w+) = (0x[0-9a-f]+)", shown, re.M)}
    return frames, registers


def test_frames_equal_those_of_lldb(path: pathlib.Path) -> None:
    """On x86 they are equal, or ours are more: LLDB misses a caller of stack_exhaustion. LLDB has no unwind
    data on x64."""
    expected, registers = lldb(path)
    found = of_crash(path)
    if not found:
        return
    addresses = [row["Address"] for row in found[0][1]]
    if "eip" in registers:
        places = iter(addresses)
        assert all(address in places for address in expected[:1000])
    else:
        assert addresses[0] == expected[0]


def test_a_call_to_data_has_its_caller() -> None:
    """Eip lies on the stack, so nothing was pushed after the call: its return address is on top.

    The file lacks the code before that address, so the frame is unsure; LLDB passes it over.
    """
    path = REAL / "more" / "breakpad-exec_av_on_stack.dmp"
    expected = met(path)
    assert expected is not None
    top = int.from_bytes(parsed(path).get_reader().read(expected.sp, 4), "little")
    frame = of_crash(path)[0][1][1]
    assert (frame["Address"], frame["Sp"], frame["How"]) == (top, expected.sp + 4, "leaf")
    assert (frame["Symbol"], frame["Status"]) == ("crashme1+0x10ae", "headers unreadable, unsure")
    assert top not in lldb(path)[0]


@pytest.mark.parametrize(("tried", "where", "taken"), [(8, 0, True), (0, 0, False), (8, 4, False)])
def test_the_exception_tells_that_there_is_no_code(
    tried: int, where: int, taken: bool, tmp_path: pathlib.Path
) -> None:
    """A call into a module whose code and headers are absent: only the exception shows that it was data.

    It counts if it says that the processor refused to execute (8), and at Eip itself.
    """
    path = REAL / "null_write_av.dmp"
    data, expected, theirs = bytearray(path.read_bytes()), met(path), parsed(path)
    assert expected is not None
    segments = theirs.memory_segments.memory_segments
    stack = next(
        piece for piece in segments if piece.start_virtual_address <= expected.sp < piece.end_virtual_address
    )
    caller, target = expected.ip - 0x2000, expected.ip + 0x1000
    offset = stack.start_file_address + expected.sp - stack.start_virtual_address
    struct.pack_into("<I", data, offset, caller)
    place = theirs.exception.exception_records[0].ThreadContext.Rva + 0xB8
    struct.pack_into("<I", data, place, target)
    struct.pack_into("<QQ", data, stream_at(data, EXCEPTION) + 8 + 32, tried, target + where)
    (tmp_path / "crash.dmp").write_bytes(data)
    frames = of_crash(tmp_path / "crash.dmp")[0][1]
    assert (frames[1]["Address"] == caller) == taken


def test_registers_equal_those_of_lldb(path: pathlib.Path) -> None:
    _, registers = lldb(path)
    expected = met(path)
    if expected is None:
        return
    rows = [row for _, row in OpenedDump(path).rows(trapframes.TrapFrames) if row["TID"] == expected.tid]
    first = {name.lower(): value for name, value in rows[0].items()}
    for name, value in registers.items():
        ours = "r" + name[1:] if name.startswith("e") and len(name) == 3 else name
        if ours in first:
            assert first[ours] == value, name
    assert first["rip"] == expected.ip
    assert LATER not in rows[0]["Status"]
    assert all(LATER in row["Status"] for row in rows[1:])


def test_flat_tables_and_keys(path: pathlib.Path) -> None:
    expected = met(path)
    if expected is None:
        return
    dump = OpenedDump(path)
    rows = [row for _, row in dump.rows(traces.StackTraces) if row["TID"] == expected.tid]
    identities = {row["TraceId"] for row in rows}
    assert len(identities) == len(rows)
    frames = [row for _, row in dump.rows(traceframes.TraceFrames) if row["TraceId"] == rows[0]["TraceId"]]
    assert int(frames[0]["Address"], 16) == expected.ip
    assert LATER not in rows[0]["Status"]
    # The frame of the crash is part of the key of its stack, and of no other key.
    assert isinstance(rows[0]["StackKey"], str)
    modules = {frames[0]["Module"]} - {None}
    if modules and len(rows) > 1:
        assert rows[0]["StackKey"] != rows[1]["StackKey"]


def test_findings_graph_and_report_take_it(path: pathlib.Path) -> None:
    dump = OpenedDump(path)
    assert dump.rows(tracefindings.TraceFindings)
    assert dump.construct(tracegraph.TraceGraph).run() is not None
    assert dump.construct(tracereport.TraceReport).run() is not None
    assert dump.rows(info.Info)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_only_a_call_onto_the_stack_is_a_finding(path: pathlib.Path) -> None:
    """Crash reporters wrote these files of ordinary programs."""
    rows = [row for _, row in OpenedDump(path).rows(tracefindings.TraceFindings)]
    found = [
        (row["Severity"], row["Finding"], row["Frame"])
        for row in rows
        if row["Status"] != "not checked" and row["Finding"] != "nothing_found"
    ]
    expected = [("medium", "not_executable", 0)] if path.stem == "breakpad-exec_av_on_stack" else []
    assert [finding for finding in found if finding[0] not in ("low", "info")] == expected


@pytest.mark.parametrize(
    ("target", "mapped", "severity"),
    [(0, False, "low"), (0x10, False, "low"), (0x10, True, "medium"), (0x10000, False, "medium")],
)
def test_a_call_through_a_null_pointer_is_low(
    target: int, mapped: bool, severity: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most common bug of calls is no code that hides: nothing is mapped below 64 KB.

    A program that called a null pointer under Wine was dumped by its own filter, and was `medium`. Windows 7
    and earlier lets a program map the pages there.
    """
    if mapped:
        low = Region(0, 0x1000, 0, False, protection=4)
        monkeypatch.setattr(CheckFacts, "vad", lambda *_: low)
    dump = ChangedDump.named("breakpad-exec_av_on_stack.dmp")
    at = dump.place(EXCEPTION)
    record = parsed(REAL / "more" / "breakpad-exec_av_on_stack.dmp").exception.exception_records[0]
    dump.write(record.ThreadContext.Rva + 0xB8, struct.pack("<I", target))
    dump.write(at + 8 + 16, struct.pack("<Q", target))
    dump.write(at + 8 + 32, struct.pack("<QQ", 8, target))
    (tmp_path / "crash.dmp").write_bytes(dump.bytes())
    rows = [row for _, row in OpenedDump(tmp_path / "crash.dmp").rows(tracefindings.TraceFindings)]
    found = [(row["Severity"], row["Frame"]) for row in rows if row["Finding"] == "not_executable"]
    assert (severity, 0) in found


def only_exception(path: pathlib.Path, without_list: bool) -> bytes:
    """A real dump whose thread list lacks the thread that crashed, or which has no such list."""
    data, expected = bytearray(path.read_bytes()), met(path)
    assert expected is not None
    rva = stream_at(data, THREADS)
    count, directory = struct.unpack_from("<II", data, 8)
    for at in range(directory, directory + 12 * count, 12):
        if without_list and struct.unpack_from("<I", data, at)[0] == THREADS:
            struct.pack_into("<I", data, at, 0)
    for at in range(rva + 4, rva + 4 + 48 * struct.unpack_from("<I", data, rva)[0], 48):
        if struct.unpack_from("<I", data, at)[0] == expected.tid:
            struct.pack_into("<I", data, at, 1)
    return bytes(data)


@pytest.mark.parametrize("without_list", [False, True])
def test_a_dump_with_the_context_of_the_exception_only(without_list: bool, tmp_path: pathlib.Path) -> None:
    path = REAL / "more" / "breakpad-read_av_conditional.dmp"
    (tmp_path / "crash.dmp").write_bytes(only_exception(path, without_list))
    expected = of_crash(path)[0]
    found = of_crash(tmp_path / "crash.dmp")
    row, frames = only(found)
    assert row["TID"] == expected[0]["TID"]
    # Without the list, the memory list still has the stack.
    assert [frame["Address"] for frame in frames] == [frame["Address"] for frame in expected[1]]


def test_a_dump_without_the_context_of_its_exception(tmp_path: pathlib.Path) -> None:
    """The registers that are left need not be those of the exception."""
    data = bytearray((REAL / "more" / "breakpad-read_av_conditional.dmp").read_bytes())
    struct.pack_into("<II", data, stream_at(data, EXCEPTION) + 160, 0, 0)
    (tmp_path / "crash.dmp").write_bytes(data)
    row, _ = only(of_crash(tmp_path / "crash.dmp"))
    assert "exception 0xc0000005, not in the dump: ThreadContext" in row["Status"]


def test_what_is_no_context_of_the_exception_has_its_row(tmp_path: pathlib.Path) -> None:
    dump = ChangedDump.named("write_av_non_canonical.dmp")
    size, rva = struct.unpack_from("<II", dump.stream(EXCEPTION), 160)
    dump.write(rva + 0x30, bytes(4))
    path = tmp_path / "none.dmp"
    path.write_bytes(dump.bytes())
    row = only(row for _, row in OpenedDump(path).rows(info.Info) if row["Member"] == "ThreadContext")
    assert (row["TID"], row["Value"], row["Status"]) == (4488, f"{size} bytes at {rva:#x}", "not a context")


@pytest.mark.parametrize(
    ("kind", "value", "member"),
    [
        (SYSTEM_INFO, 0, "contradicted: ProcessorArchitecture"),
        (SYSTEM_MEMORY_INFO, 0, "header: Revision"),
        (SYSTEM_MEMORY_INFO, 0xFFFF, "header: Revision"),
        (VM_COUNTERS, 1, "header: Revision"),
    ],
)
def test_streams_of_the_machine_that_contradict_the_file(
    kind: int, value: int, member: str, tmp_path: pathlib.Path
) -> None:
    dump = ChangedDump.named("write_av_non_canonical.dmp")
    path = tmp_path / "changed.dmp"
    for data, told in (({}, ""), ({dump.place(kind): struct.pack("<H", value)}, member)):
        for place, new in data.items():
            dump.write(place, new)
        path.write_bytes(dump.bytes())
        rows = [row for _, row in OpenedDump(path).rows(info.Info)]
        assert only(row["Status"] for row in rows if row["Member"] == STREAMS[kind]) == told
