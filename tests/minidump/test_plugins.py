# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The dump of a process has the rows that the process has in an image."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Tuple

import pytest
from volatility3.cli import text_renderer
from volatility3.framework import interfaces
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
    traceimage,
    traces,
    trapframes,
)
from volatility3.plugins.windows import callstacks as image_callstacks
from volatility3.plugins.windows import gflags as image_gflags
from volatility3.plugins.windows import heaptraces as image_heaptraces
from volatility3.plugins.windows import locks as image_locks
from volatility3.plugins.windows import stacktracedb as image_stacktracedb
from volatility3.plugins.windows import traceframes as image_traceframes
from volatility3.plugins.windows import traces as image_traces

from tests.forge import context, minidump, sample
from tests.forge.context import Opened
from tests.support.only import only
from tests.support.processdumps import Dumped, OpenedDump, dump_of
from winstacks.columns.tables import BRIEF, TABLES
from winstacks.rows.briefgrid import WIDTH
from winstacks.rows.grid import typed

UPDATER, LEGACY, SPOOLER = 4312, 5120, 6200
PIDS = (UPDATER, LEGACY, SPOOLER)
OF_A_KERNEL = {"State", "WaitReason", "StartAddress", "StartSymbol"}
"""Columns of what a dump does not know of a thread."""
OF_THE_INPUT = {"ImageId", "TraceId", "ProcessOffset", "ProcessCreateTime", "ThreadCreateTime", "Owner"}

Cells = List[Tuple[int, Dict[str, Any]]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def folder(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The dumps of all processes, by their IDs."""
    new_folder = tmp_path_factory.mktemp("dumps")
    for pid in PIDS:
        (new_folder / f"{pid}.dmp").write_bytes(dump_of(opened, pid))
    return new_folder


def dump(folder: pathlib.Path, pid: int) -> OpenedDump:
    return OpenedDump(folder / f"{pid}.dmp")


def shown(rows: Cells, *without: str) -> Cells:
    """Rows in a form that can be compared: absent values by their type."""
    absent = interfaces.renderers.BaseAbsentValue
    return [
        (
            depth,
            {
                name: type(value).__name__ if isinstance(value, absent) else value
                for name, value in row.items()
                if name not in without
            },
        )
        for depth, row in rows
    ]


@pytest.mark.parametrize("pid", PIDS)
@pytest.mark.parametrize(
    ("of_dump", "of_image", "options"),
    [
        (gflags.GFlags, image_gflags.GFlags, {}),
        (stacktracedb.StackTraceDb, image_stacktracedb.StackTraceDb, {"carve": True}),
        (locks.Locks, image_locks.Locks, {}),
        (heaptraces.HeapTraces, image_heaptraces.HeapTraces, {"blocks": True}),
    ],
)
def test_rows_are_those_of_the_image(
    opened: Opened, folder: pathlib.Path, pid: int, of_dump: Any, of_image: Any, options: Dict[str, Any]
) -> None:
    expected = shown(opened.rows(of_image, pid=[pid], **options))
    assert shown(dump(folder, pid).rows(of_dump, **options)) == expected
    assert expected or of_image is image_heaptraces.HeapTraces


def test_the_block_at_an_address(opened: Opened, folder: pathlib.Path) -> None:
    """WinDbg's `!heap -p -a`: its trace and its neighbours, in a dump as in the image."""
    listed = dump(folder, UPDATER).rows(heaptraces.HeapTraces, blocks=True)
    found = [
        row["Block"] for _, row in listed if isinstance(row["Block"], int) and isinstance(row["Size"], int)
    ]
    block, *_ = sorted(found)[1:]
    for address in (block, block + 5, block - 1, 0x10):
        rows = shown(dump(folder, UPDATER).rows(heaptraces.HeapTraces, address=address))
        expected = opened.rows(image_heaptraces.HeapTraces, pid=[UPDATER], address=address)
        assert rows == shown(expected)
        said = {row["Block"]: row["Status"] for _, row in rows if isinstance(row["Block"], int)}
        if address in (block, block + 5):
            assert said[block].startswith(f"holds the address at {address - block}")
            assert any(
                row["Symbol"].startswith("updater!") for _, row in rows if isinstance(row["Frame"], int)
            )


def user_rows(rows: Cells) -> Cells:
    return [(depth, row) for depth, row in rows if not row["Part"].startswith("kernel")]


@pytest.mark.parametrize("pid", PIDS)
def test_call_stacks(opened: Opened, folder: pathlib.Path, pid: int) -> None:
    """Frame by frame; that a thread ran is not known of a dump, in which none does."""
    expected = user_rows(shown(opened.rows(image_callstacks.CallStacks, pid=[pid]), *OF_A_KERNEL))
    found = shown(dump(folder, pid).rows(callstacks.CallStacks), *OF_A_KERNEL)
    for _, row in expected:
        row["Status"] = row["Status"].replace("running", "")
    assert found == expected
    assert {row["Arch"] for _, row in found} == ({"x64", "x86"} if pid == LEGACY else {"x64"})


@pytest.mark.parametrize("pid", PIDS)
@pytest.mark.parametrize(
    ("of_dump", "of_image"),
    [
        (traces.StackTraces, image_traces.StackTraces),
        (traceframes.TraceFrames, image_traceframes.TraceFrames),
    ],
)
def test_flat_tables(opened: Opened, folder: pathlib.Path, pid: int, of_dump: Any, of_image: Any) -> None:
    kinds = ["user", "wow64", "std", "heaplog", "heap", "lock"]
    # A dump has the first protection of pages that run as it says, and nothing of pages that are shared.
    of_pages = ("PageProtection", "AllocationPrivateBytes")
    absent = (*OF_THE_INPUT, *of_pages, "Status", "ModulePath", "Incomplete")
    expected = shown(opened.rows(of_image, pid=[pid], kinds=kinds), *absent)
    assert shown(dump(folder, pid).rows(of_dump, kinds=kinds), *absent) == expected


def test_what_the_dump_is(folder: pathlib.Path) -> None:
    _, row = only(dump(folder, UPDATER).rows(traceimage.TraceImage))
    assert (row["KernelBuild"], row["Arch"], row["Processes"], row["Threads"]) == (19041, "x64", 1, 3)
    assert (row["CaptureTime"].year, row["Status"]) == (2023, "")


def test_findings_say_what_cannot_be_checked(folder: pathlib.Path) -> None:
    rows = [row for _, row in dump(folder, UPDATER).rows(tracefindings.TraceFindings)]
    assert {row["Finding"] for row in rows if row["Status"] != "not checked"} >= {"unbacked"}
    kernel = [row["Finding"] for row in rows if row["Evidence"] == "a dump of one process has no kernel data"]
    assert {"hidden", "foreign_handle", "shadow_stack"} <= set(kernel)


def test_the_thread_of_an_exception_is_marked(opened: Opened, tmp_path: pathlib.Path) -> None:
    (tmp_path / "raised.dmp").write_bytes(dump_of(opened, UPDATER, raised=4316))
    rows = OpenedDump(tmp_path / "raised.dmp").rows(callstacks.CallStacks)
    statuses = {row["TID"]: row["Status"] for depth, row in rows if not depth}
    assert statuses[4316] == "exception 0xc0000005"
    assert "exception" not in statuses[4320] + statuses[4324]


def test_without_full_memory(opened: Opened, tmp_path: pathlib.Path) -> None:
    """Stacks, modules and registers are all there is: what cannot be walked with these is unsure."""
    (tmp_path / "small.dmp").write_bytes(dump_of(opened, UPDATER, full=False))
    small = OpenedDump(tmp_path / "small.dmp")
    rows = [row for depth, row in small.rows(callstacks.CallStacks) if depth]
    innermost = [row for row in rows if row["Frame"] == 0]
    assert [row["TID"] for row in innermost] == [4316, 4320, 4324]
    assert innermost[0]["Symbol"].startswith("ntdll+0x")
    assert all("unsure" in row["Status"] for row in rows if row["Frame"])
    missing = ["PEB not in the dump, flags unreadable"]
    assert [row["Status"] for depth, row in small.rows(gflags.GFlags) if not depth] == missing
    for plugin in (heaptraces.HeapTraces, stacktracedb.StackTraceDb):
        _, row = only(small.rows(plugin))
        assert "PEB not in the dump" in row["Status"]


def test_handle_operations(opened: Opened, tmp_path: pathlib.Path) -> None:
    dumped = Dumped(opened, UPDATER)
    frames = (0x7FE00041234, 0x7FE00045678)
    dumped.writer.handle_operations(
        [(4, UPDATER, 4316, 1, frames), (8, UPDATER, 4316, 1, frames), (8, UPDATER, 4320, 2, frames)]
    )
    dumped.writer.handles([(4, "File", "\\Device\\x"), (8, "Event", "")])
    (tmp_path / "handles.dmp").write_bytes(dumped.writer.bytes())
    rows = OpenedDump(tmp_path / "handles.dmp").rows(handletraces.HandleTraces)
    events = [row for depth, row in rows if not depth]
    assert [(row["Handle"], row["Event"], row["ByTID"]) for row in events] == [
        (4, "open", 4316),
        (8, "open", 4316),
        (8, "close", 4320),
    ]
    assert [(row["ObjectType"], row["ObjectName"]) for row in events[:1]] == [("File", "\\Device\\x")]
    leaks = OpenedDump(tmp_path / "handles.dmp").rows(handletraces.HandleTraces, leaks=True)
    assert [row["Handle"] for depth, row in leaks if not depth] == [4]


def test_info(opened: Opened, tmp_path: pathlib.Path) -> None:
    """Every stream, the members of structures, and the stack of the exception."""
    dumped = Dumped(opened, UPDATER, raised=4316)
    dumped.writer.thread_names([(4316, "main\x1b[2J")])
    dumped.writer.comment("procdump -ma updater.exe")
    dumped.writer.stream(0x47670001, b"own")
    (tmp_path / "info.dmp").write_bytes(dumped.writer.bytes())
    rows = OpenedDump(tmp_path / "info.dmp").rows(info.Info)
    assert {(row["PID"], row["Process"]) for _, row in rows} == {(UPDATER, "updater.exe")}
    assert [row["Status"] for _, row in rows if row["Status"]] == ["exception 0xc0000005"]
    streams = [row["Member"] for depth, row in rows if not depth]
    assert streams[0] == "MINIDUMP_HEADER"
    assert {"ThreadListStream", "Memory64ListStream", "ExceptionStream", "MD_BREAKPAD_INFO_STREAM"} < set(
        streams
    )
    members = {row["Member"]: row["Value"] for depth, row in rows if depth == 1}
    assert members["BuildNumber"] == "19041"
    assert members["ProcessId"] == str(UPDATER)
    assert members["NumberOfThreads"] == "3"
    assert members["Buffer"] == "procdump -ma updater.exe"
    assert members["ThreadName"] == "main\\x1b[2J"
    assert members["ExceptionCode"] == "ACCESS_VIOLATION (0xc0000005)"
    frames = [(row["TID"], row["Symbol"]) for depth, row in rows if depth == 2]
    assert frames[:2] == [(4316, "ntdll!NtWaitForSingleObject+0x14"), (4316, "updater!open_store+0x22")]
    assert frames[-1] == (4316, "ntdll!RtlUserThreadStart+0x21")


def test_info_in_few_columns(opened: Opened, tmp_path: pathlib.Path, capsys: Any) -> None:
    """--brief: what happened, in 120 characters and at most ten rows."""
    dumped = Dumped(opened, UPDATER, raised=4316)
    dumped.writer.comment("procdump -ma updater.exe " * 40)
    (tmp_path / "info.dmp").write_bytes(dumped.writer.bytes())
    whole = OpenedDump(tmp_path / "info.dmp").construct(info.Info).run()
    assert [(column.name, column.type) for column in whole.columns] == typed(TABLES["info"])
    few = OpenedDump(tmp_path / "info.dmp").rows(info.Info, brief=True)
    assert [*few[0][1]] == [*BRIEF["info"]]
    assert few[0][1]["Member"] == "Crash"
    assert len(few) <= 10
    text_renderer.PrettyTextRenderer().render(
        OpenedDump(tmp_path / "info.dmp").construct(info.Info, brief=True).run()
    )
    assert max(map(len, capsys.readouterr().out.splitlines())) <= WIDTH


def test_info_of_a_damaged_file(opened: Opened, folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    data = (folder / f"{UPDATER}.dmp").read_bytes()
    (tmp_path / "cut.dmp").write_bytes(data[: len(data) // 2])
    rows = OpenedDump(tmp_path / "cut.dmp").rows(info.Info)
    assert "bytes beyond the end of the file" in rows[0][1]["Status"]


@pytest.mark.parametrize(
    "plugin",
    [
        callstacks.CallStacks,
        gflags.GFlags,
        heaptraces.HeapTraces,
        stacktracedb.StackTraceDb,
        traces.StackTraces,
        traceframes.TraceFrames,
        trapframes.TrapFrames,
    ],
)
def test_a_dump_that_names_no_process(plugin: Any, tmp_path: pathlib.Path) -> None:
    """Without MiscInfoStream, TEB and modules nothing has the ID or the name: both are absent in each row."""
    data = bytearray(0x4D0)
    data[0x30:0x34] = (0x100003).to_bytes(4, "little")
    data[0x98:0xA0] = (0x7FF000000100).to_bytes(8, "little")
    data[0xF8:0x100] = (0x7FF010001000).to_bytes(8, "little")
    writer = minidump.Writer()
    writer.system_info()
    writer.modules([])
    writer.threads([minidump.WrittenThread(8, 0, (0x7FF000000000, bytes(0x200)), bytes(data))])
    (tmp_path / "nameless.dmp").write_bytes(writer.bytes())
    rows = [row for _, row in OpenedDump(tmp_path / "nameless.dmp").rows(plugin)]
    absent = interfaces.renderers.BaseAbsentValue
    assert rows
    names = {"PID", "Process"} & set(rows[0])
    assert all(isinstance(row[name], absent) for row in rows for name in names)
