# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `minidump.info` of a small kernel dump: header, bug check, parts, drivers, memory.

Names come from DUMP_HEADER and TRIAGE_DUMP. Each loaded and each unloaded driver has a row, so that the
versions behind the stack's addresses are known.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ..columns.words import PRODUCTS
from ..memory.decode.status import Status, naming, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import SECOND, cell, moment
from ..memory.image import Image
from ..minidump import smalldump
from ..minidump.decode.drivers import Driver, broken_driver, list_drivers, list_unloaded
from ..minidump.decode.kernelheader import KernelDumpHeader
from ..minidump.decode.triage import Part, TriageDump
from ..stacklist.crash import Crash
from ..stacklist.decode.bugchecks import bug_check
from ..traps.decode.record import exception_record
from . import dumpwords
from .dumprows import DumpEntry
from .grid import Hex

_HEXADECIMAL = (
    "DirectoryTableBase", "PfnDataBase", "PsLoadedModuleList", "PsActiveProcessHead", "MachineImageType",
    "KdDebuggerDataBlock", "MiniDumpFields", "SuiteMask",
)  # fmt: skip
_PARTS = (
    "Mm", "UnloadedDrivers", "Prcb", "Process", "Thread", "CallStack",
    "DriverList", "StringPool", "BrokenDriver", "DataPage", "DebuggerData", "DataBlocks",
)  # fmt: skip
_SIZES = {
    "CallStack": "SizeOfCallStack",
    "StringPool": "StringPoolSize",
    "DataPage": "DataPageSize",
    "DebuggerData": "DebuggerDataSize",
}


class SmallDumpEntries:
    """Makes the entries. `crash` is the crash and its stack, None without a bug check."""

    def __init__(self, image: Image, dump: TriageDump, crash: Optional[Crash] = None) -> None:
        self._image = image
        self._dump = dump
        self._crash = crash

    def entries(self) -> Iterator[DumpEntry]:
        dump = self._dump
        header = dump.header
        ranges, row_status = smalldump.memory(dump)
        name = "DUMP_HEADER64" if header.wide else "DUMP_HEADER"
        yield DumpEntry(0, name, f"{dump.size} bytes", status(dump.status, row_status))
        for member in _header(header):
            yield DumpEntry(1, *member)
        yield from self._bug_check(header)
        yield from self._exception()
        if self._dump.header_only:
            return
        yield DumpEntry(0, "TRIAGE_DUMP64" if header.wide else "TRIAGE_DUMP32", f"at {header.size:#x}")
        for part in self._parts():
            yield DumpEntry(1, part.name, f"{part.size} bytes at {part.offset:#x}", part.status)
        blocks, wrong = dump.blocks()
        yield DumpEntry(1, "DataBlocksCount", str(len(blocks)), wrong)
        yield DumpEntry(1, "bytes of memory", str(sum(memory_range.length for memory_range in ranges)))
        yield from self._drivers()

    def _parts(self) -> List[Part]:
        sizes = {name: self._dump.member(member) for name, member in _SIZES.items()}
        parts = [self._dump.context, self._dump.exception]
        parts += [self._dump.part(name, sizes.get(name)) for name in _PARTS]
        return [part for part in parts if part.offset or part.status]

    def _bug_check(self, header: KernelDumpHeader) -> Iterator[DumpEntry]:
        if header.BugCheckCode is None:
            yield DumpEntry(0, "BugCheckCode", "", status(StatusCode.UNREADABLE))
            return
        known = bug_check(header.BugCheckCode)
        yield DumpEntry(0, "BugCheckCode", known.shown)
        for number, (value, meaning) in enumerate(zip(header.BugCheckParameters, known.parameters), 1):
            shown = f"{value:#x}" + (f": {meaning}" if meaning else "")
            yield DumpEntry(1, f"BugCheckParameter{number}", shown)
        broken = broken_driver(self._dump)
        if broken is not None:
            yield DumpEntry(1, "BrokenDriver", cell(broken))
        for driver in () if self._crash is None else self._crash.drivers:
            unsure = None if driver.walked.sure else StatusCode.UNSURE
            yield DumpEntry(
                1,
                "driver on the stack",
                driver.words,
                status(unsure),
                Hex(self._image.machine.masked(driver.walked.address)),
                frame=driver.number,
                symbol=driver.frame.shown,
                how=driver.walked.how,
            )

    def _exception(self) -> Iterator[DumpEntry]:
        part = self._dump.exception
        record = exception_record(part.data, self._dump.header.wide)
        if record is None:
            yield DumpEntry(0, "EXCEPTION_RECORD", "", status(part.status, StatusCode.UNREADABLE))
            return
        yield DumpEntry(0, "EXCEPTION_RECORD", f"{part.size} bytes at {part.offset:#x}", part.status)
        for name, value in record:
            words = dumpwords.WORDS.get(name)
            yield DumpEntry(1, name, words(value) if words else f"{value:#x}")

    def _drivers(self) -> Iterator[DumpEntry]:
        drivers, row_status = list_drivers(self._dump)
        yield DumpEntry(0, "DriverCount", str(len(drivers)), row_status)
        for driver in drivers:
            yield DumpEntry(1, *_driver(driver))
        unloaded, row_status = list_unloaded(self._dump)
        yield DumpEntry(0, "unloaded drivers", str(len(unloaded)), row_status)
        for one in unloaded:
            yield DumpEntry(1, cell(one.name), f"{one.start:#x}-{one.end - 1:#x}")


def _header(header: KernelDumpHeader) -> Iterator[Tuple[str, str]]:
    """Yields the members of the header that Windows wrote, without the members of the bug check."""
    for name, value in header._asdict().items():
        if value is None or not name[0].isupper() or name.startswith("BugCheck"):
            continue
        if name in _HEXADECIMAL:
            yield name, f"{value:#x}"
        elif name == "SystemTime":
            time = moment(value)
            yield name, str(value) if time is None else time.isoformat(" ", "seconds")
        elif name == "SystemUpTime":
            yield name, f"{value // SECOND} s"
        elif name == "ProductType":
            yield name, f"{value} {PRODUCTS.get(value, '')}".rstrip()
        elif name == "Comment":
            if value:
                yield name, cell(value)
        else:
            yield name, str(value)


def _driver(driver: Driver) -> Tuple[str, str, Status]:
    """Returns name, value and status of the row of a driver."""
    end = driver.DllBase + max(driver.SizeOfImage, 1) - 1
    row_status: List[Optional[StatusCode]] = [
        None if driver.name is not None else StatusCode.FILE_NAME_UNREADABLE
    ]
    parts = [f"{driver.DllBase:#x}-{end:#x}"]
    for name in ("TimeDateStamp", "CheckSum"):
        value = getattr(driver, name)
        if value is not None:
            parts.append(f"{name} {value:#x}")
    lost = None if driver.TimeDateStamp is not None else naming(StatusCode.NOT_IN_THE_DUMP, "TimeDateStamp")
    return cell(driver.name or ""), ", ".join(parts), status(*row_status, lost)
