# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Process dumps as people send them: real files, and real files changed as other writers write them."""

from __future__ import annotations

import pathlib
import random
import struct
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.framework import exceptions
from volatility3.plugins.minidump import (
    callstacks,
    gflags,
    handletraces,
    heaptraces,
    info,
    locks,
    stacktracedb,
    tracefindings,
    traceframes,
    tracegraph,
    traceimage,
    tracereport,
    traces,
    trapframes,
)

from tests.support.changeddumps import (
    BROKEN,
    COMMENT,
    EXCEPTION,
    FUNCTIONS,
    MODULES,
    OF_WINDOWS,
    OTHER_SYSTEMS,
    REGIONS,
    SYSTEM_INFO,
    THREADS,
    ChangedDump,
)
from tests.support.only import only
from tests.support.processdumps import OpenedDump

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not OF_WINDOWS, reason="the real minidumps are not there"),
]

ALL = {
    "callstacks": callstacks.CallStacks,
    "gflags": gflags.GFlags,
    "handletraces": handletraces.HandleTraces,
    "heaptraces": heaptraces.HeapTraces,
    "locks": locks.Locks,
    "stacktracedb": stacktracedb.StackTraceDb,
    "tracefindings": tracefindings.TraceFindings,
    "traceframes": traceframes.TraceFrames,
    "tracegraph": tracegraph.TraceGraph,
    "traceimage": traceimage.TraceImage,
    "tracereport": tracereport.TraceReport,
    "traces": traces.StackTraces,
    "trapframes": trapframes.TrapFrames,
}
DAMAGED = ("thread list damaged", "contradicted", "overlap")
CET, CET_X86, CHROME = (
    "tiny-exe-with-cet-xsave.dmp",
    "tiny-exe-with-cet-xsave-x86.dmp",
    "node-minidump-windows.dmp",
)

Row = Dict[str, Any]


def opened(dump: ChangedDump, folder: pathlib.Path) -> OpenedDump:
    (folder / "changed.dmp").write_bytes(dump.bytes())
    return OpenedDump(folder / "changed.dmp")


def innermost(dump: OpenedDump) -> List[Tuple[int, int, int]]:
    """Returns (TID, Sp, Address) of the first frame of each thread."""
    rows = (row for depth, row in dump.rows(callstacks.CallStacks) if depth)
    return [(row["TID"], row["Sp"], row["Address"]) for row in rows if row["Frame"] == 0]


def whole(dump: ChangedDump, folder: pathlib.Path) -> List[Tuple[int, int, int]]:
    """Returns the first frames of a dump of which nothing may be called damaged."""
    found = opened(dump, folder)
    for plugin in (callstacks.CallStacks, trapframes.TrapFrames, info.Info):
        for _, row in found.rows(plugin):
            assert not [word for word in DAMAGED if word in row["Status"]], row
    return innermost(found)


@pytest.mark.parametrize("path", OF_WINDOWS, ids=lambda path: str(path.stem))
def test_nothing_of_a_real_dump_is_called_damaged(path: pathlib.Path) -> None:
    dump = OpenedDump(path)
    for plugin in (callstacks.CallStacks, trapframes.TrapFrames, info.Info):
        for _, row in dump.rows(plugin):
            assert not [word for word in DAMAGED if word in row["Status"]], row


@pytest.mark.parametrize("path", OF_WINDOWS, ids=lambda path: str(path.stem))
def test_a_crash_of_an_ordinary_program_is_no_finding(path: pathlib.Path) -> None:
    rows = [row for _, row in OpenedDump(path).rows(tracefindings.TraceFindings)]
    found = {(row["Finding"], row["Severity"]) for row in rows if row["Severity"] in ("medium", "high")}
    if path.stem == "breakpad-exec_av_on_stack":
        # The program called an address on its stack.
        assert {check for check, _ in found} <= {"not_executable"}
    else:
        assert found == set()


@pytest.mark.parametrize("name", sorted(ALL))
@pytest.mark.parametrize("path", OTHER_SYSTEMS, ids=lambda path: str(path.stem))
def test_other_systems_are_refused_by_name(path: pathlib.Path, name: str) -> None:
    system = {"rust-simple-crashpad": "macOS", "node-minidump-linux": "Linux"}.get(path.stem, "iOS")
    with pytest.raises(exceptions.RenderException, match=f"a dump of a process of {system},.*minidump.info"):
        OpenedDump(path).rows(ALL[name])


@pytest.mark.parametrize("path", OTHER_SYSTEMS, ids=lambda path: str(path.stem))
def test_info_lists_the_streams_of_other_systems(path: pathlib.Path) -> None:
    rows = [row for _, row in OpenedDump(path).rows(info.Info, annotations=True)]
    values = {row["Member"]: row["Value"] for row in rows}
    assert values["PlatformId"].startswith("MD_OS_")
    if path.stem == "node-minidump-linux":
        assert values["MD_LINUX_MAPS"] == "50176 bytes at 0x28f70, not decoded, by Breakpad"
    if path.stem == "rust-simple-crashpad":
        assert values["SimpleAnnotations/hello"] == "world"
        assert values["dyld/ListAnnotations"] == "dyld2 mode"
    if path.stem == "breakpad-minidump_crashpad_annotation":
        assert values["SimpleAnnotations/prod"] == "xcuitest"
        assert [values[name] for name in values if name.endswith("AnnotationObjects/exceptionName")] == [
            "NSRangeException"
        ]


@pytest.mark.parametrize("name", ["info", *sorted(ALL)])
@pytest.mark.parametrize("path", BROKEN, ids=lambda path: str(path.stem))
def test_broken_files_have_a_clear_answer(path: pathlib.Path, name: str) -> None:
    plugin = {"info": info.Info, **ALL}[name]
    if name in ("tracegraph", "tracereport") and path.stem == "rust-invalid-parameter":
        assert OpenedDump(path).construct(plugin).run() is not None
        return
    if name == "info" or path.stem == "rust-invalid-parameter":
        assert OpenedDump(path).rows(plugin) or name in ("locks", "handletraces", "stacktracedb")
        return
    with pytest.raises(exceptions.RenderException, match="contexts and modules do not tell it"):
        OpenedDump(path).rows(plugin)


def test_contexts_of_several_sizes(tmp_path: pathlib.Path) -> None:
    """A thread without XSTATE among threads with it, as the thread of an exception often is."""
    dump = ChangedDump.named(CET_X86)
    first = next(dump.thread_rows())
    size, rva = struct.unpack("<II", dump.read(first + 40, 8))
    (flags,) = struct.unpack("<I", dump.read(rva, 4))
    assert (size, flags) == (1147, 0x1007F)
    plain = innermost(opened(dump, tmp_path))
    dump.write(rva, struct.pack("<I", 0x1003F))
    dump.write(first + 40, struct.pack("<I", 716))
    assert whole(dump, tmp_path) == plain
    assert len(plain) == 3


def test_a_size_that_no_context_has_is_said(tmp_path: pathlib.Path) -> None:
    dump = ChangedDump.named("null_write_av.dmp")
    dump.write(next(dump.thread_rows()) + 40, struct.pack("<I", 720))
    rows = [row for _, row in opened(dump, tmp_path).rows(callstacks.CallStacks)]
    assert rows[0]["Status"] == "contradicted: ThreadContext, thread list damaged"


@pytest.mark.parametrize("plugin", [callstacks.CallStacks, trapframes.TrapFrames, traces.StackTraces])
def test_a_damaged_list_costs_no_other_row(plugin: Any, tmp_path: pathlib.Path) -> None:
    """The row that stands for the list has no registers, and needs no kernel."""
    dump = ChangedDump.named(CHROME)
    rows = [row for depth, row in opened(dump, tmp_path).rows(plugin) if not depth]
    first, second, *_ = dump.thread_rows()
    dump.write(second, dump.read(first, 4))
    damaged = [row for depth, row in opened(dump, tmp_path).rows(plugin) if not depth]
    said = [row for row in damaged if "thread list damaged" in row["Status"]]
    # The flat tables have a row for each kind of stacks of which some may be missing, as for the lost PEB.
    assert said
    for listed in (rows, damaged):
        threads = [row for row in listed if isinstance(row["TID"], int)]
        assert len([row for row in threads if "after the exception" not in row["Status"]]) == 14


def test_without_a_system_info(tmp_path: pathlib.Path) -> None:
    for name, expected in ((CHROME, "x64"), ("null_write_av.dmp", "x86")):
        dump = ChangedDump.named(name)
        before = innermost(opened(dump, tmp_path))
        dump.drop(SYSTEM_INFO)
        found = opened(dump, tmp_path)
        assert innermost(found) == before
        rows = [row for depth, row in found.rows(gflags.GFlags) if not depth]
        assert {row["Arch"] for row in rows} == {expected}
        assert all("no SystemInfoStream (CPU by ThreadContext)" in row["Status"] for row in rows)
        _, row = only(found.rows(traceimage.TraceImage))
        assert "KernelBuild" in row


def test_without_a_system_info_and_without_contexts(tmp_path: pathlib.Path) -> None:
    """The addresses of modules tell a 64-bit process; without them nothing tells the CPU."""
    dump = ChangedDump.named(CHROME)
    for kind in (SYSTEM_INFO, THREADS, EXCEPTION):
        dump.drop(kind)
    rows = [row for depth, row in opened(dump, tmp_path).rows(callstacks.CallStacks) if not depth]
    assert [row["Status"] for row in rows] == ["no thread list"]
    assert [row["Arch"] for row in rows] == ["x64"]
    dump.drop(MODULES)
    with pytest.raises(exceptions.RenderException, match="contexts and modules do not tell it"):
        opened(dump, tmp_path).rows(callstacks.CallStacks)


@pytest.mark.parametrize(
    "plugin",
    [
        callstacks.CallStacks,
        trapframes.TrapFrames,
        traces.StackTraces,
        tracefindings.TraceFindings,
        info.Info,
    ],
)
def test_without_a_thread_list(plugin: Any, tmp_path: pathlib.Path) -> None:
    dump = ChangedDump.named("tiny-exe-fastfail.dmp")
    dump.drop(THREADS)
    rows = [row for _, row in opened(dump, tmp_path).rows(plugin)]
    assert rows
    if plugin in (callstacks.CallStacks, trapframes.TrapFrames):
        assert "no thread list" in [row["Status"] for row in rows]


def test_an_exception_without_a_context(tmp_path: pathlib.Path) -> None:
    dump = ChangedDump.named("null_write_av.dmp")
    before = innermost(opened(dump, tmp_path))
    dump.replace(EXCEPTION, dump.stream(EXCEPTION)[:160])
    found = opened(dump, tmp_path)
    assert {tid for tid, *_ in innermost(found)} == {tid for tid, *_ in before}
    rows = {row["Member"]: row for _, row in found.rows(info.Info)}
    assert rows["ExceptionStream"]["Status"] == "no saved registers"
    assert rows["ExceptionCode"]["Value"] == "ACCESS_VIOLATION (0xc0000005)"


def test_stacks_that_only_the_memory_list_has(tmp_path: pathlib.Path) -> None:
    for name in ("null_write_av.dmp", CHROME):
        dump = ChangedDump.named(name)
        before = [
            (row["TID"], row["Sp"], row["Symbol"])
            for depth, row in opened(dump, tmp_path).rows(callstacks.CallStacks)
            if depth
        ]
        for thread in dump.thread_rows():
            dump.write(thread + 36, bytes(4))
        whole(dump, tmp_path)
        after = [
            (row["TID"], row["Sp"], row["Symbol"])
            for depth, row in opened(dump, tmp_path).rows(callstacks.CallStacks)
            if depth
        ]
        assert after == before


def test_a_comment_in_no_known_code_page(tmp_path: pathlib.Path) -> None:
    dump = ChangedDump.named("null_write_av.dmp")
    dump.replace(COMMENT, b"caf\xe9 \x93quoted\x94\0rest")
    values = {row["Member"]: row["Value"] for _, row in opened(dump, tmp_path).rows(info.Info)}
    assert values["Buffer"] == "caf\\xe9 \\x93quoted\\x94"
    dump.replace(COMMENT, "café".encode())
    values = {row["Member"]: row["Value"] for _, row in opened(dump, tmp_path).rows(info.Info)}
    assert values["Buffer"] == "café"


def tables(random_: random.Random, count: int, spare: int) -> bytes:
    """Returns a FunctionTableStream of some tables, laid out as the real one is, with spare bytes behind."""
    real = ChangedDump.named(CHROME).stream(FUNCTIONS)
    header = struct.unpack_from("<6I", real)
    assert header == (24, 32, 112, 12, 1, 4)
    packed = struct.pack("<6I", *header[:4], count, 4) + bytes(4)
    for number in range(count):
        base = 0x1FD0000000 + 0x100000 * number
        entries = random_.randrange(1, 5)
        packed += struct.pack("<QQQII", base, base + 0x100000, base, entries, 4) + real[60:172]
        for entry in range(entries):
            packed += struct.pack("<III", 0x1000 * entry, 0x1000 * entry + 0x800, 0x20)
        packed += bytes(4)
    return packed + random_.randbytes(spare)


@pytest.mark.parametrize("seed", range(6))
def test_spare_bytes_behind_function_tables(seed: int, tmp_path: pathlib.Path) -> None:
    random_ = random.Random(seed)
    count = random_.randrange(1, 400)
    dump = ChangedDump.named(CHROME)
    dump.replace(FUNCTIONS, tables(random_, count, count * random_.randrange(4, 9)))
    rows = {row["Member"]: row for _, row in opened(dump, tmp_path).rows(info.Info)}
    assert rows["NumberOfDescriptors"]["Value"] == str(count)
    assert rows["FunctionTableStream"]["Status"] == ""


def test_a_table_more_than_the_count_is_said(tmp_path: pathlib.Path) -> None:
    data = bytearray(tables(random.Random(1), 40, 0))
    struct.pack_into("<I", data, 16, 39)
    dump = ChangedDump.named(CHROME)
    dump.replace(FUNCTIONS, bytes(data))
    rows = {row["Member"]: row for _, row in opened(dump, tmp_path).rows(info.Info)}
    assert rows["FunctionTableStream"]["Status"] == "fewer than the stream holds: NumberOfDescriptors"


def test_a_size_of_image_that_is_no_multiple_of_pages(tmp_path: pathlib.Path) -> None:
    for name in ("null_write_av.dmp", CET):
        dump = ChangedDump.named(name)
        start = dump.place(MODULES) + 4
        (count,) = struct.unpack("<I", dump.read(start - 4, 4))
        for number in range(count):
            place = start + 108 * number + 8
            (size,) = struct.unpack("<I", dump.read(place, 4))
            dump.write(place, struct.pack("<I", size - 0x123))
        whole(dump, tmp_path)
        rows = [row for _, row in opened(dump, tmp_path).rows(tracefindings.TraceFindings)]
        assert not [row for row in rows if row["Severity"] in ("low", "medium", "high")]


@pytest.mark.parametrize("behind", [0x1000, 0x3000, 0x8000])
def test_pages_behind_images(behind: int, tmp_path: pathlib.Path) -> None:
    """As Windows 11 24H2 maps them: the region of an image is larger than its SizeOfImage."""
    dump = ChangedDump.named(CET)
    start = dump.place(MODULES) + 4
    (count,) = struct.unpack("<I", dump.read(start - 4, 4))
    changed = 0
    for number in range(count):
        place = start + 108 * number + 8
        (size,) = struct.unpack("<I", dump.read(place, 4))
        if size > behind + 0x10000:
            dump.write(place, struct.pack("<I", size - behind))
            changed += 1
    assert changed > 20
    assert REGIONS
    whole(dump, tmp_path)
    rows = [row for _, row in opened(dump, tmp_path).rows(tracefindings.TraceFindings)]
    assert not [row for row in rows if row["Severity"] in ("low", "medium", "high")]


def test_what_info_lists(tmp_path: pathlib.Path) -> None:
    dump = OpenedDump(next(path for path in OF_WINDOWS if path.name == CET))
    options = dict.fromkeys(("modules", "unloaded", "handles", "regions", "annotations"), True)
    few, many = dump.rows(info.Info), dump.rows(info.Info, **options)
    shown = [row for _, row in many]
    values = [(row["Member"], row["Value"]) for row in shown]
    assert ("PDB key", "ntdll.pdb/182CCEC0B5C9ADDAD58E39449BAC07421/ntdll.pdb") in values
    assert ("image key", "ntdll.dll/B594BEDC207000/ntdll.dll") in values
    assert ("FileVersion", "10.0.22000.282") in values
    assert ("Flags", "MiniDumpWithAvxXStateContext (0x200000)") in values
    assert ("ProcessorArchitecture", "PROCESSOR_ARCHITECTURE_AMD64 (9)") in values
    assert ("ProcessUserTime", "0 s") in values
    zone = only(value for name, value in values if name == "TimeZoneId")
    assert zone.startswith("TIME_ZONE_ID_")
    assert ("TimeDateStamp", "2021-11-01 21:55:43 UTC (0x6180625f)") in values
    counts = {
        name: len([row for row in shown if row["Member"].startswith(name)])
        for name in ("Modules[", "UnloadedModules[", "Handle 0x")
    }
    assert counts == {"Modules[": 25, "UnloadedModules[": 1, "Handle 0x": 147}
    regions = [row for row in shown if row["Value"].startswith("MEM_")]
    assert len(regions) == 557
    assert [row["Address"] for row in regions] == sorted(row["Address"] for row in regions)
    assert [row for row in many if row in few] == few


def test_what_breakpad_recorded() -> None:
    path = next(path for path in BROKEN if path.stem == "rust-invalid-parameter")
    values = {row["Member"]: row["Value"] for _, row in OpenedDump(path).rows(info.Info, annotations=True)}
    assert values["expression"] == "format != nullptr"
    assert values["type"] == "INVALID_PARAMETER (1)"
    assert (values["dump_thread_id"], values["requesting_thread_id"]) == ("4944", "5896")
