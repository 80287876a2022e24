# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The entries of `minidump.info` of a process: each stream with its members, the exception with its stack.

Names come from Microsoft's declarations ("minidumpapiset.h"). A list has one row, for its count, and names of
threads and comments have rows of their own; options add the entries of other lists (`dumplists`). The row of
a stream that is not decoded names who writes it.
"""

from __future__ import annotations

from typing import Any, Callable, Container, Dict, Iterator, List, Sequence, Tuple

from ..memory.decode.status import NOTHING, Status, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import MAX_NAME, cell
from ..minidump.decode import functions, handles, memory, modules, platform, system, threads, threadstates
from ..minidump.decode.dumpfile import Minidump, Stream
from ..minidump.decode.writers import writer_of
from ..stacklist.frames import NamedFrame
from ..stacks.lister import CallStack
from . import dumpwords
from .dumplists import LISTINGS, MAX_VALUE
from .dumprows import DumpEntry
from .frames import FramePrinter
from .whathappened import NO_CRASH

_LISTS: Dict[str, Tuple[str, Callable[[Minidump], Tuple[List[Any], Status]]]] = {
    "ThreadListStream": ("NumberOfThreads", threads.thread_list),
    "ThreadInfoListStream": ("NumberOfEntries", threads.thread_info_list),
    "ThreadNamesStream": ("NumberOfThreadNames", threads.thread_names),
    "ModuleListStream": ("NumberOfModules", modules.module_list),
    "UnloadedModuleListStream": ("NumberOfEntries", modules.unloaded_module_list),
    "MemoryInfoListStream": ("NumberOfEntries", memory.memory_info_list),
    "HandleDataStream": ("NumberOfDescriptors", handles.handle_data),
    "HandleOperationListStream": ("NumberOfEntries", handles.handle_operation_list),
    "FunctionTableStream": ("NumberOfDescriptors", functions.function_tables),
    "TokenStream": ("TokenListEntries", handles.token_info_list),
    "WinstacksThreadListStream": ("NumberOfEntries", threadstates.listed_states),
    "WinstacksFileListStream": ("NumberOfEntries", threadstates.listed_files),
    "WinstacksTrapFrameListStream": ("NumberOfEntries", threadstates.trap_frames),
}
"""Member that holds the count of each list, and the reader of the list."""

_RECORDS: Dict[str, Callable[[Minidump], Any]] = {
    "SystemInfoStream": platform.judged_system_info,
    "MiscInfoStream": system.misc_info,
    "SystemMemoryInfoStream": system.system_memory_info,
    "ProcessVmCountersStream": system.process_vm_counters,
    "ExceptionStream": threads.exception_stream,
}

_MEMORY = ("MemoryListStream", "Memory64ListStream")
_COMMENTS = ("CommentStreamA", "CommentStreamW")
_IN_HEXADECIMAL = (
    "Flags1", "EnabledFeatures", "ProcessCookie", "ExceptionRecord", "ExceptionAddress", "Flags",
    "MinimumUserModeAddress", "MaximumUserModeAddress", "ActiveProcessorsAffinityMask",
    "ProcessExecuteFlags",
)  # fmt: skip
_DECODED = frozenset((*_LISTS, *_RECORDS, *LISTINGS, "MemoryListStream", "Memory64ListStream"))
"""Streams whose contents are shown by some rows."""


def no_stack_of_exception(dump: Minidump, stream: threads.ExceptionStream) -> Iterator[DumpEntry]:
    """Yields the entry of a CONTEXT of the exception that is none; nothing if the dump has no place for it,
    which the status of the stream says."""
    size, rva = stream.ThreadContext
    if size:
        faults = status(threads.context(dump, stream.ThreadContext)[1], StatusCode.NOT_A_CONTEXT)
        yield DumpEntry(1, "ThreadContext", f"{size} bytes at {rva:#x}", faults, tid=stream.ThreadId)


def stack_of_exception(
    tid: int, stack: CallStack, named: Sequence[NamedFrame], printer: FramePrinter
) -> Iterator[DumpEntry]:
    """Yields the entries of the stack of the exception; `printer` makes the cells of its frames."""
    yield DumpEntry(1, "ThreadContext", stack.part, stack.status, tid=tid)
    for number, (frame, name) in enumerate(zip(stack.frames, named)):
        address, symbol, source, backing, _ = printer[name]
        faults = name.details.status if name.name is None else name.name.status
        unsure = None if frame.sure or name.name is None else StatusCode.UNSURE
        place = address, tid, stack.part, number, symbol, source, backing, frame.how
        yield DumpEntry(2, None, None, status(faults, unsure), *place)


def no_crash(dump: Minidump) -> str:
    """Returns why no crash of a process is known."""
    found = threads.exception_stream(dump)
    if found is not None:
        return f"none: the exception of the file has the code {found.ExceptionCode}"
    if dump.stream(threads.EXCEPTION) is not None:
        return "unknown: ExceptionStream cannot be read"
    if has_status(dump.status, StatusCode.BEYOND_THE_FILE, StatusCode.LIMIT):
        return "unknown: the directory of the file's streams is cut"
    return NO_CRASH


class DumpEntries:
    """Makes the entries of a dump. `options` are the options of the lists that are shown
    (`dumplists.LISTINGS`)."""

    def __init__(self, dump: Minidump, options: Container[str] = ()) -> None:
        self._dump = dump
        self._options = options

    def header(self, row_status: Status) -> Iterator[DumpEntry]:
        """Yields the entries of the header; `row_status` is the status of the memory in the file."""
        dump = self._dump
        yield DumpEntry(0, "MINIDUMP_HEADER", f"{dump.size} bytes", status(dump.status, row_status))
        yield DumpEntry(1, "NumberOfStreams", str(len(dump.streams)))
        yield DumpEntry(1, "TimeDateStamp", dumpwords.moment(dump.time_date_stamp))
        yield DumpEntry(1, "Flags", dumpwords.minidump_type(dump.flags))

    def stream(self, stream: Stream) -> Iterator[DumpEntry]:
        size, rva = stream.Location
        members, row_status = self._members(stream)
        where = f"{size} bytes at {rva:#x}"
        if stream.name not in _DECODED and stream.name not in _COMMENTS:
            where = f"{where}, not decoded, by {writer_of(stream.StreamType)}"
        yield DumpEntry(0, stream.name, where, status(stream.status, row_status))
        yield from members
        listing = LISTINGS.get(stream.name)
        if listing is not None and listing.option in self._options and self._is_first(stream):
            yield from listing.entries(self._dump)

    def _is_first(self, stream: Stream) -> bool:
        """Returns whether a stream is the first of its type, which readers take."""
        return stream is self._dump.stream(stream.StreamType)

    def _members(self, stream: Stream) -> Tuple[List[DumpEntry], Status]:
        """Returns the shown members of a stream, and its status."""
        if not self._is_first(stream):
            return [], NOTHING
        name = stream.name
        if name in _RECORDS:
            record = _RECORDS[name](self._dump)
            return (
                ([], status(StatusCode.UNREADABLE))
                if record is None
                else (list(_known_members(record)), record.status)
            )
        if name in _LISTS:
            member, read = _LISTS[name]
            listed, row_status = read(self._dump)
            named = [
                DumpEntry(1, "ThreadName", "", status(StatusCode.UNREADABLE), tid=record.ThreadId)
                if record.ThreadName is None
                else DumpEntry(1, "ThreadName", cell(record.ThreadName), tid=record.ThreadId)
                for record in (listed if name == "ThreadNamesStream" else ())
            ]
            return [DumpEntry(1, member, str(len(listed))), *named], row_status
        if name in _MEMORY:
            ranges, _ = memory.memory_ranges(self._dump)
            size = sum(memory_range.length for memory_range in ranges)
            return [DumpEntry(1, "bytes of memory", str(size))], NOTHING
        if name in _COMMENTS:
            comments = {kind: (comment, wrong) for kind, comment, wrong in system.comments(self._dump)}
            comment, wrong = comments[stream.StreamType]
            return [DumpEntry(1, "Buffer", cell(comment, MAX_VALUE))], wrong
        return [], NOTHING


def _known_members(record: Any) -> Iterator[DumpEntry]:
    """Yields the known members of a structure."""
    tid = getattr(record, "ThreadId", None)
    for name, value in record._asdict().items():
        if value is None or name in ("status", "ThreadContext", "CPU"):
            continue
        if isinstance(value, tuple):
            for number, item in enumerate(value):
                yield DumpEntry(1, f"{name}[{number}]", f"{item:#x}", tid=tid)
        elif name in dumpwords.WORDS:
            yield DumpEntry(1, name, dumpwords.WORDS[name](value), tid=tid)
        elif name in _IN_HEXADECIMAL:
            yield DumpEntry(1, name, f"{value:#x}", tid=tid)
        else:
            words = cell(value, MAX_NAME) if isinstance(value, str) else str(value)
            yield DumpEntry(1, name, words, tid=tid)
