# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What one process writes into its own copies of shared images changes nothing that is shown of another."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List, Optional, Tuple

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.windows import (
    callstacks,
    gflags,
    handletraces,
    heaptraces,
    locks,
    objecttraces,
    stacktracedb,
    trapframes,
)

from tests.forge import context, sample, samplethreads, vol
from tests.forge.kernel import Kernel
from tests.forge.paging import State
from tests.forge.process import Process
from tests.forge.std import Std
from tests.support.callstackimages import PID, StackImage
from tests.support.only import only

EVIL = 2000
UNWIND_DATA = 0x5800
PLUGINS: Dict[str, Tuple[Any, Dict[str, Any]]] = {
    "gflags": (gflags.GFlags, {}),
    "stacktracedb": (stacktracedb.StackTraceDb, {}),
    "stacktracedb --carve": (stacktracedb.StackTraceDb, {"carve": True, "fold": True}),
    "trapframes": (trapframes.TrapFrames, {"scan_stacks": True, "unwind": True}),
    "callstacks": (callstacks.CallStacks, {}),
    "locks": (locks.Locks, {}),
    "handletraces": (handletraces.HandleTraces, {}),
    "objecttraces": (objecttraces.ObjectTraces, {}),
    "heaptraces": (heaptraces.HeapTraces, {}),
}


def stacks(name: str, evil_first: Optional[bool]) -> StackImage:
    """Two processes whose threads wait; unless `evil_first` is None one has changed unwind data."""
    image = StackImage(name)
    evil = image.kernel.process("evil.exe", pid=EVIL)
    image._user_modules(evil)
    image.waiting(EVIL + 4, process=evil)
    image.waiting(1004)
    if evil_first is not None:
        for module in evil.modules:
            # Of the first function: other code, another size of its frame.
            address = module.base + UNWIND_DATA
            evil.space.write(address + 4, bytes(byte ^ 0x51 for byte in evil.space.read(address + 4, 2)))
    if evil_first:
        image.kernel.processes.sort(key=lambda process: process is not evil)
    return image


def rows_of(folder: pathlib.Path, forged_image: StackImage, pid: int, *options: str) -> List[vol.Row]:
    image = forged_image.kernel.image()
    symbols = image.install(folder / "symbols")
    found = vol.run(image.save(folder / "image.raw"), "windows.callstacks", *options, symbols=symbols)
    return [row for row in found.flat if row["PID"] == pid]


@pytest.mark.parametrize("name", ["win10-x64", "win7-x64"])
def test_unwind_data_that_one_process_changed_takes_no_frame_elsewhere(
    tmp_path: pathlib.Path, name: str
) -> None:
    clean = rows_of(tmp_path / "clean", stacks(name, None), PID)
    assert [row["How"] for row in clean if row["Part"] == "user" and row["Frame"] is not None].count(
        "unwind"
    ) > 1
    for evil_first in (True, False):
        for options in ((), ("--pid", str(PID))):
            folder = tmp_path / f"{evil_first}{len(options)}"
            assert rows_of(folder, stacks(name, evil_first), PID, *options) == clean


def test_who_changed_unwind_data_is_told(tmp_path: pathlib.Path) -> None:
    found = rows_of(tmp_path, stacks("win10-x64", True), EVIL)
    statuses = {row["Status"] for row in found if row["Frame"] is not None and "ntdll" in row["Symbol"]}
    assert statuses == {"unwind data differs from the image section"}


def shared() -> Kernel:
    """The sample with one more process, which has its own copies of what it shares, and changed them."""
    kernel = sample.build()
    updater = next(process for process in kernel.processes if process.name == "updater.exe")
    evil = kernel.process("evil.exe", pid=4100, session=1, nt_global_flag=0x1000)
    for module in updater.modules:
        options = {"ntdll.dll": sample.NTDLL, "KERNEL32.DLL": sample.KERNEL32, "updater.exe": sample.UPDATER}
        evil.module(module.name, module.base, dll=module.pe.dll, **options[module.name].options())
    tamper(evil)
    ntdll = evil.modules[-1]
    thread = evil.thread(4104, start=ntdll.at("RtlUserThreadStart"))
    samplethreads.wait(thread, ntdll.at("RtlUserThreadStart") + 0x21, rsp=thread.user_stack_base - 0x248)
    database = Std("6.1", "x64", sample.PROCESS_DATABASE)
    database.log([module.base + 0x1031 for module in evil.modules])
    sample.write(evil, database)
    evil.space.write_int(ntdll.base + sample.POINTER_RVA, database.base)
    half = evil.wow64(nt_global_flag=0x1000)
    for module in next(process.wow for process in kernel.processes if process.wow is not None).modules:
        options = {"ntdll.dll": sample.NTDLL, "KERNEL32.DLL": sample.KERNEL32, "legacy.exe": sample.LEGACY}
        known = options[module.name].options(wide=False)
        half.module(module.name, module.base, dll=module.pe.dll, **known)
    return kernel


def tamper(process: Process) -> None:
    """Changes what names and stacks are read from: exports, function table, unwind data, code, data."""
    for module in process.modules:
        rvas = [module.pe.meta_rva + 0x80, module.pe.pdata_rva, UNWIND_DATA]
        for rva in rvas:
            address = module.base + rva
            process.space.write(address, bytes(byte ^ 1 for byte in process.space.read(address, 0x40)))
        process.space.write(module.base + 0x1000, b"\xcc" * 0x400)
        process.space.write(module.base + 0x7000, b"\x11" * 0x800)


def shown(opened: context.Opened, plugin: str, **more: Any) -> Dict[object, List[Dict[str, Any]]]:
    """The rows of each process."""
    kind, options = PLUGINS[plugin]
    found: Dict[object, List[Dict[str, Any]]] = {}
    pid: object = None
    for depth, row in opened.rows(kind, **options, **more):
        pid = row.get("PID", pid) if depth == 0 or "PID" in row else pid
        cells = {
            name: type(value).__name__ if isinstance(value, interfaces.renderers.BaseAbsentValue) else value
            for name, value in row.items()
        }
        key = pid if isinstance(pid, int) else None
        found.setdefault(key, []).append({"depth": depth, **cells})
    return found


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> List[context.Opened]:
    """The same image with its processes in three orders."""
    opened = []
    for number in range(3):
        kernel = shared()
        processes = kernel.processes
        kernel.processes = [processes[::-1], processes, processes[2:] + processes[:2]][number]
        opened.append(context.open_image(kernel.image(), tmp_path_factory.mktemp("order")))
    return opened


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_order_of_processes_changes_no_row(orders: List[context.Opened], plugin: str) -> None:
    first, *others = (shown(opened, plugin) for opened in orders)
    assert sum(map(len, first.values())) > 3
    for other in others:
        assert other == first


@pytest.mark.parametrize("plugin", PLUGINS)
def test_a_process_alone_has_the_same_rows(orders: List[context.Opened], plugin: str) -> None:
    if "pid" not in {requirement.name for requirement in PLUGINS[plugin][0].get_requirements()}:
        pytest.skip("the plugin has no --pid")
    every = shown(orders[0], plugin)
    for pid in (0, 4, 4312, 5120, 4100):
        alone = shown(orders[0], plugin, pid=[pid])
        assert alone.get(pid) == every.get(pid)


def test_a_page_of_no_other_process_is_taken(tmp_path: pathlib.Path) -> None:
    """The section has lost its unwind data, one process has its own: the other says what is missing."""
    image = stacks("win10-x64", None)
    evil = next(process for process in image.kernel.processes if process.pid == EVIL)
    ntdll = image.modules["ntdll"]
    evil.space.write(ntdll.base + UNWIND_DATA + 0x700, b"own")
    image.kernel.processes.sort(key=lambda process: process is not evil)
    image.app.space.set_state(ntdll.base + UNWIND_DATA, 0x1000, State.PROTOTYPE)
    assert ntdll.section is not None
    ntdll.section.set_state(UNWIND_DATA & ~0xFFF, 0x1000, State.PAGEFILE)
    found = rows_of(tmp_path, image, PID)
    user = only(row for row in found if row["Part"] == "user" and row["Frame"] is None)
    assert "unwind data unreadable" in user["Status"]


@pytest.mark.parametrize("options", [{"find": "*NoSuchName*"}, {"find": "*NoSuchName*", "unbacked": True}])
def test_what_find_cannot_judge_is_counted(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, options: Dict[str, Any]
) -> None:
    """The page with the exports of ntdll is out: its functions may have any name."""
    kernel = sample.build()
    updater = next(process for process in kernel.processes if process.name == "updater.exe")
    for process in kernel.processes:
        for module in process.modules:
            if module.name == "ntdll.dll":
                process.space.set_state(module.base + 0x5000, 0x1000, State.PROTOTYPE)
    ntdll = next(module for module in updater.modules if module.name == "ntdll.dll")
    assert ntdll.section is not None
    ntdll.section.set_state(0x5000, 0x1000, State.PAGEFILE)
    opened = context.open_image(kernel.image(), tmp_path)

    def traces(**chosen: Any) -> List[List[str]]:
        found: List[List[str]] = []
        for depth, row in opened.rows(stacktracedb.StackTraceDb, pid=[4312], **chosen):
            if depth == 0:
                found.append([])
            else:
                found[-1].append(row["Symbol"])
        return found

    assert not any(traces(**options))
    there = traces(unbacked=options.get("unbacked", False))
    nameless = [trace for trace in there if any(symbol.startswith("ntdll+") for symbol in trace)]
    assert len(nameless) > 0
    assert f"{len(nameless)} more may match --find and --unbacked" in caplog.text
