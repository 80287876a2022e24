# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Files that have only the header of a kernel's crash dump: they tell the bug check, and what they lack."""

from __future__ import annotations

import lzma
import pathlib
import struct
from typing import Any, Dict, List

import pytest
from volatility3.framework import interfaces
from volatility3.plugins.minidump import (
    callstacks,
    info,
    tracefindings,
    traceframes,
    traceimage,
    tracereport,
    traces,
    trapframes,
)

from tests.conftest import SHARED
from tests.forge import smalldump
from tests.forge.smalldump import Driver, SmallDump
from tests.support.only import only, rows_of
from tests.support.processdumps import OpenedDump
from winstacks import options

BASE, STACK = {True: 0xFFFFF80312200000, False: 0x82800000}, {True: 0xFFFFD00012345000, False: 0x8F345000}


def header(wide: bool, size: int, kind: int) -> bytes:
    dump = SmallDump(wide=wide)
    dump.drivers([Driver("ntoskrnl.exe", BASE[wide], 0x800000)])
    dump.crash(0xD1, (0x10, 2, 0, 1), smalldump.context(wide, BASE[wide] + 0x1234, STACK[wide] + 0x40))
    data = bytearray(dump.file()[:size])
    struct.pack_into("<I", data, 0xF98 if wide else 0xF88, kind)
    return bytes(data)


def shown(dump: OpenedDump) -> Dict[str, Any]:
    return {row["Member"]: row["Value"] for _, row in dump.rows(info.Info)}


@pytest.mark.parametrize(("wide", "size"), [(True, 0x1000), (True, 0x2000), (False, 0x1000)])
@pytest.mark.parametrize("kind", [1, 4, 6])
def test_info(wide: bool, size: int, kind: int, tmp_path: pathlib.Path) -> None:
    (tmp_path / "header.dmp").write_bytes(header(wide, size, kind))
    rows = OpenedDump(tmp_path / "header.dmp").rows(info.Info)
    values = {row["Member"]: row["Value"] for _, row in rows}
    assert values["BugCheckCode"] == "0xd1 DRIVER_IRQL_NOT_LESS_OR_EQUAL"
    assert values["BugCheckParameter2"] == "0x2: IRQL"
    assert (values["MinorVersion"], values["SystemTime"][:4]) == ("19041", "2024")
    assert values["NumberProcessors"] == ("4" if wide else "1")
    assert rows[0][1]["Status"] == "header only"
    assert not {"DriverCount", "TRIAGE_DUMP64", "TRIAGE_DUMP32", "bytes of memory"} & values.keys()


@pytest.mark.parametrize(("kind", "small"), [(1, False), (4, True)])
def test_a_longer_file_is_told_by_its_type(kind: int, small: bool) -> None:
    data = header(True, 0x2000, kind)
    assert options.is_small_dump(lambda at, length: data[at : at + length], 0x3000) is small


@pytest.mark.parametrize("wide", [True, False])
def test_the_other_plugins(wide: bool, tmp_path: pathlib.Path) -> None:
    (tmp_path / "header.dmp").write_bytes(header(wide, 0x1000, 4))
    dump = OpenedDump(tmp_path / "header.dmp")
    (_, first), (_, frame) = rows_of(2, dump.rows(callstacks.CallStacks))
    lacks = "header only, not in the dump: UniqueProcessId ImageFileName, not in the dump: UniqueThread"
    assert first["Status"].startswith(lacks)
    assert not isinstance(first["PID"], int)
    # The file has no list of drivers: an address in none of them proves nothing.
    assert (frame["Symbol"], frame["Status"]) == ("<unknown>", "module list not in the file")
    assert "code in no module" not in first["Status"]
    assert isinstance(first["Unbacked"], interfaces.renderers.BaseAbsentValue)
    findings: List[Dict[str, Any]] = [row for _, row in dump.rows(tracefindings.TraceFindings)]
    assert "kernel_no_module" not in {row["Finding"] for row in findings if row["Status"] != "not checked"}
    values = {row["Member"]: (row["Value"], row["Status"]) for _, row in dump.rows(info.Info, brief=True)}
    assert values["At"] == (f"{BASE[wide] + 0x1234:#x}", "header only")
    _, facts = only(dump.rows(traceimage.TraceImage))
    assert (facts["BugCheckCode"], facts["KernelBuild"]) == (0xD1, 19041)
    assert facts["Completeness"] == "truncated"
    for plugin in (traces.StackTraces, traceframes.TraceFrames, trapframes.TrapFrames):
        assert dump.rows(plugin)
    assert dump.construct(tracereport.TraceReport).run()


@pytest.mark.shared
@pytest.mark.parametrize("size", [0x1000, 0x2000])
def test_a_real_file(size: int, tmp_path: pathlib.Path) -> None:
    data = lzma.decompress((SHARED / "real_trapframes" / "triage_x64.dmp.xz").read_bytes())
    (tmp_path / "header.dmp").write_bytes(data[:size])
    values = shown(OpenedDump(tmp_path / "header.dmp"))
    assert values["BugCheckCode"] == "0x1000007e SYSTEM_THREAD_EXCEPTION_NOT_HANDLED_M"
    assert values["SystemTime"] == "2021-02-21 01:38:22+00:00"
    assert values["ExceptionAddress"] == "0xfffff8047bdf5a80"


@pytest.mark.shared
@pytest.mark.parametrize("size", [0x1000, 0x2000])
def test_a_real_file_without_modules_has_no_damage(
    size: int, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = lzma.decompress((SHARED / "real_trapframes" / "triage_x64.dmp.xz").read_bytes())
    (tmp_path / "header.dmp").write_bytes(data[:size])
    dump = OpenedDump(tmp_path / "header.dmp")
    (_, first), (_, frame) = rows_of(2, dump.rows(callstacks.CallStacks))
    assert "module list not in the file" in first["Status"]
    assert "code in no module" not in first["Status"]
    assert frame["Address"] == 0xF8048B58334C
    assert (frame["Symbol"], frame["Backing"]) == ("<unknown>", "unknown")
    assert frame["Status"] == "module list not in the file"
    _, trace = only(dump.rows(traces.StackTraces))
    for row in (first, trace):
        assert isinstance(row["Unbacked"], interfaces.renderers.BaseAbsentValue)
    assert "candidates" not in first["Status"]
    first, *others = (row for _, row in dump.rows(tracefindings.TraceFindings))
    assert first["Finding"] == "nothing_found"
    assert all(row["Status"] == "not checked" for row in others)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert set(said) == {"The file has no list of modules: which module has an address is unknown"}
    _, facts = only(dump.rows(traceimage.TraceImage))
    assert facts["Warnings"] == 1
    assert "module list" not in facts["StructuresAbsent"]
