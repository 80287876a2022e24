# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The streams of a minidump that are one structure, or lists: a header or a count, and an array.

All counts and sizes are untrusted: the status of a list states how much is missing or left out.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterable, List, Optional, Tuple, TypeVar

from ...memory.decode.declared import ULONG, Declared, Record
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, StatusItem, naming, status
from ...memory.decode.statuscodes import StatusCode
from .dumpfile import Minidump

Element = TypeVar("Element")

_CHUNK = 0x10000
"""Bytes of an array that are read at once."""


class Count(NamedTuple):
    """The number of entries before an array."""

    NumberOfEntries: ULONG


class ListHeader(NamedTuple):
    """The beginning of the header of a stream that is a list, such as MINIDUMP_THREAD_INFO_LIST.
    `SizeOfHeader` and `SizeOfEntry` are sizes in bytes, greater in later versions."""

    SizeOfHeader: ULONG
    SizeOfEntry: ULONG
    NumberOfEntries: ULONG


COUNT = Declared(Count)
LIST_HEADER, HEADER_OF_16 = Declared(ListHeader), Declared(ListHeader, 16)
"""The header of a list; the same with a reserved number behind it."""


def read_structure(dump: Minidump, kind: int, form: Declared[Record]) -> Optional[Tuple[Record, Status]]:
    """Returns a stream that is one structure, and its status.

    None: the stream does not exist, or is shorter than the oldest version of the structure.
    """
    stream = dump.stream(kind)
    if stream is None or stream.Location.DataSize < form.least:
        return None
    data = dump.available(stream.Location.Rva, min(stream.Location.DataSize, form.size))
    return (form.decode(data, dump.string), stream.status) if len(data) >= form.least else None


def elements(
    dump: Minidump,
    rva: int,
    end: int,
    count: int,
    size: int,
    form: Declared[Any],
    limit: int,
    member: str,
    take: Callable[[Iterable[Tuple[Any, ...]]], Iterable[Element]],
) -> Tuple[List[Element], Status]:
    """Reads an array of structures. Returns those in the file, and the status.

    Args:
        end: end of the stream that has the array
        count, size: number and size of the structures, as the stream claims
        form: the structure; an older version of it has at least `least` bytes
        member: name of the member that has the count
        take: makes many structures of the values that `struct` unpacked of each
    """
    if count and size < form.least:
        return [], naming(StatusCode.HEADER, "size of an entry")
    fitting = max(end - rva, 0) // size if size else 0
    read = min(count, fitting, limit)
    present = min(read, max(dump.size - rva, 0) // size if size else 0)
    found: List[Element] = []
    step = max(_CHUNK // size, 1) if size else 1
    for first in range(0, present, step):
        part = min(step, present - first)
        data = dump.available(rva + first * size, part * size)
        whole = len(data) // size
        if size == form.size:
            rows = form.struct.iter_unpack(data[: whole * size])
        else:
            rows = (form.row(data[place * size : (place + 1) * size]) for place in range(whole))
        found.extend(take(rows))
        if whole < part:
            break
    missing = (read - len(found)) * size
    return found, status(
        naming(StatusCode.MORE_THAN_THE_STREAM, member) if count > fitting else None,
        naming(StatusCode.FEWER_THAN_THE_STREAM, member) if count < fitting else None,
        StatusCode.LIMIT if min(count, fitting) > limit else None,
        StatusItem(StatusCode.BEYOND_THE_FILE, missing) if missing else None,
    )


def read_list_header(
    dump: Minidump, kind: int, form: Declared[Record]
) -> Tuple[Optional[Record], int, int, Status]:
    """Reads the header at the start of a stream that is a list. Returns the header, None without a stream or
    if the file lacks a part of the header; start and end of the stream in the file; its status."""
    stream = dump.stream(kind)
    if stream is None:
        return None, 0, 0, NOTHING
    size, rva = stream.Location
    data = dump.read(rva, form.size) if size >= form.size else None
    if data is None:
        return None, rva, rva + size, status(stream.status, StatusCode.UNREADABLE)
    return form.decode(data, dump.string), rva, rva + size, stream.status


def read_counted_list(
    dump: Minidump, kind: int, form: Declared[Record], limit: int, member: str
) -> Tuple[List[Record], Status]:
    """Reads a stream that is a 32-bit count and an array, such as ThreadListStream.

    Some writers align the array to 8 bytes: if the stream is 4 bytes longer than count and array, the array
    begins after these 4 bytes.
    """
    header, rva, end, stream = read_list_header(dump, kind, COUNT)
    if header is None:
        return [], stream
    (count,) = header
    start = rva + (8 if end - rva == 8 + count * form.size and count else 4)
    take = partial(form.records, find=dump.string)
    found, faults = elements(dump, start, end, count, form.size, form, limit, member, take)
    return found, status(stream, faults)


def read_headed_list(
    dump: Minidump, kind: int, header: Declared[Any], form: Declared[Record], limit: int, member: str
) -> Tuple[List[Record], Status]:
    """Reads a stream whose header begins as ListHeader does."""
    members, rva, end, stream = read_list_header(dump, kind, header)
    if members is None:
        return [], stream
    header_size, entry_size, count = members[:3]
    if header_size < header.size:
        return [], status(stream, naming(StatusCode.HEADER, "SizeOfHeader"))
    take = partial(form.records, find=dump.string)
    found, faults = elements(dump, rva + header_size, end, count, entry_size, form, limit, member, take)
    return found, status(stream, faults)
