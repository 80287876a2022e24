# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes small kernel dumps (DumpType 4), part by part.

made = SmallDump(wide=True, build=19041)
made.crash(0xD1, (0, 2, 0, 0x1000), context)
made.stack(0xFFFFF80000001000, b"...")
made.drivers([Driver("ntoskrnl.exe", base, size)])
data = made.file()

The layout is that of DUMP_HEADER(64) in Volatility's `crash.json` and `crash64.json`, and of the small dumps
of 10.0.19041 (x64) and 10.0.22000 (ARM64): CONTEXT and EXCEPTION_RECORD lie within the header, and
`tests/forge/test_smalldump.py` compares each member with these files. A `seed` draws another layout that the
members allow: CONTEXT and record behind TRIAGE_DUMP, gaps between parts, larger entries of drivers. No real
file of x86 is known, so there a seed also draws the form of the last members of TRIAGE_DUMP and where the
loader's entry lies in an entry of the list. `tail` is how many bytes of these last members an older Windows
writes.
"""

from __future__ import annotations

import random
import struct
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .obj import CAPTURED, filetime

CRASHED, STARTED = filetime(CAPTURED), 36_000_000_000
"""SystemTime as a FILETIME, and SystemUpTime: an hour."""
TAILS_OF_X86 = ("<8I", "<I12x7I", "<Q16xQ6I")
"""Forms of the last members of TRIAGE_DUMP32: as declared, with members of Itanium, and as in the 64-bit
structure."""
KDBG = 0x800
"""Where KdDebuggerDataBlock lies behind the kernel's base."""

_OFFSETS = {
    "OffsetKThreadTeb": (0x29A, 0xF0),
    "OffsetKThreadKernelStack": (0x29C, 0x58),
    "OffsetKThreadInitialStack": (0x29E, 0x28),
    "OffsetKThreadApcProcess": (0x2A0, 0xB8),
    "OffsetKThreadState": (0x2A2, 0x184),
    "SizeEProcess": (0x2A8, 0x400),
    "OffsetEprocessPeb": (0x2AA, 0x350),
    "SizePrcb": (0x2B0, 0x400),
    "OffsetPrcbCurrentThread": (0x2B4, 0x8),
    "OffsetPrcbProcStateContext": (0x2BC, 0x100),
    "OffsetPrcbNumber": (0x2BE, 0x24),
    "SizeEThread": (0x2C0, 0x400),
    "OffsetPrcbContext": (0x338, 0),
}


_ADDRESSES = {
    "PsLoadedModuleList": 0x48,
    "PsActiveProcessHead": 0x50,
    "NtBuildLab": 0x208,
    "KiProcessorBlock": 0x218,
    "MmUnloadedDrivers": 0x220,
}


def context(wide: bool, ip: int, sp: int) -> bytes:
    """A CONTEXT of kernel mode."""
    data = bytearray(0x4D0 if wide else 0x2CC)
    if wide:
        struct.pack_into("<IIH", data, 0x30, 0x10001F, 0x1F80, 0x10)
        struct.pack_into("<HI", data, 0x42, 0x18, 0x246)
        struct.pack_into("<Q", data, 0x98, sp)
        struct.pack_into("<Q", data, 0xF8, ip)
    else:
        struct.pack_into("<I", data, 0, 0x1003F)
        struct.pack_into("<IIIII", data, 0xB8, ip, 8, 0x246, sp, 0x10)
    return bytes(data)


class Driver(NamedTuple):
    """A driver of the list, or, by its base and size, one that was unloaded."""

    name: str
    base: int
    size: int
    entry_point: int = 0
    stamp: int = 0x5F000000
    checksum: int = 0x12345


class SmallDump:
    """Collects the parts of a dump.

    Args:
        wide: x64, or x86
        build: MinorVersion
        machine: IMAGE_FILE_MACHINE_*, that of the bitness by itself
        entry: bytes of a loader's entry, those of the debugger's KLDR_DATA_TABLE_ENTRY by itself
        tail: bytes of TRIAGE_DUMP behind TriageOptions that are written; None for all
        debugger: whether KDDEBUGGER_DATA64 is written
        seed: draws a layout; None for that of the real files

    Attributes:
        members: of TRIAGE_DUMP, by name
        variables: RVAs of variables of the kernel, by their symbols
        first: where a driver's loader entry lies in its entry of the list
        tail_form: the form of the last members of TRIAGE_DUMP
        offsets: what KDDEBUGGER_DATA64 says of KPRCB, KTHREAD and EPROCESS, by its members
    """

    def __init__(
        self,
        wide: bool = True,
        build: int = 19041,
        machine: Optional[int] = None,
        entry: Optional[int] = None,
        tail: Optional[int] = None,
        debugger: bool = True,
        seed: Optional[int] = None,
    ) -> None:
        self.wide, self.build = wide, build
        self.machine = machine or (0x8664 if wide else 0x14C)
        self._drawn = None if seed is None else random.Random(seed)
        slack = 0 if self._drawn is None else 8 * self._drawn.randrange(4)
        self._entry = (entry or (0x88 if wide else 0x48)) + slack
        self._in_header = self._drawn is None or self._drawn.random() < 0.3
        self._held: Dict[str, bytes] = {}
        self._tail = tail
        self._debugger = debugger
        self._word = "Q" if wide else "I"
        self.first = 8 if wide else 4
        self.tail_form = "<Q16xQ6I" if wide else TAILS_OF_X86[0]
        if self._drawn is not None and not wide:
            self.first, self.tail_form = self._drawn.choice((4, 8)), self._drawn.choice(TAILS_OF_X86)
        self._base = 0x2000 if wide else 0x1000
        self.members: Dict[str, int] = {}
        self._data = bytearray(self._base + 0x80)
        self._blocks: List[Tuple[int, bytes]] = []
        self._code, self._parameters = 0, (0, 0, 0, 0)
        self._kernel = 0
        self.variables = {
            "PsLoadedModuleList": 0x400,
            "PsActiveProcessHead": 0x410,
            "KdDebuggerDataBlock": KDBG,
        }
        self.offsets = {name: value for name, (_, value) in _OFFSETS.items()}
        self.put("ServicePackBuild", value=0)

    def put(self, member: str, data: bytes = b"", value: Optional[int] = None) -> int:
        """Adds a part, and returns where it lies; or sets a member to a value."""
        if value is not None:
            self.members[member] = value
            return value
        self._data += bytes(-len(self._data) % 8)
        if self._drawn is not None:
            self._data += self._drawn.randbytes(8 * self._drawn.randrange(5))
        self.members[member] = len(self._data)
        self._data += data
        return self.members[member]

    def crash(self, code: int, parameters: Sequence[int], context: bytes, record: bytes = b"") -> None:
        """Adds the bug check, the registers and the exception."""
        self._code, self._parameters = code, tuple(parameters)  # type: ignore[assignment]
        places = (0x348, 0xF00) if self.wide else (0x320, 0x7D0)
        record = record or self._breakpoint()
        for name, data, place in zip(("ContextOffset", "ExceptionOffset"), (context, record), places):
            if self._in_header:
                self._held[name] = data
                self.members[name] = place
            else:
                self._held.pop(name, None)
                self.put(name, data)

    def _breakpoint(self) -> bytes:
        """The record that KeBugCheckEx leaves: only the members before ExceptionInformation are written."""
        head = struct.pack("<IIQQI" if self.wide else "<IIIII", 0x80000003, 1, 0, self._kernel + 0x1234, 0)
        return head + (b"PAGE" * 40)[: (0x98 if self.wide else 0x50) - len(head)]

    def stack(self, address: int, data: bytes) -> None:
        """Adds the kernel stack of the thread."""
        self.put("CallStackOffset", data)
        self.put("SizeOfCallStack", value=len(data))
        self.put("TopOfStack", value=address)

    def thread(self, ethread: int, eprocess: int, initial: int, kernel: int, number: int, teb: int) -> None:
        """Adds KPRCB, ETHREAD and EPROCESS."""
        sizes = {"Prcb": "SizePrcb", "Process": "SizeEProcess", "Thread": "SizeEThread"}
        parts = {name: bytearray(self.offsets[size]) for name, size in sizes.items()}

        def put(part: str, member: str, value: int, form: str) -> None:
            struct.pack_into("<" + form, parts[part], self.offsets[member], value)

        put("Prcb", "OffsetPrcbCurrentThread", ethread, self._word)
        put("Prcb", "OffsetPrcbNumber", number, "B")
        for member, value in (
            ("OffsetKThreadTeb", teb),
            ("OffsetKThreadInitialStack", initial),
            ("OffsetKThreadKernelStack", kernel),
            ("OffsetKThreadApcProcess", eprocess),
        ):
            put("Thread", member, value, self._word)
        put("Thread", "OffsetKThreadState", 2, "B")
        for name, data in parts.items():
            self.put(f"{name}Offset", bytes(data))

    def amend(self, part: str, offset: int, data: bytes) -> None:
        """Writes into a part that `thread` has added: `Prcb`, `Process` or `Thread`."""
        start = self.members[f"{part}Offset"] + offset
        self._data[start : start + len(data)] = data

    def identify(self, places: Tuple[int, int, int], pid: int, name: bytes, tid: int, owner: int = 0) -> None:
        """Writes IDs and name into ETHREAD and EPROCESS.

        Args:
            places: offsets of UniqueProcessId, ImageFileName and Cid
            pid, name: of the process
            tid: of the thread
            owner: ID of the process that the thread belongs to, if it is another one
        """
        process, thread = self.members["ProcessOffset"], self.members["ThreadOffset"]
        width = struct.calcsize(self._word)
        for at, value in (
            (process + places[0], pid),
            (thread + places[2], owner or pid),
            (thread + places[2] + width, tid),
        ):
            struct.pack_into("<" + self._word, self._data, at, value)
        self._data[process + places[1] : process + places[1] + 15] = name.ljust(15, b"\0")

    def drivers(self, drivers: Sequence[Driver], broken: str = "") -> None:
        """Adds the list of drivers and their names; the first of them is the kernel."""
        first = self.first
        size = first + self._entry
        self._kernel = drivers[0].base if drivers else 0
        start = self.put("DriverListOffset", bytes(size * len(drivers)))
        pool = bytearray()
        self._data += bytes(-len(self._data) % 8)
        names = len(self._data)
        for place, module in enumerate(drivers):
            entry = bytearray(size)
            struct.pack_into("<I", entry, 0, names + len(pool))
            places = {
                0x30 if self.wide else 0x18: (self._word, module.base),
                0x38 if self.wide else 0x1C: (self._word, module.entry_point),
                0x40 if self.wide else 0x20: ("I", module.size),
                0x78 if self.wide else 0x40: ("I", module.checksum),
                0x80 if self.wide else 0x44: ("I", module.stamp),
            }
            for offset, (form, value) in places.items():
                if first + offset + struct.calcsize(form) <= size:
                    struct.pack_into("<" + form, entry, first + offset, value)
            self._data[start + place * size : start + (place + 1) * size] = entry
            pool += self._text(module.name)
        self.members.update(DriverCount=len(drivers), StringPoolOffset=names, StringPoolSize=len(pool))
        self._data += pool
        if broken:
            self.put("BrokenDriverOffset", self._text(broken))

    @staticmethod
    def _text(text: str) -> bytes:
        data = struct.pack("<I", len(text)) + text.encode("utf-16-le") + b"\0\0"
        return data + bytes(-len(data) % 8)

    def unloaded(self, drivers: Sequence[Driver]) -> None:
        """Adds the drivers that were unloaded."""
        data = struct.pack("<" + self._word, len(drivers))
        for driver in drivers:
            name = driver.name.encode("utf-16-le")[:24]
            form = "<HH4xQ24sQQ" if self.wide else "<HHI24sII"
            data += struct.pack(form, len(name), len(name), 0, name, driver.base, driver.base + driver.size)
        self.put("UnloadedDriversOffset", data)

    def block(self, address: int, data: bytes) -> None:
        """Adds a data block."""
        self._blocks.append((address, data))

    def file(self) -> bytes:
        """Returns the file."""
        if self._debugger and "DebuggerDataOffset" not in self.members:
            data = self._debugger_data()
            self.put("DebuggerDataOffset", data)
            self.put("DebuggerDataSize", value=len(data))
        if self._blocks and "DataBlocksOffset" not in self.members:
            places = [(address, self.put("", data), len(data)) for address, data in self._blocks]
            rows = [(address if self.wide else _extended(address), at, size) for address, at, size in places]
            self.put("DataBlocksOffset", b"".join(struct.pack("<QII", *row) for row in rows))
            self.put("DataBlocksCount", value=len(rows))
        self.put("ValidOffset", b"TRGD")
        self.members["SizeOfDump"] = len(self._data)
        return self._header() + self._triage() + bytes(self._data[self._base + len(self._triage()) :])

    def _debugger_data(self) -> bytes:
        data = bytearray(0x340)
        data[0x10:0x14] = b"KDBG"
        struct.pack_into("<I", data, 0x14, len(data))
        struct.pack_into("<Q", data, 0x18, self._kernel if self.wide else _extended(self._kernel))
        for name, place in _ADDRESSES.items():
            if name in self.variables:
                address = self._kernel + self.variables[name]
                struct.pack_into("<Q", data, place, address if self.wide else _extended(address))
        for name, (place, _) in _OFFSETS.items():
            struct.pack_into("<H", data, place, self.offsets[name])
        return bytes(data)

    def _triage(self) -> bytes:
        names = (
            "ServicePackBuild SizeOfDump ValidOffset ContextOffset ExceptionOffset MmOffset "
            "UnloadedDriversOffset PrcbOffset ProcessOffset ThreadOffset CallStackOffset SizeOfCallStack "
            "DriverListOffset DriverCount StringPoolOffset StringPoolSize BrokenDriverOffset TriageOptions"
        )
        known = self.members
        data = struct.pack("<18I", *(known.get(name, 0) for name in names.split()))
        rest = [
            known.get(name, 0)
            for name in (
                *("TopOfStack", "DataPageAddress", "DataPageOffset", "DataPageSize", "DebuggerDataOffset"),
                *("DebuggerDataSize", "DataBlocksOffset", "DataBlocksCount"),
            )
        ]
        tail = struct.pack(self.tail_form, *rest)
        if self._tail is not None:
            tail = tail[: self._tail] + (b"PAGE" * 20)[: len(tail) - self._tail]
        return data + tail

    def _header(self) -> bytes:
        header = bytearray(b"PAGE" * (self._base // 4))

        def put(offset: int, form: str, *values: int) -> None:
            struct.pack_into("<" + form, header, offset, *values)

        known = {name: self._kernel + rva for name, rva in self.variables.items()}
        lists = known["PsLoadedModuleList"], known["PsActiveProcessHead"]
        block = known["KdDebuggerDataBlock"]
        if self.wide:
            header[:8] = b"PAGEDU64"
            put(8, "IIQQQQIII", 15, self.build, 0x1AD000, 0, *lists, self.machine, 4, self._code)
            put(0x40, "4Q", *self._parameters)
            put(0x80, "Q", block)
            put(0xF98, "I", 4)
            put(0xFA0, "QQ", len(self._data), CRASHED)
            put(0x1030, "Q", STARTED)
            put(0x1040, "II", 1, 0x110)
        else:
            header[:8] = b"PAGEDUMP"
            put(8, "IIIIIIIII", 15, self.build, 0x39000, 0, *lists, self.machine, 1, self._code)
            put(0x2C, "4I", *self._parameters)
            put(0x60, "I", block)
            put(0xF88, "I", 4)
            put(0xF94, "II", 1, 0x110)
            put(0xFB8, "QQ", STARTED, CRASHED)
        for name, data in self._held.items():
            header[self.members[name] : self.members[name] + len(data)] = data
        return bytes(header)


def _extended(address: int) -> int:
    """The form in which 64-bit members have a 32-bit address."""
    return address | 0xFFFFFFFF00000000 if address >> 31 else address
