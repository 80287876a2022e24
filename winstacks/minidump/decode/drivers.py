# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The drivers of a small kernel dump: loaded and unloaded ones.

An entry of the list has the offset of its name (a count of characters, then UTF-16) and the loader's entry.
All entries have one size.

Source of the list: measured (10.0.19041 x64, 10.0.22000 ARM64). The loader's entry in it is the debugger's
KLDR_DATA_TABLE_ENTRY64 ("ntiodump.h", "wdbgexts.h"), the same for all versions: TimeDateStamp lies at 80h of
it, and an ULONG of padding follows. The kernel's own entry has it elsewhere. x86 is inferred from
KLDR_DATA_TABLE_ENTRY32. The layout of
unloaded drivers in the dump is inferred from MmUnloadedDrivers: a count, and for each a UNICODE_STRING,
twelve characters of the name, and the two addresses. They are read only if count, names and addresses agree.
"""

from __future__ import annotations

from typing import Annotated, Iterator, List, Optional, Tuple

from ...memory.decode.declared import USHORT, Declared
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, StatusItem, contradicted, naming, status
from ...memory.decode.statuscodes import StatusCode
from .kernelheader import KERNEL_START
from .triage import TriageDump

MAX_DRIVERS = 0x2000
"""Greatest number of drivers that are read. A machine has some 200."""
MAX_CHARACTERS = 0x400
MAX_UNLOADED = 0x100
"""Greatest number of unloaded drivers that are read. Windows remembers 50."""
_MAX_ENTRY = 0x400
_MAX_DRIVER = 1 << 28
_PAGE = 0x1000


class Driver(NamedTuple):
    """A loaded driver, by its KLDR_DATA_TABLE_ENTRY.

    Attributes:
        name: path or file name as in the dump; None if it cannot be read
        EntryPoint: address of the entry point, 0 without one
        CheckSum, TimeDateStamp: of the headers; None if the entry lacks them
    """

    name: Optional[str]
    DllBase: Annotated[int, "ULONG_PTR @0x18/0x30"]
    EntryPoint: Annotated[int, "ULONG_PTR"]
    SizeOfImage: Annotated[int, "ULONG @0x20/0x40"]
    CheckSum: Annotated[Optional[int], "ULONG @0x40/0x78"]
    TimeDateStamp: Annotated[Optional[int], "ULONG_PTR @0x44/0x80"]


class _UnloadedEntry(NamedTuple):
    """An entry of the list of unloaded drivers: a UNICODE_STRING with its first characters, and a
    range of addresses."""

    Length: USHORT
    MaximumLength: USHORT
    Buffer: Annotated[int, "ULONG_PTR @0x4/0x8"]
    Characters: Annotated[str, "WCHAR[12]"]
    StartAddress: Annotated[int, "ULONG_PTR"]
    EndAddress: Annotated[int, "ULONG_PTR"]


_ENTRIES = {wide: Declared(Driver, wide=wide) for wide in (True, False)}
_UNLOADED = {wide: Declared(_UnloadedEntry, wide=wide) for wide in (True, False)}


class UnloadedDriver(NamedTuple):
    """An unloaded driver, and its former address range; `end` is exclusive."""

    name: str
    start: int
    end: int


def list_drivers(dump: TriageDump) -> Tuple[List[Driver], Status]:
    """Returns the drivers in the order of the dump, and the status of the list."""
    count = dump.member("DriverCount")
    part = dump.part("DriverList")
    if not part.offset or not count:
        lost = contradicted("DriverCount") if count else None
        return [], status(part.status, lost)
    wide = dump.header.wide
    read = min(count, MAX_DRIVERS)
    best: Tuple[int, List[Driver], int] = (0, [], 0)
    more = False
    for first, size in _layouts(dump, part.offset, count):
        data = dump.available(part.offset, read * size)
        entries = [data[place * size :][:size] for place in range(len(data) // size)]
        found = [_driver(dump, entry, first) for entry in entries]
        plausible = _plausible(found, wide)
        more = more or (plausible == count and _another(dump, part.offset + count * size, first, size))
        if plausible > best[0]:
            best = plausible, found, size
    _, found, size = best
    if not found:
        return [], status(part.status, naming(StatusCode.HEADER, "DriverCount", "StringPoolOffset"))
    missing = (read - len(found)) * size
    return found, status(
        StatusCode.LIMIT if count > read else None,
        contradicted("DriverCount") if more else None,
        StatusItem(StatusCode.BEYOND_THE_FILE, missing) if missing else None,
        StatusCode.FILE_NAME_UNREADABLE if any(driver.name is None for driver in found) else None,
    )


def _layouts(dump: TriageDump, start: int, count: int) -> List[Tuple[int, int]]:
    """Returns what the entries may be like: offset of the loader's entry, and size, the most likely first.

    All real files have entries of 90h bytes. Larger ones are taken if they end where the names begin; padding
    before the names is smaller than a pointer. On x86 it is inferred that the loader's entry follows the
    offset of the name immediately.
    """
    wide = dump.header.wide
    firsts = (8,) if wide else (4, 8)
    room = dump.part("StringPool").offset - start
    size = (room // count) & -(8 if wide else 4) if room > 0 else 0
    # Every entry has the members up to this one.
    least = _ENTRIES[wide].ends["SizeOfImage"]
    return [
        (first, entry)
        for first in firsts
        for entry in dict.fromkeys((size, first + (0x88 if wide else 0x48)))
        if first + least <= entry <= _MAX_ENTRY and (room <= 0 or count * entry <= room)
    ]


def _plausible(drivers: List[Driver], wide: bool) -> int:
    """Returns the number of drivers with a plausible address and size."""
    return sum(
        driver.DllBase >= KERNEL_START[wide]
        and not driver.DllBase % _PAGE
        and 0 < driver.SizeOfImage <= _MAX_DRIVER
        for driver in drivers
    )


def _another(dump: TriageDump, start: int, first: int, size: int) -> bool:
    """Returns whether the entry of another driver lies between the counted entries and the names."""
    if start + size > dump.part("StringPool").offset:
        return False
    return _plausible([_driver(dump, dump.available(start, size), first)], dump.header.wide) > 0


def _driver(dump: TriageDump, entry: bytes, first: int) -> Driver:
    form = _ENTRIES[dump.header.wide]
    driver, room = form.decode(entry[first:]), len(entry) - first
    stamp = driver.TimeDateStamp if form.ends["TimeDateStamp"] <= room else None
    return driver._replace(
        name=read_string(dump, int.from_bytes(entry[:4], "little")),
        DllBase=dump.canonical(driver.DllBase),
        EntryPoint=dump.canonical(driver.EntryPoint),
        CheckSum=driver.CheckSum if form.ends["CheckSum"] <= room else None,
        # In the kernel's own entry a pointer would be there: its upper half is not 0.
        TimeDateStamp=stamp if stamp is None or stamp < 1 << 32 else None,
    )


def read_string(dump: TriageDump, offset: int) -> Optional[str]:
    """Returns a text of the dump (a count of characters, then UTF-16), None if it is incomplete."""
    head = dump.available(offset, 4) if offset >= dump.header.size else b""
    count = int.from_bytes(head, "little") if len(head) == 4 else 0
    if not 0 < count <= MAX_CHARACTERS:
        return None
    data = dump.available(offset + 4, 2 * count)
    return data.decode("utf-16-le", "replace").rstrip("\0") if len(data) == 2 * count else None


def broken_driver(dump: TriageDump) -> Optional[str]:
    """Returns the driver that the kernel itself blames, None if it names none."""
    offset = dump.member("BrokenDriverOffset")
    return read_string(dump, offset) if offset else None


def list_unloaded(dump: TriageDump) -> Tuple[List[UnloadedDriver], Status]:
    """Returns the unloaded drivers in the order of the dump, and the status of their list."""
    part = dump.part("UnloadedDrivers")
    if not part.offset:
        return [], part.status
    wide = dump.header.wide
    size = _UNLOADED[wide].size
    best: List[Optional[UnloadedDriver]] = [None]
    for head in (8, 4) if wide else (4,):
        count = int.from_bytes(part.data[:head], "little")
        if not count and len(part.data) >= head:
            return [], NOTHING
        if count <= MAX_UNLOADED and head + count * size <= len(part.data):
            found = list(_unloaded(dump, part.data[head:], count))
            if len(found) - found.count(None) > len(best) - best.count(None):
                best = found
    usable = [driver for driver in best if driver is not None]
    wrong = naming(StatusCode.HEADER, "UnloadedDriversOffset") if None in best else None
    return usable, status(wrong)


def _unloaded(dump: TriageDump, data: bytes, count: int) -> Iterator[Optional[UnloadedDriver]]:
    """Yields the entries of a list; None for an entry that contradicts itself."""
    form = _UNLOADED[dump.header.wide]
    for place in range(count):
        entry = form.decode(data[place * form.size :])
        length, name = entry.Length, entry.Characters[: entry.Length // 2]
        start, end = dump.canonical(entry.StartAddress), dump.canonical(entry.EndAddress)
        low = KERNEL_START[dump.header.wide]
        there = low <= start < end <= start + _MAX_DRIVER and not start % _PAGE
        yield UnloadedDriver(name, start, end) if there and not length % 2 else None
