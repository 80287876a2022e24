# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forge of small kernel dumps writes what Windows wrote: its bytes are those of real files."""

from __future__ import annotations

import json
import lzma
import struct
import tarfile
from typing import Any, Dict, List, Tuple

import pytest

from tests.conftest import SHARED
from tests.forge.smalldump import Driver, SmallDump

pytestmark = pytest.mark.shared

FILES = ("triage_x64", "triage_arm64")
NAMES = (
    *("ServicePackBuild", "SizeOfDump", "ValidOffset", "ContextOffset", "ExceptionOffset", "MmOffset"),
    *("UnloadedDriversOffset", "PrcbOffset", "ProcessOffset", "ThreadOffset", "CallStackOffset"),
    *("SizeOfCallStack", "DriverListOffset", "DriverCount", "StringPoolOffset", "StringPoolSize"),
    *("BrokenDriverOffset", "TriageOptions"),
)
CONTEXT = {"triage_x64": 0x4D0, "triage_arm64": 0x390}


class RealFile:
    """A real dump, read with offsets of our own and not with the decoders."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data = lzma.decompress((SHARED / "real_trapframes" / f"{name}.dmp.xz").read_bytes())
        self.members: Dict[str, int] = dict(zip(NAMES, struct.unpack_from("<18I", self.data, 0x2000)))
        self.tail = struct.unpack_from("<Q16xQIIIIII", self.data, 0x2048)

    def drivers(self) -> List[Driver]:
        first, count = self.members["DriverListOffset"], self.members["DriverCount"]
        return [self._driver(first + 0x90 * number) for number in range(count)]

    def _driver(self, at: int) -> Driver:
        place, base, entry_point, size, checksum, stamp = struct.unpack_from(
            "<I4x48xQQI4x48xI4xI4x", self.data, at
        )
        length = struct.unpack_from("<I", self.data, place)[0]
        name = self.data[place + 4 : place + 4 + 2 * length].decode("utf-16-le")
        return Driver(name, base, size, entry_point, stamp, checksum)

    def unloaded(self) -> Tuple[int, List[Driver]]:
        at = self.members["UnloadedDriversOffset"]
        (count,) = struct.unpack_from("<Q", self.data, at)
        found = []
        for number in range(count):
            length, _, name, start, end = struct.unpack_from("<HH12x24sQQ", self.data, at + 8 + 56 * number)
            found.append(Driver(name[:length].decode("utf-16-le"), start, end - start))
        return at, found


@pytest.fixture(params=FILES)
def real(request: pytest.FixtureRequest) -> RealFile:
    return RealFile(request.param)


def forged(real: RealFile) -> SmallDump:
    """A dump of the same crash, made by the forge."""
    data = real.data
    (build,) = struct.unpack_from("<I", data, 0xC)
    (machine,) = struct.unpack_from("<I", data, 0x30)
    dump = SmallDump(build=build, machine=machine)
    lists = struct.unpack_from("<QQ", data, 0x20)
    drivers = real.drivers()
    base = drivers[0].base
    dump.variables.update(
        PsLoadedModuleList=lists[0] - base,
        PsActiveProcessHead=lists[1] - base,
        KdDebuggerDataBlock=struct.unpack_from("<Q", data, 0x80)[0] - base,
    )
    dump.drivers(drivers)
    at, size = real.members["CallStackOffset"], real.members["SizeOfCallStack"]
    dump.stack(real.tail[0], data[at : at + size])
    code, parameters = struct.unpack_from("<I", data, 0x38)[0], struct.unpack_from("<4Q", data, 0x40)
    dump.crash(code, parameters, data[0x348 : 0x348 + CONTEXT[real.name]], data[0xF00:0xF98])
    dump.unloaded(real.unloaded()[1])
    return dump


def test_the_header(real: RealFile) -> None:
    """All members that the forge writes, but what it draws itself: processors, times, sizes, PFN database."""
    made, data = forged(real).file(), real.data
    for first, end in ((0, 0x10), (0x20, 0x34), (0x38, 0x60), (0x80, 0x88), (0x348, 0x6D8), (0xF00, 0xF9C)):
        assert made[first:end] == data[first:end], hex(first)
    if real.name == "triage_x64":
        assert made[0x348:0x818] == data[0x348:0x818]


def test_the_parts(real: RealFile) -> None:
    dump = forged(real)
    made, members = dump.file(), dump.members
    assert (members["ContextOffset"], members["ExceptionOffset"]) == (0x348, 0xF00)
    assert {name: members[name] for name in ("ContextOffset", "ExceptionOffset", "DriverCount")} == {
        name: real.members[name] for name in ("ContextOffset", "ExceptionOffset", "DriverCount")
    }
    # TRIAGE_DUMP ends at 2080h in both.
    assert (
        min(value for name, value in real.members.items() if name.endswith("Offset") and value > 0xF00)
        == 0x2080
    )
    assert made[0x2048:0x2050] == real.data[0x2048:0x2050]
    assert made[members["ValidOffset"] : members["SizeOfDump"]] == b"TRGD"
    assert real.members["SizeOfDump"] - real.members["ValidOffset"] == len(b"TRGD")


def test_the_drivers(real: RealFile) -> None:
    """Every byte of each entry but the offset of the name, and of the names."""
    dump = forged(real)
    made, members = dump.file(), dump.members
    first, at = members["DriverListOffset"], real.members["DriverListOffset"]
    for number in range(members["DriverCount"]):
        mine, theirs = made[first + 0x90 * number :][:0x90], real.data[at + 0x90 * number :][:0x90]
        assert mine[4:] == theirs[4:]
    pool, size = members["StringPoolOffset"], real.members["StringPoolSize"]
    at = real.members["StringPoolOffset"]
    assert made[pool : pool + size] == real.data[at : at + size]
    assert members["StringPoolSize"] == size


def test_the_unloaded_drivers(real: RealFile) -> None:
    dump = forged(real)
    at, drivers = real.unloaded()
    size = 8 + 56 * len(drivers)
    assert dump.file()[dump.members["UnloadedDriversOffset"] :][:size] == real.data[at : at + size]


TABLE = "isf/symbols/windows/ntkrnlmp.pdb/5278AFF86C341677D7D7835C85B7B844-1.json.xz"
"""The public symbols of the kernel of triage_x64."""


@pytest.fixture(scope="module")
def symbols() -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(lzma.decompress((SHARED / TABLE).read_bytes()))
    return found


def offset(symbols: Dict[str, Any], kind: str, *members: str) -> int:
    """The offset of a member of a member of a structure, by public symbols."""
    total = 0
    for member in members:
        field = symbols["user_types"][kind]["fields"][member]
        total, kind = total + field["offset"], field["type"].get("name", "")
    return total


def by_symbols(real: RealFile, symbols: Dict[str, Any]) -> SmallDump:
    """A dump of the same kernel, whose places come from its symbols and not from the file."""
    dump, types = forged(real), symbols["user_types"]
    for name in ("KiProcessorBlock", "MmUnloadedDrivers", "PsLoadedModuleList", "PsActiveProcessHead"):
        dump.variables[name] = symbols["symbols"][name]["address"]
    # It is the address of NtBuildLabEx: measured.
    dump.variables["NtBuildLab"] = symbols["symbols"]["NtBuildLabEx"]["address"]
    dump.offsets.update(
        OffsetKThreadTeb=offset(symbols, "_KTHREAD", "Teb"),
        OffsetKThreadKernelStack=offset(symbols, "_KTHREAD", "KernelStack"),
        OffsetKThreadInitialStack=offset(symbols, "_KTHREAD", "InitialStack"),
        OffsetKThreadApcProcess=offset(symbols, "_KTHREAD", "ApcState", "Process"),
        OffsetKThreadState=offset(symbols, "_KTHREAD", "State"),
        SizeEProcess=types["_EPROCESS"]["size"],
        OffsetEprocessPeb=offset(symbols, "_EPROCESS", "Peb"),
        SizePrcb=types["_KPRCB"]["size"],
        OffsetPrcbCurrentThread=offset(symbols, "_KPRCB", "CurrentThread"),
        OffsetPrcbProcStateContext=offset(symbols, "_KPRCB", "ProcessorState", "ContextFrame"),
        OffsetPrcbNumber=offset(symbols, "_KPRCB", "Number"),
        OffsetPrcbContext=offset(symbols, "_KPRCB", "Context"),
        SizeEThread=types["_ETHREAD"]["size"],
    )
    return dump


def test_the_data_for_debuggers(symbols: Dict[str, Any]) -> None:
    """KDDEBUGGER_DATA64: every member that the forge writes, but its size, stands where Windows has it."""
    real = RealFile("triage_x64")
    dump = by_symbols(real, symbols)
    data = dump.file()
    mine = data[dump.members["DebuggerDataOffset"] :][: dump.members["DebuggerDataSize"]]
    theirs = real.data[real.tail[4] :][: real.tail[5]]
    written = [place for place in range(len(mine)) if mine[place] and place not in range(0x14, 0x18)]
    assert {place: mine[place] for place in written} == {place: theirs[place] for place in written}
    # The tag, KernBase, five addresses and thirteen offsets.
    assert len(written) > 4 + 6 * 5 + 13


def test_the_data_blocks() -> None:
    """The rows are those that another reader found; the forge writes them in the same form."""
    real = RealFile("triage_x64")
    with tarfile.open(SHARED / "real_trapframes" / "triage_19041.tar.xz") as archive:
        member = archive.extractfile("blocks.json")
        assert member is not None
        known = {(int(address, 16), size) for address, _, size in json.load(member)}
    at, count = real.tail[6], real.tail[7]
    rows = list(struct.iter_unpack("<QII", real.data[at : at + 16 * count]))
    top, debugger = real.tail[0], struct.unpack_from("<Q", real.data, 0x80)[0]
    others = {(top, real.members["SizeOfCallStack"]), (debugger, real.tail[5])}
    assert {(address, size) for address, _, size in rows} | others == known
    dump = forged(real)
    for address, place, size in rows:
        dump.block(address, real.data[place : place + size])
    made = dump.file()
    first, number = dump.members["DataBlocksOffset"], dump.members["DataBlocksCount"]
    assert struct.unpack_from("<Q16xQIIIIII", made, 0x2048)[6:] == (first, number)
    mine = list(struct.iter_unpack("<QII", made[first : first + 16 * number]))
    assert [(address, size) for address, _, size in mine] == [(address, size) for address, _, size in rows]
    for (_, place, size), (_, theirs, _) in zip(mine, rows):
        assert made[place : place + size] == real.data[theirs : theirs + size]


def test_process_and_thread(symbols: Dict[str, Any]) -> None:
    """KPRCB, ETHREAD and EPROCESS: what the forge writes there, Windows wrote there."""
    real = RealFile("triage_x64")
    dump = by_symbols(real, symbols)
    parts = {name: real.members[f"{name}Offset"] for name in ("Prcb", "Process", "Thread")}
    starts = sorted(value for name, value in real.members.items() if name.endswith("Offset"))
    sizes = {name: next(start for start in starts if start > place) - place for name, place in parts.items()}
    assert sizes == {"Prcb": 0xAF00, "Process": 0xA40, "Thread": 0x898}

    def value(part: str, place: int, form: str) -> int:
        return int(struct.unpack_from("<" + form, real.data, parts[part] + place)[0])

    ethread, eprocess, number, teb = 0xFFFFC08BDE9E1640, 0xFFFFC08BDCE94180, value("Prcb", 0x24, "B"), 0
    initial = value("Thread", offset(symbols, "_KTHREAD", "InitialStack"), "Q")
    kernel = value("Thread", offset(symbols, "_KTHREAD", "KernelStack"), "Q")
    assert real.tail[0] <= kernel < initial <= real.tail[0] + real.members["SizeOfCallStack"]
    dump.thread(ethread, eprocess, initial, kernel, number, teb)
    places = (
        offset(symbols, "_EPROCESS", "UniqueProcessId"),
        offset(symbols, "_EPROCESS", "ImageFileName"),
        offset(symbols, "_ETHREAD", "Cid"),
    )
    dump.identify(places, 4, b"System", 264)
    made = dump.file()
    for name, size in sizes.items():
        mine = made[dump.members[f"{name}Offset"] :][:size]
        theirs = real.data[parts[name] :][:size]
        written = [place for place in range(size) if mine[place]]
        assert {place: mine[place] for place in written} == {place: theirs[place] for place in written}
        assert len(written) > 5
