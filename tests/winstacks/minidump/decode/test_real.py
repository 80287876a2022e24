# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Minidumps that Windows, Breakpad and Crashpad wrote, read as two other parsers read them."""

from __future__ import annotations

import logging
import pathlib
from typing import Any, Dict, List

import pytest
from minidump.minidumpfile import MinidumpFile
from volatility3.framework import contexts

from tests.conftest import SHARED
from tests.support.only import only
from winstacks.memory import tables
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import NOTHING
from winstacks.minidump.decode import handles, memory, modules, system, threads
from winstacks.minidump.decode.dumpfile import Minidump
from winstacks.traps.decode.context import ContextLayout, CpuContext

# Its wheel for Python 3.13 is installed on newer ones, too, which cannot load it.
udmp_parser = pytest.importorskip("udmp_parser")

FILES = [
    path for folder in ("", "more") for path in sorted((SHARED / "real_minidumps" / folder).glob("*.dmp"))
]
"""All well-formed files of Windows."""

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not FILES, reason="the real minidumps are not there"),
]


class Real:
    """A file as we read it (`dump`) and as others do (`theirs`, `udmp`)."""

    def __init__(self, path: pathlib.Path) -> None:
        data = path.read_bytes()
        self.name = path.stem
        self.dump = Minidump(lambda offset, length: data[offset : offset + length], len(data))
        self.system = system.system_info(self.dump)
        logging.disable(logging.ERROR)  # it wants a PEB of every dump
        try:
            self.theirs = MinidumpFile.parse(str(path))
        finally:
            logging.disable(logging.NOTSET)
        self.udmp = udmp_parser.UserDumpParser()
        assert self.udmp.Parse(path)

    @property
    def machine(self) -> Machine:
        assert self.system is not None
        return self.system.machine

    def context(self, location: Any) -> CpuContext:
        data, faults = threads.context(self.dump, location)
        context = contexts.Context()
        version = tables.generations("context", self.machine.arch)[0]
        name = f"context-{version}-{self.machine.arch}"
        types = tables.of_table(context, tables.load(context, "tests", name))
        found = ContextLayout(types["_CONTEXT"], self.machine).decode(data)
        assert found is not None
        assert faults == NOTHING
        return found


@pytest.fixture(scope="module", params=FILES, ids=lambda path: str(path.stem))
def real(request: pytest.FixtureRequest) -> Real:
    return Real(request.param)


def _their_registers(machine: Machine, context: Any) -> Dict[str, int]:
    """Returns the registers of a context that other parsers read, by our names."""
    names = ["ip", "sp", "bp", "ax", "bx", "cx", "dx", "si", "di"]
    prefix = "R" if machine is Machine.AMD64 else "E"
    read = {f"R{name}": int(getattr(context, prefix + name)) for name in names}
    if machine is Machine.AMD64:
        read.update({f"R{number}": int(getattr(context, f"R{number}")) for number in range(8, 16)})
    for name in ("EFlags", "SegCs", "SegSs"):
        read[name] = int(getattr(context, name))
    return read


def test_header_and_streams(real: Real) -> None:
    assert real.dump.status == NOTHING
    assert [stream for stream in real.dump.streams if stream.status] == []
    theirs = [directory.StreamType for directory in real.theirs.directories]
    known = [getattr(their, "value", their) for their in theirs]
    assert {stream.StreamType for stream in real.dump.streams} >= {
        stream_type for stream_type in known if stream_type
    }


def test_system(real: Real) -> None:
    assert real.system is not None
    theirs = real.theirs.sysinfo
    assert real.system.BuildNumber == theirs.BuildNumber
    assert real.system.ProcessorArchitecture == theirs.ProcessorArchitecture.value
    assert (real.system.MajorVersion, real.system.MinorVersion) == (theirs.MajorVersion, theirs.MinorVersion)
    misc = system.misc_info(real.dump)
    assert misc is not None
    assert misc.ProcessId == real.theirs.misc_info.ProcessId
    assert misc.ProcessCreateTime == real.theirs.misc_info.ProcessCreateTime
    assert (misc.status, real.system.status) == (NOTHING, NOTHING)


def test_every_register_of_every_thread(real: Real) -> None:
    found, faults = threads.thread_list(real.dump)
    udmp = real.udmp.Threads()
    assert (len(found), faults) == (len(udmp), NOTHING)
    assert len(udmp) == len(real.theirs.threads.threads)
    for ours, theirs in zip(found, real.theirs.threads.threads):
        other = udmp[ours.ThreadId]
        assert (ours.ThreadId, ours.Teb, ours.SuspendCount) == (
            theirs.ThreadId,
            theirs.Teb,
            theirs.SuspendCount,
        )
        assert other.Teb == ours.Teb
        assert (ours.StartOfMemoryRange, ours.Stack.DataSize) == (
            theirs.Stack.StartOfMemoryRange,
            theirs.Stack.DataSize,
        )
        registers = real.context(ours.ThreadContext).registers
        for context in (theirs.ContextObject, other.Context):
            expected = _their_registers(real.machine, context)
            assert {name: registers[name] for name in expected} == expected


def test_every_module(real: Real) -> None:
    found, faults = modules.module_list(real.dump)
    assert faults == NOTHING
    ours: List[Any] = [
        (module.BaseOfImage, module.SizeOfImage, module.TimeDateStamp, module.ModuleName) for module in found
    ]
    theirs = real.theirs.modules.modules
    assert ours == [(their.baseaddress, their.size, their.timestamp, their.name) for their in theirs]
    udmp = real.udmp.Modules().values()
    assert sorted(ours) == sorted(
        (module.BaseOfImage, module.SizeOfImage, module.TimeDateStamp, module.ModuleName) for module in udmp
    )
    records = {module.BaseOfImage: bytes(module.CvRecord) for module in udmp}
    for module in found:
        data = real.dump.read(module.CvRecord.Rva, module.CvRecord.DataSize)
        assert data == records[module.BaseOfImage]
        assert (module.code_view is not None) == (records[module.BaseOfImage][:4] == b"RSDS")
        assert module.status == NOTHING


def test_all_memory(real: Real) -> None:
    found, faults = memory.memory_ranges(real.dump)
    theirs = real.theirs.memory_segments.memory_segments
    assert faults == NOTHING
    assert all(before.start + before.length <= after.start for before, after in zip(found, found[1:]))
    here = {start: real.dump.read(offset, length) or b"" for start, offset, length in found}
    there = {
        their.start_virtual_address: real.dump.read(their.start_file_address, their.size) or b""
        for their in theirs
    }
    assert _bytes_by_address(here) == _bytes_by_address(there)


def _bytes_by_address(ranges: Dict[int, bytes]) -> Dict[int, int]:
    """Returns each byte by its address: some files have a range within another."""
    return {start + place: byte for start, data in ranges.items() for place, byte in enumerate(data)}


def test_the_exception(real: Real) -> None:
    found = threads.exception_stream(real.dump)
    theirs = real.theirs.exception
    assert (found is None) == (theirs is None)
    if found is not None:
        record = only(theirs.exception_records)
        assert found.ThreadId == record.ThreadId
        assert found.ExceptionCode == record.ExceptionRecord.ExceptionCode_raw
        assert found.ExceptionAddress == record.ExceptionRecord.ExceptionAddress
        assert found.ThreadId == real.udmp.ForegroundThreadId()
        assert real.context(found.ThreadContext).registers["Rip"]


def test_lists_that_one_file_has(real: Real) -> None:
    """Crashpad's dump alone has handles, regions and an unloaded module."""
    crashpad = real.name == "tiny-exe-with-cet-xsave"
    regions, said_regions = memory.memory_info_list(real.dump)
    opened, said_handles = handles.handle_data(real.dump)
    gone, said_gone = modules.unloaded_module_list(real.dump)
    assert [len(entries) for entries in (regions, opened, gone)] == ([557, 147, 1] if crashpad else [0, 0, 0])
    assert (said_regions, said_handles, said_gone) == (NOTHING, NOTHING, NOTHING)
    if crashpad:
        theirs = real.theirs.memory_info.infos
        assert [(region.BaseAddress, region.RegionSize) for region in regions] == [
            (their.BaseAddress, their.RegionSize) for their in theirs
        ]
        assert [(handle.Handle, handle.TypeName) for handle in opened] == [
            (handle.Handle, handle.TypeName) for handle in real.theirs.handles.handles
        ]
        assert [module.ModuleName for module in gone] == [
            module.name for module in real.theirs.unloaded_modules.modules
        ]


def test_a_file_cut_anywhere_has_a_part_of_what_it_had(real: Real) -> None:
    whole, _ = memory.memory_ranges(real.dump)
    size = real.dump.size
    for cut in range(0x40, size, max(size // 40, 1)):
        data = real.dump.available(0, cut)
        part = Minidump(lambda offset, length, data=data: data[offset : offset + length], cut)  # type: ignore[misc]
        found, faults = memory.memory_ranges(part)
        assert {piece.start for piece in found} <= {piece.start for piece in whole}
        lost = found != whole
        assert lost <= bool(faults or part.status or any(stream.status for stream in part.streams))
        for thread in threads.thread_list(part)[0]:
            threads.context(part, thread.ThreadContext)
