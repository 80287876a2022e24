# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `windows.minidump` writes, read by programs that nobody here wrote: LLDB and two parsers."""

from __future__ import annotations

import logging
import pathlib
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import pytest
from minidump.minidumpfile import MinidumpFile

from tests.conftest import SHARED
from tests.forge import context, kernels, sample, samplethreads, vol
from tests.forge.code import Routine, module_options, system_call_stub
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.process import Process
from tests.forge.stacks64 import Stack64
from tests.golden import images
from tests.support.only import only
from tests.support.writtendumps import (
    LLDB,
    DebuggedThread,
    debug,
    debugged_threads,
    needs_lldb,
    process_of,
    write_dump,
)
from winstacks.memory import bulk
from winstacks.memory.decode.machine import Machine
from winstacks.minidump.processdump import ProcessDump
from winstacks.traps.state import context_layouts

# Its wheel for Python 3.13 is installed on newer ones, too, which cannot load it.
udmp_parser = pytest.importorskip("udmp_parser")

UPDATER, LEGACY, SPOOLER = 4312, 5120, 6200
CASES = ((UPDATER, Machine.AMD64), (LEGACY, Machine.AMD64), (LEGACY, Machine.I386), (SPOOLER, Machine.AMD64))
_EXTENDED = {f"R{name}": f"E{name[:2]}" for name in ("ip", "sp", "bp", "ax", "bx", "cx", "dx", "si", "di")}


class Written(NamedTuple):
    """A dump, and what it was made of."""

    path: pathlib.Path
    dump: ProcessDump
    machine: Machine
    opened: Opened


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """The sample, with memory of each process in no VAD."""
    kernel = sample.build()
    for process in kernel.processes:
        if process.pid in (UPDATER, LEGACY, SPOOLER):
            outside_vads(process)
    return context.open_image(kernel.image(), tmp_path_factory.mktemp("strangers"))


OUTSIDE = 0x5FFD0000
"""An address at which no process of these tests has a VAD."""


def outside_vads(process: Process) -> None:
    """Adds three pages in no VAD, and one that lies apart."""
    process.region(OUTSIDE, b"outside" * 0x400, size=0x3000, vad=False)
    process.region(OUTSIDE + 0x8000, b"apart", size=0x1000, vad=False)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1].arch}")
def written(
    request: pytest.FixtureRequest, opened: Opened, tmp_path_factory: pytest.TempPathFactory
) -> Written:
    pid, machine = request.param
    path = tmp_path_factory.mktemp("written") / "process.dmp"
    return Written(path, write_dump(opened, process_of(opened, pid), path, machine), machine, opened)


@pytest.fixture
def theirs(written: Written) -> Any:
    """The dump as PyPI's minidump reads it; it also wants an environment in the PEB, which is not forged."""
    logging.disable(logging.ERROR)
    try:
        return MinidumpFile.parse(str(written.path))
    finally:
        logging.disable(logging.NOTSET)


def registers(written: Written) -> Iterator[Tuple[int, Dict[str, int]]]:
    """Yields the registers of each thread as the image has them; what is not known is 0."""
    forms = context_layouts(written.opened.image, written.machine)
    for _, record in written.dump.threads:
        assert record is not None
        found = forms[0].decode(record.context)
        assert found is not None
        yield record.info.ThreadId, dict(found.registers)


def memory(written: Written) -> List[Tuple[int, bytes]]:
    """The memory of the process as Volatility's layer has it, range by range."""
    process = written.dump._native
    found = []
    ranges = written.dump.memory.ranges
    for start, size in zip(ranges[::2], ranges[1::2]):
        data = bytearray(size)
        for low, run in bulk.read_extents(written.opened.image.context, process.layer_name, start, size).runs:
            data[low - start : low - start + len(run)] = run
        found.append((start, bytes(data)))
    return found


def test_threads_and_registers_of_udmp_parser(written: Written) -> None:
    parser = udmp_parser.UserDumpParser()
    assert parser.Parse(written.path)
    threads = parser.Threads()
    names = ["Rip", "Rsp", "Rbp", "Rax", "Rbx", "Rcx", "Rdx", "Rsi", "Rdi"]
    wide = written.machine is Machine.AMD64
    names += [f"R{number}" for number in range(8, 16)] if wide else []
    known = dict(registers(written))
    assert set(threads) == set(known)
    for tid, values in known.items():
        found = threads[tid].Context
        for name in names:
            member = name if wide else _EXTENDED[name]
            assert getattr(found, member) == values.get(name, 0), (tid, name)


def test_memory_and_modules_of_udmp_parser(written: Written) -> None:
    parser = udmp_parser.UserDumpParser()
    assert parser.Parse(written.path)
    for start, data in memory(written):
        assert bytes(parser.ReadMemory(start, len(data)) or ()) == data
    modules = {base: (module.SizeOfImage, module.ModuleName) for base, module in parser.Modules().items()}
    expected = {
        module.module.BaseOfImage: (module.module.SizeOfImage, module.module.ModuleName)
        for module in written.dump._modules.modules()
    }
    assert modules == expected != {}


@pytest.mark.parametrize("name", ["win10-x64", "win7-x86", "win10-x86", "xp-x86"])
def test_memory_in_no_vad_has_a_region(name: str, tmp_path: pathlib.Path) -> None:
    """udmp-parser rejects a dump whose memory begins where no region begins, or in a free one."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("a.exe", pid=1000, session=1)
    ntdll = process.module("ntdll.dll", exports={"RtlUserThreadStart": 0x1100})
    process.thread(1004, start=ntdll.at("RtlUserThreadStart"))
    outside_vads(process)
    opened = context.open_image(kernel.image(), tmp_path)
    path = tmp_path / "a.dmp"
    machine = Machine.AMD64 if name.endswith("x64") else Machine.I386
    dump = write_dump(opened, process_of(opened, 1000), path, machine)
    parser = udmp_parser.UserDumpParser()
    assert parser.Parse(path)
    assert bytes(parser.ReadMemory(OUTSIDE, 0x1C00) or ()) == b"outside" * 0x400
    regions = {info.BaseAddress: info for info in MinidumpFile.parse(str(path)).memory_info.infos}
    for start in dump.memory.ranges[::2]:
        assert regions[start].State.name == "MEM_COMMIT"
    assert regions[OUTSIDE].RegionSize == 0x3000
    assert (regions[OUTSIDE].Type.name, regions[OUTSIDE].AllocationBase) == ("MEM_PRIVATE", OUTSIDE)
    assert regions[OUTSIDE + 0x3000].State.name == "MEM_FREE"


def test_every_stream_of_minidump(written: Written, theirs: Any) -> None:
    """No stream but ours is passed over, and its lists are as long as ours."""
    named = {directory.StreamType.name for directory in theirs.directories}
    assert named == {
        stream.name for stream in written.dump.streams if not stream.name.startswith("Winstacks")
    }
    entries = {stream.name: stream.entries for stream in written.dump.streams}
    assert len(theirs.threads.threads) == entries["ThreadListStream"]
    assert len(theirs.thread_info.infos) == entries["ThreadInfoListStream"]
    assert len(theirs.modules.modules) == entries["ModuleListStream"]
    assert len(theirs.memory_info.infos) == entries["MemoryInfoListStream"]
    assert len(theirs.handles.handles) == entries["HandleDataStream"]
    assert theirs.misc_info.ProcessId == written.dump._native.pid
    assert theirs.sysinfo.BuildNumber == 19041
    assert "are not in the image: MemoryInfoListStream lists them as reserved" in theirs.comment_a.data
    assert theirs.comment_w.data.startswith("custody")


def test_memory_of_minidump(written: Written, theirs: Any) -> None:
    reader = theirs.get_reader()
    for start, data in memory(written):
        for offset in range(0, len(data), 0x1000):
            # It reads no further than its segments.
            assert reader.read(start + offset, 0x1000) == data[offset : offset + 0x1000]


@needs_lldb
def test_registers_and_modules_of_lldb(written: Written) -> None:
    known = list(registers(written))
    found = debugged_threads(written.path, len(known))
    prefix = "r" if written.machine is Machine.AMD64 else "e"
    names = ["ip", "sp", "bp", "ax", "bx", "cx", "dx", "si", "di"]
    for thread, (_, values) in zip(found, known):
        expected = {f"{prefix}{name}": values.get(f"R{name}", 0) for name in names}
        if written.machine is Machine.AMD64:
            expected.update({f"r{number}": values.get(f"R{number}", 0) for number in range(8, 16)})
        assert {name: thread.registers[name] for name in expected} == expected
    printed = debug(written.path, ["image list"])["image list"]
    for module in written.dump._modules.modules():
        assert f"{module.module.BaseOfImage:#018x} {module.module.ModuleName}" in printed or (
            f"{module.module.BaseOfImage:#010x} {module.module.ModuleName}" in printed
        )


@needs_lldb
def test_memory_of_lldb(written: Written, tmp_path: pathlib.Path) -> None:
    ranges = [piece for piece in memory(written) if piece[1]]
    commands = [
        f"memory read --force --binary --outfile {tmp_path / str(number)} --count {len(data)} {start:#x}"
        for number, (start, data) in enumerate(ranges)
    ]
    debug(written.path, commands)
    for number, (_, data) in enumerate(ranges):
        assert (tmp_path / str(number)).read_bytes() == data


# Stacks that keep to the x64 calling convention: a debugger stops where a frame is not aligned.
STUB = Routine(0x1100, unwind=False)
WAIT_NUMBER, BEHIND_SYSCALL = 4, 0x14
START = Routine(0x1200, alloc=0x28)
THUNK = Routine(0x1100, alloc=0x28)
MAIN = Routine(0x1100, alloc=0x58)
OPEN_STORE = Routine(0x1180, alloc=0x48)


@needs_lldb
def test_whole_stacks_of_lldb(tmp_path: pathlib.Path) -> None:
    """With the modules as files LLDB walks by their unwind data, and comes to the thread's start."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("store.exe", pid=1000, session=1)
    options = module_options([STUB, START], 0x5800, 64)
    code = bytearray(options["contents"][STUB.rva])
    entering = system_call_stub(WAIT_NUMBER, BEHIND_SYSCALL)
    code[: len(entering)] = entering
    options["contents"][STUB.rva] = bytes(code)
    app = process.module(
        "store.exe",
        dll=False,
        exports={"main": MAIN.rva, "open_store": OPEN_STORE.rva},
        **module_options([MAIN, OPEN_STORE], 0x5800, 64),
    )
    exports = {"NtWaitForSingleObject": STUB.rva, "RtlUserThreadStart": START.rva}
    ntdll = process.module("ntdll.dll", exports=exports, **options)
    kernel32 = process.module(
        "kernel32.dll", exports={"BaseThreadInitThunk": THUNK.rva}, **module_options([THUNK], 0x5800, 64)
    )
    expected = []
    for tid in (1004, 1008):
        thread = process.thread(tid, start=ntdll.at("RtlUserThreadStart"))
        stack = Stack64(process.space, thread.user_stack_base).start(home=0x20)
        for module, routine in ((ntdll, START), (kernel32, THUNK), (app, MAIN), (app, OPEN_STORE)):
            stack.enter(module.base, routine)
            stack.call(module.base, routine)
        samplethreads.wait(thread, ntdll.base + STUB.rva + BEHIND_SYSCALL, rsp=stack.sp)
        names = ("RtlUserThreadStart", "BaseThreadInitThunk", "main", "open_store")
        files = ("ntdll.dll", "kernel32.dll", "store.exe", "store.exe")
        calls = [
            f"{file}`{name} + {routine.returns(0) - routine.rva}"
            for file, name, routine in zip(files, names, (START, THUNK, MAIN, OPEN_STORE))
        ]
        expected.append([f"ntdll.dll`NtWaitForSingleObject + {BEHIND_SYSCALL}", *reversed(calls)])
    opened = context.open_image(kernel.image(), tmp_path)
    written = write_dump(opened, process_of(opened, 1000), tmp_path / "store.dmp")
    files_of = tmp_path / "modules"
    files_of.mkdir()
    for module in (app, ntdll, kernel32):
        data = bytearray(module.size)
        found = bulk.read_extents(opened.image.context, written._native.layer_name, module.base, module.size)
        for start, run in found.runs:
            data[start - module.base : start - module.base + len(run)] = run
        (files_of / module.name).write_bytes(data)
    before = [f"settings set target.exec-search-paths {files_of}"]
    threads: List[DebuggedThread] = debugged_threads(tmp_path / "store.dmp", 2, before)
    assert [thread.frames for thread in threads] == expected


@pytest.mark.shared
@pytest.mark.cli
@pytest.mark.skipif(not (SHARED / "reactos").is_dir(), reason="the images of ReactOS are not there")
def test_a_process_of_a_system_that_nobody_here_forged(tmp_path: pathlib.Path) -> None:
    """ReactOS, stopped at a random moment: a parser finds the PEB's strings, the walk is that of the image.

    LLDB goes by frame pointers alone: it finds no frame that the image's walk has not, in the same order.
    """
    path, symbols = images.reactos("ros-idle")(tmp_path)
    result = vol.run(path, "windows.minidump", "--dump", "--pid", "76", symbols=symbols, cwd=tmp_path)
    row = only(result.rows)
    file = tmp_path / row["File output"]
    assert MinidumpFile.parse(str(file)).peb.command_line == "\\SystemRoot\\System32\\smss.exe"
    walked = vol.run(path, "windows.callstacks", "--pid", "76", symbols=symbols).rows
    expected = [_addresses(row) for row in walked if row["Part"] == "user"]
    found = vol.run(file, "minidump.callstacks", symbols=symbols).rows
    assert [_addresses(row) for row in found] == expected
    assert len(expected) == 3
    if LLDB is None:
        return
    commands = [f"thread backtrace {number}" for number in (1, 2, 3)]
    printed = debug(file, commands)
    for command, frames in zip(commands, expected):
        theirs = [int(address, 16) for address in re.findall(r"frame #\d+: (0x[0-9a-f]+)", printed[command])]
        assert theirs[0] == frames[0]
        assert len(theirs) > 1
        assert theirs == [frame for frame in frames if frame in theirs]


def _addresses(row: Dict[str, Any]) -> List[int]:
    return [frame["Address"] for frame in row["__children"]]
