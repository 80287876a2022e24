# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `minidump.info`: each stream of a dump with its members, and the exception with its stack.

Names come from Microsoft's declarations ("minidumpapiset.h"). A list has one row, for its count, and names of
threads and comments have rows of their own; options add the entries of other lists (`dumplists`). The row of
a stream that is not decoded names who writes it.
"""

from __future__ import annotations

from typing import Any, Callable, Container, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..memory.decode.status import NOTHING, Status, status, text
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import MAX_NAME, cell
from ..minidump.decode import functions, handles, memory, modules, system, threads, threadstates
from ..minidump.decode.dumpfile import Minidump, Stream
from ..minidump.decode.writers import writer_of
from ..stacks.lister import CallStack
from . import dumpwords
from .dumplists import LISTINGS, MAX_VALUE, DumpEntry
from .frames import FramePrinter
from .grid import Cells, Grid, Hex, Row, or_unreadable

GRID = Grid.for_plugin("info")

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
    "SystemInfoStream": system.system_info,
    "MiscInfoStream": system.misc_info,
    "SystemMemoryInfoStream": system.system_memory_info,
    "ProcessVmCountersStream": system.process_vm_counters,
    "ExceptionStream": threads.exception_stream,
}

_MEMORY = ("MemoryListStream", "Memory64ListStream")
_COMMENTS = ("CommentStreamA", "CommentStreamW")
_IN_HEXADECIMAL = (
    *("Flags1", "EnabledFeatures", "ProcessCookie", "ExceptionRecord", "ExceptionAddress", "Flags"),
    *("MinimumUserModeAddress", "MaximumUserModeAddress", "ActiveProcessorsAffinityMask"),
    "ProcessExecuteFlags",
)
_DECODED = frozenset((*_LISTS, *_RECORDS, *LISTINGS, "MemoryListStream", "Memory64ListStream"))
"""Streams whose contents are shown by some rows."""


class Member(NamedTuple):
    """A member of a stream as text; `tid` is the thread to which it belongs."""

    name: str
    value: str
    tid: Optional[int] = None
    status: Status = NOTHING


class DumpRows:
    """Makes the rows of a dump.

    Args:
        pid: ID of the process, None if it is unknown
        process: name of the process, None if it is unknown
        options: the options of the lists that are shown (`dumplists.LISTINGS`)
    """

    def __init__(
        self, dump: Minidump, pid: Optional[int], process: Optional[str], options: Container[str] = ()
    ) -> None:
        self._dump = dump
        self._key = or_unreadable(pid), or_unreadable(process)
        self._options = options
        self._member = GRID.maker("PID", "Process", "Member", "Value", "Status")
        self._of_thread = GRID.maker("PID", "Process", "TID", "Member", "Value", "Status")
        self._at_address = GRID.maker("PID", "Process", "Member", "Value", "Address", "Status")
        self._frame = GRID.maker(
            *("PID", "Process", "TID", "Part", "Frame", "Address", "Symbol", "Source", "Backing"),
            *("Status", "How"),
        )

    def header(self, row_status: Status) -> Iterator[Row]:
        """Yields the rows of the header; `row_status` is the status of the memory in the file."""
        dump = self._dump
        yield self._row(
            0, Member("MINIDUMP_HEADER", f"{dump.size} bytes", None, status(dump.status, row_status))
        )
        yield self._row(1, Member("NumberOfStreams", str(len(dump.streams))))
        yield self._row(1, Member("TimeDateStamp", dumpwords.moment(dump.time_date_stamp)))
        yield self._row(1, Member("Flags", dumpwords.minidump_type(dump.flags)))

    def stream(self, stream: Stream) -> Iterator[Row]:
        """Yields the rows of a stream."""
        size, rva = stream.Location
        members, row_status = self._members(stream)
        where = f"{size} bytes at {rva:#x}"
        if stream.name not in _DECODED and stream.name not in _COMMENTS:
            where = f"{where}, not decoded, by {writer_of(stream.StreamType)}"
        yield self._row(0, Member(stream.name, where, None, status(stream.status, row_status)))
        for member in members:
            yield self._row(1, member)
        yield from self._entries(stream)

    def stack(self, tid: int, stack: CallStack, named: Sequence[Any], printer: FramePrinter) -> Iterator[Row]:
        """Yields the rows of the stack of the exception; `printer` makes the cells of its frames."""
        key = *self._key, tid
        yield 1, self._of_thread(*key, "ThreadContext", stack.part, text(stack.status))
        for number, (frame, name) in enumerate(zip(stack.frames, named)):
            *cells, row_status = printer[name]
            unsure = None if frame.sure else StatusCode.UNSURE
            row_status = (
                text(status(name.name.status, unsure)) if unsure and name.name is not None else row_status
            )
            yield 2, self._frame(*key, stack.part, number, *cells, row_status, frame.how)

    def _row(self, depth: int, member: Member) -> Row:
        return depth, self._cells(
            DumpEntry(depth, member.name, member.value, member.status, None, member.tid)
        )

    def _members(self, stream: Stream) -> Tuple[List[Member], Status]:
        """Returns the shown members of a stream, and its status."""
        if stream is not self._dump.stream(stream.StreamType):
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
            names = [
                Member("ThreadName", "", record.ThreadId, status(StatusCode.UNREADABLE))
                if record.ThreadName is None
                else Member("ThreadName", cell(record.ThreadName), record.ThreadId)
                for record in (listed if name == "ThreadNamesStream" else ())
            ]
            return [Member(member, str(len(listed))), *names], row_status
        if name in _MEMORY:
            ranges, _ = memory.memory_ranges(self._dump)
            return [
                Member("bytes of memory", str(sum(memory_range.length for memory_range in ranges)))
            ], NOTHING
        if name in _COMMENTS:
            comments = {kind: (comment, wrong) for kind, comment, wrong in system.comments(self._dump)}
            comment, wrong = comments[stream.StreamType]
            return [Member("Buffer", cell(comment, MAX_VALUE))], wrong
        return [], NOTHING

    def _entries(self, stream: Stream) -> Iterator[Row]:
        """Yields the entries of a stream's list, if an option asks for them."""
        listing = LISTINGS.get(stream.name)
        if listing is None or listing.option not in self._options:
            return
        if stream is self._dump.stream(stream.StreamType):
            for entry in listing.entries(self._dump):
                yield entry.level, self._cells(entry)

    def _cells(self, entry: DumpEntry) -> Cells:
        rest, words = (entry.name, entry.value), text(entry.status)
        if entry.address is not None:
            return self._at_address(*self._key, *rest, Hex(entry.address), words)
        if entry.tid is not None:
            return self._of_thread(*self._key, entry.tid, *rest, words)
        return self._member(*self._key, *rest, words)


def _known_members(record: Any) -> Iterator[Member]:
    """Yields the known members of a structure."""
    tid = getattr(record, "ThreadId", None)
    for name, value in record._asdict().items():
        if value is None or name in ("status", "ThreadContext", "CPU"):
            continue
        if isinstance(value, tuple):
            for number, item in enumerate(value):
                yield Member(f"{name}[{number}]", f"{item:#x}", tid)
        elif name in dumpwords.WORDS:
            yield Member(name, dumpwords.WORDS[name](value), tid)
        elif name in _IN_HEXADECIMAL:
            yield Member(name, f"{value:#x}", tid)
        else:
            yield Member(name, cell(value, MAX_NAME) if isinstance(value, str) else str(value), tid)
