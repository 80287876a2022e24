# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images of all forged kernels under Volatility's own plugins."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Dict, List, Set

import pytest
from volatility3.framework import contexts
from volatility3.framework.symbols import windows
from volatility3.framework.symbols.windows import versions
from volatility3.plugins.windows import (
    cmdline,
    debugregisters,
    dlllist,
    envars,
    handles,
    info,
    kpcrs,
    ldrmodules,
    modules,
    pslist,
    pstree,
    threads,
    unloadedmodules,
    vadinfo,
    vadwalk,
)

from tests.forge import context, kernel_tables, kernels
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.obj import Obj
from tests.forge.process import Process
from tests.forge.thread import Thread
from tests.support.only import only

PID, TID = 1000, 1004


@dataclasses.dataclass
class Forged:
    """One kernel's image, opened, and what was put into it."""

    known: kernels.KnownKernel
    kernel: Kernel
    opened: context.Opened
    process: Process
    thread: Thread
    driver: Module
    ntdll: Module

    def rows(self, plugin: Any, **options: Any) -> List[Dict[str, Any]]:
        """What the plugin prints, without the depth of each row."""
        return [row for _, row in self.opened.rows(plugin, **options)]

    def masked(self, address: int) -> int:
        return int(address & self.opened.layer.address_mask)


@pytest.fixture(scope="module", params=[*kernels.KERNELS, "2003-x64"])
def forged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Forged:
    known = kernels.load(request.param)
    kernel = Kernel(known.table, cpus=2, **known.options())
    driver = kernel.module("forge.sys")
    kernel.unloaded("gone.sys", driver.base + 0x100000, driver.base + 0x110000)
    process = kernel.process("app.exe", PID, session=1, command_line="app.exe --go")
    process.module("app.exe", dll=False)
    ntdll = process.module("ntdll.dll", exports={"NtClose": 0x1100}, symbols={"NtClose": 0x1100})
    thread = process.thread(TID, start=ntdll.base + 0x1100)
    frame = kernel.obj("_KTRAP_FRAME")
    frame.put(Dr0=ntdll.base + 0x1100, Dr7=1)
    thread.kthread["TrapFrame"] = frame
    _handle_table(kernel, process, thread.ethread)
    image = kernel.image()
    opened = context.find_image(image, tmp_path_factory.mktemp(request.param))
    return Forged(known, kernel, opened, process, thread, driver, ntdll)


def _handle_table(kernel: Kernel, process: Process, target: Obj) -> None:
    """A table of one page with a handle, 4, to an object."""
    isf = kernel.isf
    page = kernel.space.allocate(0x1000, 0x1000)
    entry = Obj(kernel.space, isf, "_HANDLE_TABLE_ENTRY", page + isf.size("_HANDLE_TABLE_ENTRY"))
    header = target.address - isf.offset("_OBJECT_HEADER", "Body")
    if kernel.bits == 64 and entry.has("ObjectPointerBits"):
        entry["ObjectPointerBits"] = header >> 4
        entry["GrantedAccessBits"] = 0x12019F
    elif entry.has("ObjectPointerBits"):
        entry["InfoTable"] = header | 1
        entry["GrantedAccessBits"] = 0x12019F
    else:
        entry["Object"] = header | 1
        entry["GrantedAccess"] = 0x12019F
    table = kernel.obj("_HANDLE_TABLE")
    table["TableCode"] = page
    process.eprocess["ObjectTable"] = table


def test_info(forged: Forged) -> None:
    rows = {row["Variable"]: row["Value"] for row in forged.rows(info.Info)}
    major, minor, build = forged.known.version
    assert rows["Kernel Base"] == hex(forged.masked(forged.kernel.base))
    assert rows["Is64Bit"] == str(forged.known.arch == "x64")
    assert rows["IsPAE"] == str(forged.known.arch == "x86")
    assert (rows["NtMajorVersion"], rows["NtMinorVersion"]) == (str(major), str(minor))
    assert rows["Major/Minor"] == f"15.{build}"
    assert rows["KeNumberProcessors"] == "2"
    assert rows["MachineType"] == ("34404" if forged.known.arch == "x64" else "332")
    assert forged.known.table.guid in rows["Symbols"]


def test_pslist(forged: Forged) -> None:
    rows = forged.rows(pslist.PsList)
    assert [(row["PID"], row["ImageFileName"]) for row in rows] == [(4, "System"), (PID, "app.exe")]
    assert rows[1]["SessionId"] == 1
    assert rows[1]["CreateTime"].year == 2024
    assert sorted(row["PID"] for row in forged.rows(pstree.PsTree)) == [4, PID]


def test_threads(forged: Forged) -> None:
    row = only(forged.rows(threads.Threads))
    assert (row["PID"], row["TID"]) == (PID, TID)
    assert row["StartAddress"] == forged.masked(forged.ntdll.base + 0x1100)
    assert row["Offset"] == forged.masked(forged.thread.ethread.address)


def test_modules(forged: Forged) -> None:
    rows = {row["Name"]: row for row in forged.rows(modules.Modules)}
    assert list(rows) == ["ntoskrnl.exe", "forge.sys"]
    assert rows["forge.sys"]["Base"] == forged.masked(forged.driver.base)
    assert rows["forge.sys"]["Size"] == forged.driver.size


def test_unloaded_modules(forged: Forged) -> None:
    row = only(forged.rows(unloadedmodules.UnloadedModules))
    assert row["Name"] == "gone.sys"


def test_loaded_dlls(forged: Forged) -> None:
    rows = forged.rows(dlllist.DllList)
    assert [row["Name"] for row in rows] == ["app.exe", "ntdll.dll"]
    assert rows[1]["Base"] == forged.ntdll.base
    rows = forged.rows(ldrmodules.LdrModules)
    assert {row["Base"]: row["InLoad"] for row in rows}[forged.ntdll.base]


def test_ranges(forged: Forged) -> None:
    rows = {row["Start VPN"]: row for row in forged.rows(vadinfo.VadInfo)}
    row = rows[forged.ntdll.base]
    assert row["File"].endswith("\\ntdll.dll")
    assert row["Protection"] == "PAGE_EXECUTE_WRITECOPY"
    assert row["End VPN"] == forged.ntdll.base + forged.ntdll.size - 1
    assert len(forged.rows(vadwalk.VadWalk)) == len(rows) == len(forged.process.vads)


def test_process_parameters(forged: Forged) -> None:
    row = only(row for row in forged.rows(cmdline.CmdLine) if row["PID"] == PID)
    assert row["Args"] == "app.exe --go"
    forged.rows(envars.Envars)


def test_debug_registers(forged: Forged) -> None:
    row = only(forged.rows(debugregisters.DebugRegisters))
    assert (row["TID"], row["Dr7"], row["Dr0"]) == (TID, 1, forged.ntdll.base + 0x1100)
    assert row["Range0"].endswith("\\ntdll.dll")
    assert row["Symbol0"] == "NtClose"


def test_handles(forged: Forged) -> None:
    row = only(forged.rows(handles.Handles))
    assert (row["PID"], row["HandleValue"], row["GrantedAccess"]) == (PID, 4, 0x12019F)
    assert (row["Type"], row["Name"]) == ("Thread", f"Tid {TID} Pid {PID}")
    assert row["Offset"] == forged.masked(forged.thread.ethread.address)


def test_processors(forged: Forged) -> None:
    rows = forged.rows(kpcrs.KPCRs)
    # On x86 Volatility takes the place of a pointer to the KPRCB for that of the KPRCB.
    back = forged.known.table.offset("_KPCR", "Prcb")
    expected = [forged.masked(cpu.kprcb.address - back) for cpu in forged.kernel.cpus]
    assert [row["Offset"] for row in rows] == expected


# What the version tests look at, as public symbols have it; Volatility goes by these where a table
# does not state its version. (On x86 some of the tests take one Windows for its neighbour.)
_WINDOWS_10 = """
    is_vista_or_later is_windows_8_or_later is_windows_8_1_or_later is_windows_10 is_win10
    is_win10_10586_or_later is_win10_15063_or_later is_win10_16299_or_later is_win10_17134_or_later
"""
_WINDOWS_10_19041 = f"""
    {_WINDOWS_10} is_win10_17735_or_later is_win10_18362_or_later is_win10_18363_or_later
    is_win10_19041_or_later
"""
VERSION_TESTS = {
    "xp-x86": "is_windows_xp is_windows_xp_sp3 is_xp_or_2003",
    "win7-x86": "is_vista_or_later is_windows_7 is_windows_7_sp0",
    "win7-x64": "is_vista_or_later is_windows_7 is_windows_7_sp1",
    "win10-x86": _WINDOWS_10,
    "win10-x64": _WINDOWS_10_19041,
    "win11-x64": f"{_WINDOWS_10_19041} is_win10_19577_or_later",
    "2003-x64": "is_vista_or_later is_windows_7 is_windows_7_sp1",
}


def _version_tests(path: pathlib.Path) -> Set[str]:
    """The names of Volatility's version tests that a table passes."""
    context = contexts.Context()
    context.symbol_space.append(
        windows.WindowsKernelIntermedSymbols(context, "table", "nt", path.resolve().as_uri(), validate=False)
    )
    tests = [pair for pair in vars(versions).items() if isinstance(pair[1], versions.OsDistinguisher)]
    return {name for name, test in tests if test(context, "nt")}


@pytest.mark.parametrize("name", VERSION_TESTS)
def test_versions(name: str, tmp_path: pathlib.Path) -> None:
    path = kernels.load(name).table.install(tmp_path)
    assert _version_tests(path) == set(VERSION_TESTS[name].split())


@pytest.mark.shared
@pytest.mark.parametrize("name", ["xp-x86", "win7-x64", "win10-x64", "win11-x64"])
def test_versions_are_the_real_tables(name: str, shared_dir: pathlib.Path) -> None:
    real = shared_dir / "isf" / "symbols" / "windows" / f"{kernel_tables.REAL[name]}.json.xz"
    assert _version_tests(real) == set(VERSION_TESTS[name].split())
