# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The function tables that a process registered at run time, in a minidump.

Source: "minidumpapiset.h" (MINIDUMP_FUNCTION_TABLE_STREAM, MINIDUMP_FUNCTION_TABLE_DESCRIPTOR) and the order
described on its page: after the header follow, for each table, its descriptor, the native descriptor, the
entries and the alignment.
"""

from __future__ import annotations

from typing import Annotated, List, Tuple

from ...memory.decode.declared import ULONG, ULONGLONG, Declared
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, StatusItem, naming, status
from ...memory.decode.statuscodes import StatusCode
from .dumpfile import Location, Minidump, overlapping
from .lists import read_list_header
from .system import system_info

_FUNCTION_TABLE = 13

MAX_TABLES = 0x10000
"""Greatest number of function tables that are read."""

MAX_ENTRIES = 1 << 21
"""Greatest number of entries in all tables: a runtime makes some for each method, and large programs have
100,000 methods."""

_ARM64 = 12
"""PROCESSOR_ARCHITECTURE_ARM64."""
_SIZE, _ARM64_SIZE = 12, 8
"""Size of the RUNTIME_FUNCTION of x64, and of ARM64, in bytes ("winnt.h")."""

SPARE = 8
"""Greatest number of spare bytes for each table at the end of the stream: dbgcore reserves room for an
alignment that it then does not need (measured: 4 to 8 bytes a table)."""


class FunctionTableStream(NamedTuple):
    """MINIDUMP_FUNCTION_TABLE_STREAM."""

    SizeOfHeader: ULONG
    SizeOfDescriptor: ULONG
    SizeOfNativeDescriptor: ULONG
    SizeOfFunctionEntry: ULONG
    NumberOfDescriptors: ULONG
    SizeOfAlignPad: ULONG


class FunctionTableDescriptor(NamedTuple):
    """MINIDUMP_FUNCTION_TABLE_DESCRIPTOR.

    Attributes:
        SizeOfAlignPad: bytes between the entries and the next table
        NativeDescriptor, Entries: file ranges of the table's own descriptor and of its entries
    """

    MinimumAddress: ULONGLONG
    MaximumAddress: ULONGLONG
    BaseAddress: ULONGLONG
    EntryCount: ULONG
    SizeOfAlignPad: ULONG
    NativeDescriptor: Annotated[Location, "@-"] = Location(0, 0)
    Entries: Annotated[Location, "@-"] = Location(0, 0)


_HEADER, _DESCRIPTOR = Declared(FunctionTableStream), Declared(FunctionTableDescriptor)


def _entry_size(dump: Minidump) -> int:
    system = system_info(dump)
    return _ARM64_SIZE if system is not None and system.ProcessorArchitecture == _ARM64 else _SIZE


def function_tables(dump: Minidump) -> Tuple[List[FunctionTableDescriptor], Status]:
    """Returns the tables of FunctionTableStream, and the status of the stream.

    If tables share addresses, the first counts. A table is left out if its entries do not have the size of
    the machine's, or if it ends before it begins.
    """
    known, rva, end, stream = read_list_header(dump, _FUNCTION_TABLE, _HEADER)
    if known is None:
        return [], stream
    header, descriptor, native, entry, count, pad = known
    if header < _HEADER.size or descriptor < _DESCRIPTOR.size:
        return [], status(stream, naming(StatusCode.HEADER, "SizeOfHeader", "SizeOfDescriptor"))
    found: List[FunctionTableDescriptor] = []
    total = 0
    position = rva + header + pad
    while len(found) < min(count, MAX_TABLES):
        row = dump.read(position, _DESCRIPTOR.size) if position + descriptor + native <= end else None
        if row is None:
            break
        table = _DESCRIPTOR.decode(row)
        at = position + descriptor
        length = table.EntryCount * entry
        total += table.EntryCount
        if at + native + length > end or total > MAX_ENTRIES:
            break
        places = Location(native, at), Location(length, at + native)
        found.append(table._replace(NativeDescriptor=places[0], Entries=places[1]))
        position = at + native + length + table.SizeOfAlignPad
    rest, limited = count > len(found), len(found) == MAX_TABLES or total > MAX_ENTRIES
    spare = end - position - SPARE * count
    fewer = count == len(found) and (
        spare >= descriptor + native or _is_table(dump, position, end - descriptor - native, entry)
    )
    empty = any(table.MinimumAddress >= table.MaximumAddress for table in found)
    overlaps = len(overlapping([(table.MinimumAddress, table.MaximumAddress) for table in found]))
    return found, status(
        stream,
        naming(StatusCode.HEADER, "SizeOfFunctionEntry") if found and entry != _entry_size(dump) else None,
        naming(StatusCode.HEADER, "MaximumAddress") if empty else None,
        StatusItem(StatusCode.RANGES_OVERLAP, overlaps) if overlaps else None,
        StatusCode.LIMIT if rest and limited else None,
        naming(StatusCode.MORE_THAN_THE_STREAM, "NumberOfDescriptors") if rest and not limited else None,
        naming(StatusCode.FEWER_THAN_THE_STREAM, "NumberOfDescriptors") if fewer else None,
    )


def _is_table(dump: Minidump, rva: int, room: int, entry: int) -> bool:
    """Returns whether a descriptor with entries lies at an offset: a further table, not spare bytes.

    Args:
        room: the greatest offset of a descriptor whose table has no entries and fits
        entry: size of an entry in bytes
    """
    row = dump.read(rva, _DESCRIPTOR.size) if rva <= room else None
    if row is None:
        return False
    table = _DESCRIPTOR.decode(row)
    count = table.EntryCount
    return table.MinimumAddress < table.MaximumAddress and count > 0 and rva + count * entry <= room
