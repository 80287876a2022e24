# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The threads of a minidump: registers, stacks, times, names; and the exception of one of them.

A context is a range of the file; `context` reads it. A 64-bit process has the CONTEXT of AMD64, a 32-bit
process the CONTEXT of I386; the 32-bit registers of a WoW64 thread lie in its memory.

Source: "minidumpapiset.h", the structures named below.
"""

from __future__ import annotations

from typing import Annotated, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ...memory.decode.declared import ADDRESS, STRING64, ULONG, ULONGLONG, Declared
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, StatusItem, contradicted, naming, status
from ...memory.decode.statuscodes import StatusCode
from ...traps.decode.record import MAX_PARAMETERS
from .contexts import DECISIVE_BYTES, sizes_agree
from .dumpfile import Location, Minidump, overlapping
from .lists import LIST_HEADER, read_counted_list, read_headed_list, read_structure

EXCEPTION = 6
_THREAD_LIST, _THREAD_INFO_LIST, _THREAD_NAMES = 3, 17, 24

MAX_THREADS_OF_DUMP = 0x20000
"""Greatest number of threads that are read."""

MAX_CONTEXT = 0x10000
"""Greatest number of bytes of a context that are read: the longest, with all of XSTATE, has less than
0x4000."""

EXITED_THREAD = 4
"""MINIDUMP_THREAD_INFO_EXITED_THREAD."""

INVALID_CONTEXT = 0x10
"""MINIDUMP_THREAD_INFO_INVALID_CONTEXT."""

_ERROR_THREAD, _WRITING_THREAD = 1, 2
_MAY_BE_LEFT_OUT = _ERROR_THREAD | _WRITING_THREAD | EXITED_THREAD
"""Threads of ThreadInfoListStream that need not be in ThreadListStream: MINIDUMP_THREAD_INFO_ERROR_THREAD,
_WRITING_THREAD and _EXITED_THREAD."""


class MinidumpThread(NamedTuple):
    """MINIDUMP_THREAD. `StartOfMemoryRange` is the lowest address of the stack in the dump, which is the
    lowest in use."""

    ThreadId: ULONG
    SuspendCount: ULONG
    PriorityClass: ULONG
    Priority: ULONG
    Teb: ADDRESS
    StartOfMemoryRange: ADDRESS
    Stack: Location
    ThreadContext: Location


class ThreadInfo(NamedTuple):
    """MINIDUMP_THREAD_INFO. Times are FILETIMEs (creation, exit) or units of 100 ns."""

    ThreadId: ULONG
    DumpFlags: ULONG
    DumpError: ULONG
    ExitStatus: ULONG
    CreateTime: ULONGLONG
    ExitTime: ULONGLONG
    KernelTime: ULONGLONG
    UserTime: ULONGLONG
    StartAddress: ADDRESS
    Affinity: ULONGLONG


class ThreadName(NamedTuple):
    """MINIDUMP_THREAD_NAME; None if the name cannot be read."""

    ThreadId: ULONG
    ThreadName: STRING64


class ExceptionStream(NamedTuple):
    """MINIDUMP_EXCEPTION_STREAM with its MINIDUMP_EXCEPTION.

    Attributes:
        ExceptionInformation: NumberParameters parameters, at most 15
        ThreadContext: file range of the CONTEXT at the exception, (0, 0) if the stream has none
    """

    ThreadId: ULONG
    ExceptionCode: Annotated[int, "ULONG @0x8"]
    ExceptionFlags: ULONG
    ExceptionRecord: ULONGLONG
    ExceptionAddress: ULONGLONG
    NumberParameters: ULONG
    ExceptionInformation: Annotated[Tuple[int, ...], "ULONGLONG[15] @0x28"]
    ThreadContext: Location
    status: Status = NOTHING


THREAD, THREAD_INFO, THREAD_NAME = Declared(MinidumpThread), Declared(ThreadInfo), Declared(ThreadName)
_EXCEPTION_STREAM = Declared(ExceptionStream, least=160)
"""Some writers leave ThreadContext out: the stream then ends after 160 bytes."""
_NOWHERE = Location(0, 0)


def listed_threads(dump: Minidump) -> Tuple[List[MinidumpThread], Status]:
    """Returns the threads of ThreadListStream, and the faults that this stream alone shows."""
    return read_counted_list(dump, _THREAD_LIST, THREAD, MAX_THREADS_OF_DUMP, "NumberOfThreads")


def has_thread_list(dump: Minidump) -> bool:
    return dump.stream(_THREAD_LIST) is not None


def thread_list(dump: Minidump) -> Tuple[List[MinidumpThread], Status]:
    """Returns the threads of ThreadListStream, and its faults, also those that other streams show."""
    listed, faults = listed_threads(dump)
    wrong = tuple(_contradicted(dump, listed)) if has_thread_list(dump) else ()
    return listed, status(faults, contradicted(*wrong))


def doubted_members(listed: Sequence[MinidumpThread]) -> Dict[int, Tuple[str, ...]]:
    """Returns the members that a thread shares with another, by the thread's place in the list.

    No two threads have the same ID, TEB, stack or registers: which of the two has them is unknown.
    """
    values = {
        "ThreadId": [(thread.ThreadId, 1) for thread in listed],
        "Teb": [(thread.Teb, min(thread.Teb, 1)) for thread in listed],
        "Stack": [(thread.StartOfMemoryRange, thread.Stack.DataSize) for thread in listed],
        "ThreadContext": [(thread.ThreadContext.Rva, thread.ThreadContext.DataSize) for thread in listed],
    }
    found: Dict[int, Tuple[str, ...]] = {}
    for member, sized in values.items():
        for place in _sharing(sized):
            found[place] = (*found.get(place, ()), member)
    return found


def _sharing(sized: Sequence[Tuple[int, int]]) -> Set[int]:
    """Returns the places of ranges that overlap another; a range is (start, size), and size 0 is none."""
    found: Set[int] = set()
    furthest, reached = 0, 0
    for start, size, place in sorted((start, size, place) for place, (start, size) in enumerate(sized)):
        if size and start < reached:
            found |= {furthest, place}
        if size and start + size > reached:
            furthest, reached = place, start + size
    return found


def _contradicted(dump: Minidump, listed: Sequence[MinidumpThread]) -> Iterator[str]:
    """Yields the members in which threads contradict each other, or other streams that name them."""
    ids = {thread.ThreadId for thread in listed}
    exception = exception_stream(dump)
    infos = [info for info in thread_info_list(dump)[0] if not info.DumpFlags & _MAY_BE_LEFT_OUT]
    named = [info.ThreadId for info in infos] + [name.ThreadId for name in thread_names(dump)[0]]
    named += [] if exception is None else [exception.ThreadId]
    doubted = set().union(*doubted_members(listed).values())
    if "ThreadId" in doubted or not ids.issuperset(named):
        yield "ThreadId"
    if exception is None and dump.stream(EXCEPTION) is not None:
        yield "ExceptionStream"
    yield from (member for member in ("Teb", "Stack") if member in doubted)
    # A writer may let the exception share the registers of its thread.
    places = [thread.ThreadContext for thread in listed if thread.ThreadContext.DataSize]
    places += [] if exception is None else [exception.ThreadContext]
    contexts = {(place.Rva, place.Rva + place.DataSize) for place in places if place.DataSize}
    sized = ((size, dump.available(rva, min(size, DECISIVE_BYTES))) for size, rva in set(places) if size)
    if "ThreadContext" in doubted or overlapping(sorted(contexts)) or not sizes_agree(sized):
        yield "ThreadContext"


def thread_info_list(dump: Minidump) -> Tuple[List[ThreadInfo], Status]:
    """Returns the entries of ThreadInfoListStream, and the status of the stream."""
    return read_headed_list(
        dump, _THREAD_INFO_LIST, LIST_HEADER, THREAD_INFO, MAX_THREADS_OF_DUMP, "NumberOfEntries"
    )


def thread_names(dump: Minidump) -> Tuple[List[ThreadName], Status]:
    """Returns the names of ThreadNamesStream, and the status of the stream."""
    names, faults = read_counted_list(
        dump, _THREAD_NAMES, THREAD_NAME, MAX_THREADS_OF_DUMP, "NumberOfThreadNames"
    )
    return names, status(faults, dump.text_status)


def exception_stream(dump: Minidump) -> Optional[ExceptionStream]:
    """Returns ExceptionStream, None if there is none or it cannot be read."""
    stream, read = dump.stream(EXCEPTION), read_structure(dump, EXCEPTION, _EXCEPTION_STREAM)
    if stream is None or read is None:
        return None
    found, faults = read
    size, rva = stream.Location
    place = found.ThreadContext if size - dump.beyond(rva, size) >= _EXCEPTION_STREAM.size else _NOWHERE
    count = found.NumberParameters
    too_many = naming(StatusCode.HEADER, "NumberParameters") if count > MAX_PARAMETERS else None
    lost = None if place.DataSize else StatusCode.NO_SAVED_REGISTERS
    return found._replace(
        ExceptionInformation=found.ExceptionInformation[:count],
        ThreadContext=place,
        status=status(faults, too_many, lost),
    )


def context(dump: Minidump, location: Location) -> Tuple[bytes, Status]:
    """Returns the bytes of a CONTEXT, as many as the file has, and their status."""
    if not location.DataSize:
        return b"", status(StatusCode.NO_SAVED_REGISTERS)
    beyond = dump.beyond(*reversed(location))
    data = dump.part(location.Rva, min(location.DataSize, MAX_CONTEXT))
    return data or b"", status(
        StatusItem(StatusCode.BEYOND_THE_FILE, beyond) if beyond else None,
        StatusCode.LIMIT if data is None else None,
    )
