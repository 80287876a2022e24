# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Plugins on small kernel dumps: what they show is what an image of the same machine shows."""

from __future__ import annotations

import json
import lzma
import pathlib
import struct
import tarfile
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
    traceimage,
    tracereport,
    traces,
    trapframes,
)
from volatility3.plugins.windows import callstacks as image_callstacks

from tests.conftest import SHARED
from tests.forge import context, smalldump
from tests.forge.context import Opened
from tests.forge.smalldump import Driver, SmallDump
from tests.hostile.undamaged import BUILDERS
from tests.support.only import only
from tests.support.processdumps import OpenedDump, dump_of
from tests.support.smalldumps import exception_record, small_dump_of
from winstacks.memory.decode.machine import Machine
from winstacks.memory.image import Image
from winstacks.process.threads import Threads

IMAGES = ("stacks-2003-x64", "stacks-win7-x86", "stacks-wow64-win10-x64")
RECORDED = (gflags.GFlags, locks.Locks, heaptraces.HeapTraces, handletraces.HandleTraces)
Rows = List[Tuple[int, Dict[str, Any]]]


@pytest.fixture(scope="module", params=IMAGES)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(BUILDERS[request.param](), tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(BUILDERS["callbacks-win11-x64"](), tmp_path_factory.mktemp("one"))


def written(dump: SmallDump, folder: pathlib.Path, name: str = "small.dmp") -> OpenedDump:
    (folder / name).write_bytes(dump.file())
    return OpenedDump(folder / name)


def waiting(image: Image) -> List[int]:
    """The threads that wait in the kernel, on a stack that is in the image."""
    memory = image.memory(image.kernel)
    return [
        thread.tid
        for thread in Threads.list_threads(image)
        if thread.tid is not None
        and not thread.running
        and not thread.unusable
        and thread.stack_base
        and thread.kernel_stack
        and memory.read(thread.kernel_stack, thread.stack_base - thread.kernel_stack) is not None
    ]


def kernel_frames(rows: Rows) -> List[Tuple[Any, ...]]:
    return [
        (row["Frame"], row["Sp"], row["Address"], row["How"])
        for depth, row in rows
        if depth and row["Part"] == "kernel"
    ]


def test_the_stack_is_that_of_the_image(opened: Opened, tmp_path: pathlib.Path) -> None:
    """Frame by frame, where the dump has the code of the drivers and the table of the kernel is found."""
    tids, seen = waiting(opened.image)[:6], 0
    for tid in tids:
        whole = opened.rows(image_callstacks.CallStacks, tid=[tid])
        if {row["Part"] for _, row in whole} - {"kernel", "user", "wow64"} or "expanded" in whole[0][1][
            "Status"
        ]:
            # A small dump has one stack: what the thread left on others is not in it.
            continue
        seen += 1
        expected = kernel_frames(whole)
        rows = written(small_dump_of(opened, tid), tmp_path, f"{tid}.dmp").rows(callstacks.CallStacks)
        innermost, *callers = kernel_frames(rows)
        assert innermost[2] + 1 == expected[0][2]
        if opened.image.machine is Machine.I386:
            # What SwapContext's caller keeps for it, a CONTEXT does not tell: a caller may be passed over.
            assert callers and {caller[1:3] for caller in callers} <= {frame[1:3] for frame in expected}
            continue
        assert callers[: len(expected) - 1] == expected[1:], tid
    assert seen


def test_names_and_ids_come_from_the_kernels_table(one: Opened, tmp_path: pathlib.Path) -> None:
    tid = waiting(one.image)[0]
    thread = next(iter(Threads.list_threads(one.image, tids=[tid])))
    dump = small_dump_of(one, tid)
    rows = written(dump, tmp_path).rows(callstacks.CallStacks)
    expected = one.rows(image_callstacks.CallStacks, tid=[tid])
    assert {(row["PID"], row["Process"], row["TID"]) for _, row in rows} == {
        (thread.space.pid, thread.space.process, tid)
    }
    assert [row["Symbol"] for depth, row in rows if depth][1:3] == [
        row["Symbol"] for depth, row in expected if depth
    ][1:3]


KERNEL, DRIVER, GONE = 0xFFFFF80312200000, 0xFFFFF80314000000, 0xFFFFF80316000000
STACK, NOWHERE = 0xFFFFD00012345000, 0xFFFFF80318000000


def crashed(rip: int, code: int = 0xD1, **options: Any) -> SmallDump:
    """A dump of a machine without a symbol table, that crashed at an address."""
    dump = SmallDump(**options)
    registers = smalldump.context(True, rip, STACK + 0x40)
    dump.crash(code, (0x10, 2, 0, rip), registers, exception_record(True, 0xC0000005, rip))
    dump.stack(STACK, bytes(0x200))
    dump.thread(0xFFFFA00001234080, 0xFFFFA00001230080, STACK + 0x180, STACK, 1, 0)
    dump.drivers(
        [
            Driver("\\SystemRoot\\system32\\ntoskrnl.exe", KERNEL, 0x800000),
            Driver("\\??\\C:\\evil\x1b[2J.sys", DRIVER, 0x10000, stamp=0x61234567),
        ]
    )
    dump.unloaded([Driver("gone.sys", GONE, 0x8000)])
    return dump


def found(dump: OpenedDump) -> Dict[str, Tuple[Any, ...]]:
    return {
        row["Finding"]: (row["Severity"], row["Symbol"])
        for _, row in dump.rows(tracefindings.TraceFindings)
        if row["Status"] != "not checked" and row["Finding"] != "nothing_found"
    }


@pytest.mark.parametrize(
    ("rip", "symbol", "finding"),
    [
        (KERNEL + 0x1234, "nt+0x1234", {}),
        (DRIVER + 0x20, "evil_2J+0x20", {}),
        (GONE + 0x30, "<unloaded:gone>+0x30", {"kernel_unloaded": ("high", "<unloaded:gone>+0x30")}),
        (NOWHERE, "<no-module>", {"kernel_no_module": ("high", "<no-module>")}),
    ],
)
def test_where_it_crashed(tmp_path: pathlib.Path, rip: int, symbol: str, finding: Dict[str, Any]) -> None:
    dump = written(crashed(rip), tmp_path)
    rows = dump.rows(callstacks.CallStacks)
    frame = next(row for depth, row in rows if depth)
    shown = "evil__2J+0x20" if symbol.startswith("evil") else symbol
    assert frame["Symbol"].replace("_x1b", "_") in (symbol, shown, "evil__2J+0x20")
    assert "bug check 0xd1" in rows[0][1]["Status"]
    # The file has _EPROCESS and _ETHREAD, and no layout fits what they hold.
    assert "offset unknown for this build: UniqueProcessId ImageFileName" in rows[0][1]["Status"]
    assert "offset unknown for this build: UniqueThread" in rows[0][1]["Status"]
    assert found(dump) == finding


def test_checks_that_need_more_say_so(tmp_path: pathlib.Path) -> None:
    rows = written(crashed(KERNEL), tmp_path).rows(tracefindings.TraceFindings)
    missing = {row["Finding"] for _, row in rows if row["Status"] == "not checked"}
    assert {"hidden", "unbacked", "gadget"} <= missing
    assert not {"kernel_no_module", "kernel_unloaded"} & missing


def test_info(tmp_path: pathlib.Path) -> None:
    rows = written(crashed(DRIVER + 0x20), tmp_path).rows(info.Info)
    shown = {row["Member"]: row["Value"] for _, row in rows}
    assert shown["BugCheckCode"] == "0xd1 DRIVER_IRQL_NOT_LESS_OR_EQUAL"
    assert shown["BugCheckParameter2"] == "0x2: IRQL"
    assert (shown["MinorVersion"], shown["SystemUpTime"]) == ("19041", "3600 s")
    assert shown["ExceptionCode"] == "ACCESS_VIOLATION (0xc0000005)"
    assert shown["\\\\??\\\\C:\\\\evil\\x1b[2J.sys".replace("\\\\", "\\")].endswith("CheckSum 0x12345")
    assert "TimeDateStamp 0x61234567" in shown["\\??\\C:\\evil\\x1b[2J.sys"]
    assert shown["gone.sys"] == f"{GONE:#x}-{GONE + 0x7FFF:#x}"
    assert not [row for _, row in rows if row["Status"]]


def test_a_driver_without_a_stamp_says_so(tmp_path: pathlib.Path) -> None:
    """The entries of another version may be shorter: that is no 0."""
    rows = written(crashed(KERNEL, entry=0x80, build=3790), tmp_path).rows(info.Info)
    row = only(row for _, row in rows if row["Member"].endswith("ntoskrnl.exe"))
    assert "TimeDateStamp" not in row["Value"]
    assert row["Status"] == "not in the dump: TimeDateStamp"


def test_flat_tables(tmp_path: pathlib.Path) -> None:
    dump = written(crashed(DRIVER + 0x20), tmp_path)
    _, row = only(dump.rows(traceimage.TraceImage))
    assert (row["InputKind"], row["Completeness"], row["KernelBuild"]) == ("small kernel dump", "some", 19041)
    assert (row["BugCheckCode"], row["BugCheck"]) == (0xD1, "DRIVER_IRQL_NOT_LESS_OR_EQUAL")
    assert row["BugCheckParameters"] == f"0x10 0x2 0x0 {DRIVER + 0x20:#x}"
    assert (row["CaptureTime"] - row["BootTime"]).total_seconds() == 3600
    assert row["BootTimeSource"] == "SystemUpTime"
    _, trace = only(dump.rows(traces.StackTraces))
    assert (trace["Kind"], trace["Owner"]) == ("kernel", "0xa00001234080")
    frames = dump.rows(traceframes.TraceFrames)
    assert [row["ModuleStamp"] for _, row in frames][:1] == [0x61234567]


def test_trap_frames_begin_with_the_registers_of_the_dump(tmp_path: pathlib.Path) -> None:
    rows = written(crashed(DRIVER + 0x20), tmp_path).rows(trapframes.TrapFrames)
    assert [(row["Origin"], row["Rip"], row["Mode"]) for _, row in rows] == [
        ("saved", DRIVER + 0x20, "kernel")
    ]


@pytest.mark.parametrize("plugin", [*RECORDED, stacktracedb.StackTraceDb])
def test_what_windows_records_is_in_no_small_dump(tmp_path: pathlib.Path, plugin: Any) -> None:
    with pytest.raises(exceptions.RenderException, match="nothing that Windows recorded"):
        written(crashed(KERNEL), tmp_path).rows(plugin)


def test_a_page_is_written(tmp_path: pathlib.Path) -> None:
    assert written(crashed(KERNEL), tmp_path).construct(tracereport.TraceReport).run()


def test_another_machine_is_named_and_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(exceptions.RenderException, match="of type ARM: only x64"):
        written(SmallDump(machine=0x1C4), tmp_path).rows(callstacks.CallStacks)


def test_a_table_of_another_kernel_is_refused(one: Opened, tmp_path: pathlib.Path) -> None:
    table = next(iter(sorted(context.symbol_directory().rglob("ntkrnl*/*.json*"))))
    dump = written(crashed(KERNEL), tmp_path)
    with pytest.raises(exceptions.RenderException, match="is not a table of this dump's kernel"):
        dump.rows(callstacks.CallStacks, kernel_symbols=str(table))
    absent, empty = tmp_path / "none.json", tmp_path / "empty.json"
    empty.write_bytes(b"")
    for path, reason in ((absent, "there is no file"), (empty, "it cannot be read")):
        with pytest.raises(exceptions.RenderException, match=reason):
            dump.rows(callstacks.CallStacks, kernel_symbols=str(path))


def test_registers_of_a_process_dump(tmp_path: pathlib.Path, one: Opened) -> None:
    """A dump of a process has the registers of its threads, and no trap frames."""
    pid = next(thread.space.pid for thread in Threads.list_threads(one.image) if thread.teb)
    assert pid is not None
    (tmp_path / "app.dmp").write_bytes(dump_of(one, pid))
    rows = OpenedDump(tmp_path / "app.dmp").rows(trapframes.TrapFrames, unwind=True)
    assert {(row["PID"], row["Origin"], row["Mode"]) for _, row in rows} == {(pid, "saved", "user")}


@pytest.mark.shared
def test_a_real_crash(tmp_path: pathlib.Path) -> None:
    """The stack, the blocks and the drivers of a dump of 19041.804, whose true trap frame is known."""
    folder = tmp_path / "real"
    with tarfile.open(SHARED / "real_trapframes" / "triage_19041.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    truth = json.loads((folder / "truth.json").read_text())
    stack, blocks = (folder / "stack.bin").read_bytes(), (folder / "blocks.bin").read_bytes()
    base, record = int(truth["stack_va"], 16), int(truth["exception_record"]["va"], 16)
    at, rip = int(truth["context_va"], 16), int(truth["context"]["rip"], 16)
    forged_dump = SmallDump()
    forged_dump.crash(
        0x7E,
        (0xC0000005, rip, record, at),
        stack[at - base : at - base + 0x4D0],
        stack[record - base : record - base + 0x98],
    )
    forged_dump.stack(base, stack)
    forged_dump.drivers(
        [
            Driver(module["name"], int(module["base"], 16), int(module["size"], 16))
            for module in truth["modules"]
        ]
    )
    for address, offset, size in json.loads((folder / "blocks.json").read_text()):
        forged_dump.block(int(address, 16), blocks[offset : offset + size])
    kernel = int(truth["modules"][0]["base"], 16)
    table = SHARED / "isf/symbols/windows/ntkrnlmp.pdb" / truth["isf"]
    known = json.loads(lzma.decompress(table.read_bytes()))["symbols"]
    for name in ("PsLoadedModuleList", "PsActiveProcessHead", "KdDebuggerDataBlock", "NtBuildLab"):
        forged_dump.variables[name] = known[name]["address"]
    dump = written(forged_dump, tmp_path)
    for options in ({}, {"kernel_symbols": str(table)}):
        rows = [row for _, row in dump.rows(trapframes.TrapFrames, **options)]
        frames = [row for row in rows if row["Origin"] == "stack"]
        assert [row["TrapFrame"] for row in frames] == [int(truth["frame_va"], 16) & 0xFFFFFFFFFFFF]
        for row in rows:
            assert row["Rip"] == rip
            assert row["Rsp"] == int(truth["context"]["rsp"], 16)
            assert row["Symbol"] == "amdppm+0x334c"
        names = [row["Symbol"] for depth, row in dump.rows(callstacks.CallStacks, **options) if depth]
        assert {name.partition("+")[0].partition("!")[0] for name in names} == {"amdppm", "Wdf01000", "nt"}
        assert ("nt!PnpStartDevice+0x88" in names) == bool(options)
        assert kernel + 0x36AB7C in [
            0xFFFF000000000000 | row["Address"]
            for depth, row in dump.rows(callstacks.CallStacks, **options)
            if depth
        ]
        assert found(dump) == {}


@pytest.mark.shared
@pytest.mark.parametrize("symbols", [False, True])
def test_ke_bug_check_ex_has_a_sure_caller(tmp_path: pathlib.Path, symbols: bool) -> None:
    """Without any code: the dump begins its stack at KeBugCheckEx, whose arguments it has.

    The real file has the registers of the exception. Here its CONTEXT is the one that KeBugCheckEx records
    for other bug checks, and the stack is as Windows wrote it. The stack of the exception comes first.
    """
    data = bytearray(lzma.decompress((SHARED / "real_trapframes" / "triage_x64.dmp.xz").read_bytes()))
    base, rip = 0xFFFFF8047BA00000, 0xFFFFF8047BDF5A80
    (top,) = struct.unpack_from("<Q", data, 0x2048)
    place = struct.unpack_from("<I", data, 0x2028)[0]
    caller, *home = struct.unpack_from("<6Q", data, place)
    assert home == [0x7E, *struct.unpack_from("<4Q", data, 0x40)]
    struct.pack_into("<QQ", data, 0x348 + 0x98, top, 0)
    struct.pack_into("<Q", data, 0x348 + 0xF8, rip)
    for register, value in zip((0x80, 0x88, 0xB8, 0xC0), home):
        struct.pack_into("<Q", data, 0x348 + register, value)
    (tmp_path / "small.dmp").write_bytes(data)
    table = SHARED / "isf/symbols/windows/ntkrnlmp.pdb/5278AFF86C341677D7D7835C85B7B844-1.json.xz"
    dump = OpenedDump(tmp_path / "small.dmp")
    rows = dump.rows(callstacks.CallStacks, **({"kernel_symbols": str(table)} if symbols else {}))
    first, second = (
        number for number, (depth, row) in enumerate(rows) if not depth and row["Part"] == "kernel"
    )
    assert rows[first + 1][1]["Symbol"] == "amdppm+0x334c"
    assert "after the exception" not in rows[first][1]["Status"]
    assert "after the exception" in rows[second][1]["Status"]
    frames = [row for depth, row in rows[second:] if depth and row["Part"] == "kernel"]
    assert [row["Address"] for row in frames[:2]] == [rip & 0xFFFFFFFFFFFF, caller & 0xFFFFFFFFFFFF]
    assert [row["How"] for row in frames[:2]] == ["trap", "leaf"]
    assert [row["Symbol"] for row in frames[:1]] == ["nt!KeBugCheckEx" if symbols else "nt+0x3f5a80"]
    assert "unsure" not in frames[1]["Status"]
    assert all("unsure" in row["Status"] for row in frames[2:])
    # Another code or another parameter: nothing proves that a function begins there.
    struct.pack_into("<Q", data, 0x348 + 0xC0, 0)
    (tmp_path / "other.dmp").write_bytes(data)
    rows = OpenedDump(tmp_path / "other.dmp").rows(callstacks.CallStacks)
    _, second = (number for number, (depth, row) in enumerate(rows) if not depth and row["Part"] == "kernel")
    assert "unsure" in rows[second + 2][1]["Status"]
    assert caller - base == 0x40F4E1


@pytest.mark.shared
def test_the_kernels_table_is_found_for_a_real_file(tmp_path: pathlib.Path) -> None:
    """In KDDEBUGGER_DATA64 of 19041, NtBuildLab is the address of NtBuildLabEx."""
    data = lzma.decompress((SHARED / "real_trapframes" / "triage_x64.dmp.xz").read_bytes())
    (tmp_path / "small.dmp").write_bytes(data)
    table = SHARED / "isf/symbols/windows/ntkrnlmp.pdb/5278AFF86C341677D7D7835C85B7B844-1.json.xz"
    rows = OpenedDump(tmp_path / "small.dmp").rows(callstacks.CallStacks, kernel_symbols=str(table))
    assert any(row["Symbol"] == "nt!PnpStartDevice+0x88" for depth, row in rows if depth)


@pytest.mark.shared
def test_the_registers_of_processors_are_where_their_blocks_point(tmp_path: pathlib.Path) -> None:
    """KPRCB.Context of each of 16 leads out of its KPRCB, whose ProcessorState.ContextFrame is empty."""
    data = lzma.decompress((SHARED / "real_trapframes" / "triage_x64.dmp.xz").read_bytes())
    (tmp_path / "small.dmp").write_bytes(data)
    rows = [row for _, row in OpenedDump(tmp_path / "small.dmp").rows(trapframes.TrapFrames)]
    processors = [row for row in rows if row["Origin"] == "processor"]
    assert [row["Processor"] for row in processors] == [f"CPU {number}" for number in range(16)]
    # KeBugCheckEx, 3F5A80h by the table of this build: that processor wrote the dump.
    assert processors[0]["Symbol"] == "nt+0x3f5a80"
    assert {row["Symbol"].partition("+")[0] for row in processors} == {"nt"}
    assert not any("older" in row["Status"] or "stale" in row["Status"] for row in processors)
