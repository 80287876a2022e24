# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The file of a minidump: its header, its directory of streams, and every read of it.

    dump = Minidump(read, size)
    for stream in dump.streams: ...

Only the header and the directory are read at first, so that a file of any size is opened equally fast. All
counts, RVAs and sizes are untrusted: a read beyond the end of the file returns the bytes before the end, and
the status of a list states how much is missing.

Source of the layouts of this room: Microsoft, "minidumpapiset.h" (MINIDUMP_HEADER, MINIDUMP_DIRECTORY,
MINIDUMP_STREAM_TYPE and the structures of the streams); names are spelled as there.
"""

from __future__ import annotations

from typing import (
    Annotated,
    Dict,
    Iterator,
    List,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from ...memory.decode.declared import ULONG, ULONGLONG, Declared
from ...memory.decode.memory import ReadFile
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, StatusItem, naming, numbers_of, status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import unsigned
from .writers import FOREIGN, LAST_OF_WINDOWS

SIGNATURE = b"MDMP"
VERSION = 0xA793
"""MINIDUMP_VERSION: the lower half of MINIDUMP_HEADER.Version; the writer chooses the upper half."""

MAX_STREAMS = 0x1000
"""Greatest number of streams. Windows writes fewer than 32, and a program may add some of its own."""

MAX_STRING = 0xFFFE
"""Greatest size of a MINIDUMP_STRING in bytes: a path has 32,767 characters, and a UNICODE_STRING, such
as the name of a thread or an object, has no more."""

MAX_TEXT = 1 << 26
"""Greatest sum of the sizes of all MINIDUMP_STRINGs that are decoded of a dump, in bytes, if the file is not
smaller: two strings share no byte of the file."""

MAX_PARTS = 1 << 28
"""The same for the parts of a dump that are kept (`Minidump.part`)."""

_ASKED_FOR = {0x2: 9, 0x4: 12, 0x800: 16, 0x1000: 17, 0x40000: 19}
"""Stream types by the flag of MINIDUMP_TYPE that requests them (MiniDumpWithFullMemory, WithHandleData,
WithFullMemoryInfo, WithThreadInfo, WithTokenInformation)."""

_UNUSED = 0
THREAD_STATES, MAPPED_FILES, TRAP_FRAMES = 0x57530001, 0x57530002, 0x57530003
"""The streams that this project defines; see `threadstates`."""

STREAMS: Dict[int, str] = {
    **dict(
        enumerate(
            (
                "UnusedStream", "ReservedStream0", "ReservedStream1", "ThreadListStream",
                "ModuleListStream", "MemoryListStream", "ExceptionStream", "SystemInfoStream",
                "ThreadExListStream", "Memory64ListStream", "CommentStreamA", "CommentStreamW",
                "HandleDataStream", "FunctionTableStream", "UnloadedModuleListStream",
                "MiscInfoStream", "MemoryInfoListStream", "ThreadInfoListStream",
                "HandleOperationListStream", "TokenStream", "JavaScriptDataStream",
                "SystemMemoryInfoStream", "ProcessVmCountersStream", "IptTraceStream",
                "ThreadNamesStream",
            )
        )
    ),
    0x8000: "ceStreamNull",
    0x8001: "ceStreamSystemInfo",
    0x8002: "ceStreamException",
    0x8003: "ceStreamModuleList",
    0x8004: "ceStreamProcessList",
    0x8005: "ceStreamThreadList",
    0x8006: "ceStreamThreadContextList",
    0x8007: "ceStreamThreadCallStackList",
    0x8008: "ceStreamMemoryVirtualList",
    0x8009: "ceStreamMemoryPhysicalList",
    0x800A: "ceStreamBucketParameters",
    0x800B: "ceStreamProcessModuleMap",
    0x800C: "ceStreamDiagnosisList",
    THREAD_STATES: "WinstacksThreadListStream",
    MAPPED_FILES: "WinstacksFileListStream",
    TRAP_FRAMES: "WinstacksTrapFrameListStream",
    **FOREIGN,
}  # fmt: skip
"""MINIDUMP_STREAM_TYPE. Other programs use numbers above LastReservedStream (FFFFh); three of these are this
project's."""


class NotAMinidumpError(ValueError):
    """The file does not begin with the signature of a minidump; the text is a sentence for users."""


class OtherSystemError(ValueError):
    """The dump is of a process of another system than Windows; the text is a sentence for users."""


class DumpHeader(NamedTuple):
    """MINIDUMP_HEADER."""

    Signature: Annotated[bytes, "UCHAR[4]"]
    Version: ULONG
    NumberOfStreams: ULONG
    StreamDirectoryRva: ULONG
    CheckSum: ULONG
    TimeDateStamp: ULONG
    Flags: ULONGLONG


class Location(NamedTuple):
    """MINIDUMP_LOCATION_DESCRIPTOR: a range of the file."""

    DataSize: ULONG
    Rva: ULONG


class Stream(NamedTuple):
    """MINIDUMP_DIRECTORY: an entry of the directory of streams. `status` has the faults of the stream: it is
    beyond the end of the file, it overlaps another of a type that is known, it is one of several of its type
    (the first counts), or Windows has no such type."""

    StreamType: ULONG
    Location: Location
    status: Status = NOTHING

    @property
    def name(self) -> str:
        """Name of the type in MINIDUMP_STREAM_TYPE, else its number in hexadecimal."""
        return STREAMS.get(self.StreamType, f"{self.StreamType:#x}")


HEADER, DIRECTORY = Declared(DumpHeader), Declared(Stream)


class Minidump:
    """A minidump.

    Attributes:
        version: upper half of MINIDUMP_HEADER.Version, chosen by the writer
        streams: all entries of the directory that are in use, in its order

    Raises:
        NotAMinidumpError: the file does not have the header of a minidump
    """

    def __init__(self, read: ReadFile, size: int) -> None:
        self._read = read
        self.size = size
        self._texts: Dict[int, Optional[str]] = {}
        self._text_left = min(size, MAX_TEXT)
        self._texts_left_out = False
        self._parts: Dict[Tuple[int, int], bytes] = {}
        self._part_left = min(size, MAX_PARTS) + MAX_STRING
        data = self.read(0, HEADER.size)
        if data is None or data[:4] != SIGNATURE:
            raise NotAMinidumpError("The file does not begin with the signature of a minidump (MDMP)")
        header = HEADER.decode(data)
        self.time_date_stamp, self.flags = header.TimeDateStamp, header.Flags
        if header.Version & 0xFFFF != VERSION:
            raise NotAMinidumpError(
                f"The file has the signature of a minidump, and the version {header.Version & 0xFFFF:#x}: "
                f"only {VERSION:#x} is known"
            )
        self.version = header.Version >> 16
        rva = header.StreamDirectoryRva
        rows, faults = self._rows(rva, header.NumberOfStreams)
        used = [stream for stream in rows if stream[:2] != (_UNUSED, (0, 0))]
        taken = (0, HEADER.size), (rva, rva + len(rows) * DIRECTORY.size)
        shared = overlapping([*taken, *_claimed(used)])
        missing = self._missing({stream.StreamType for stream in used})
        self.status = status(
            faults,
            StatusCode.OVERLAP if 0 in shared or 1 in shared else None,
            naming(StatusCode.STREAMS_MISSING, *missing),
        )
        self.streams = tuple(self._checked(used, {place - len(taken) for place in shared}))
        self._first: Dict[int, Stream] = {}
        for stream in self.streams:
            self._first.setdefault(stream.StreamType, stream)

    def _rows(self, rva: int, count: int) -> Tuple[List[Stream], Status]:
        """Returns the entries of the directory, and its status."""
        read = min(count, MAX_STREAMS)
        data = self.available(rva, read * DIRECTORY.size)
        whole = len(data) - len(data) % DIRECTORY.size
        missing = read * DIRECTORY.size - len(data)
        faults = status(
            StatusCode.LIMIT if count > MAX_STREAMS else None,
            StatusItem(StatusCode.BEYOND_THE_FILE, missing) if missing else None,
        )
        return list(DIRECTORY.records(DIRECTORY.struct.iter_unpack(data[:whole]), self.string)), faults

    def _missing(self, present: Set[int]) -> Tuple[str, ...]:
        """Returns the names of the streams that Flags requests and the dump lacks."""
        kinds = (kind for flag, kind in _ASKED_FOR.items() if self.flags & flag)
        return tuple(STREAMS[kind] for kind in kinds if kind not in present)

    def _checked(self, used: Sequence[Stream], shared: Set[int]) -> Iterator[Stream]:
        """Yields the entries of the directory with the status of each; `shared` has the overlapping ones."""
        seen: Set[int] = set()
        for place, stream in enumerate(used):
            kind, (size, rva), _ = stream
            beyond = self.beyond(rva, size)
            known = kind > _UNUSED and (kind in STREAMS or kind > LAST_OF_WINDOWS)
            yield stream._replace(
                status=status(
                    StatusItem(StatusCode.BEYOND_THE_FILE, beyond) if beyond else None,
                    StatusCode.OVERLAP if place in shared else None,
                    StatusCode.TWICE if kind in seen else None,
                    None if known else StatusItem(StatusCode.UNKNOWN_TYPE, kind),
                ),
            )
            seen.add(kind)

    def stream(self, kind: int) -> Optional[Stream]:
        """Returns the first stream of a type, or None."""
        return self._first.get(kind)

    @property
    def missing(self) -> int:
        """Number of bytes of the directory and of its streams that lie beyond the end of the file."""
        found = (self.status, *(stream.status for stream in self.streams))
        return sum(numbers_of(faults, StatusCode.BEYOND_THE_FILE) for faults in found)

    def beyond(self, rva: int, size: int) -> int:
        """Returns the number of bytes of a range that lie beyond the end of the file."""
        return max(rva + size - max(self.size, rva), 0)

    def available(self, rva: int, size: int) -> bytes:
        """Returns the bytes of a range of the file, fewer at the end of the file."""
        size = min(size, self.size - rva)
        return self._read(rva, size) if size > 0 and rva >= 0 else b""

    def read(self, rva: int, size: int) -> Optional[bytes]:
        """Returns the bytes of a range of the file, None if the file does not have all of them."""
        data = self.available(rva, size)
        return data if len(data) == size else None

    def string(self, rva: int) -> Optional[str]:
        """Returns a MINIDUMP_STRING, which is decoded once; None if there is none (RVA 0), if the file does
        not have all of it, or if the strings before it used up the bytes that strings may have: `text_status`
        then shows it."""
        if rva and rva not in self._texts:
            self._texts[rva] = self._string(rva)
        return self._texts.get(rva)

    def _string(self, rva: int) -> Optional[str]:
        size = unsigned(self.read(rva, 4))
        if size is None or size % 2 or size > MAX_STRING:
            return None
        if size > self._text_left:
            self._texts_left_out = True
            return None
        self._text_left -= size
        data = self.read(rva + 4, size)
        return None if data is None else data.decode("utf-16-le", "replace")

    def part(self, rva: int, size: int) -> Optional[bytes]:
        """Returns the bytes of a part that belongs to one thread, such as its CONTEXT: read once, and kept.
        Returns as many bytes as the file has; None if the parts before it used up the bytes that all may
        have."""
        kept = self._parts.get((rva, size))
        if kept is None and self._part_left >= 0:
            kept = self._parts[rva, size] = self.available(rva, size)
            self._part_left -= len(kept)
        return kept

    @property
    def text_status(self) -> Status:
        """The status of the strings read so far: LIMIT if the dump names more of them than it can have."""
        return status(StatusCode.LIMIT) if self._texts_left_out else NOTHING


def _claimed(used: Sequence[Stream]) -> Iterator[Tuple[int, int]]:
    """Yields the range (start, end) of the file that each entry of the directory has for itself.

    The range is empty for an entry that may share its bytes: nothing is read of a stream of a user, and an
    entry that is listed twice has the same bytes.
    """
    seen = set()
    for kind, (size, rva), _ in used:
        alone = kind in STREAMS and (kind, size, rva) not in seen
        seen.add((kind, size, rva))
        yield rva, rva + size if alone else rva


def overlapping(ranges: Sequence[Tuple[int, int]]) -> Dict[int, int]:
    """Returns the ranges that overlap an earlier one.

    The earlier range begins before the other, or begins with it and is listed first. Returns the number of
    shared bytes by index of each overlapping range.
    """
    found, reached = {}, 0
    for start, place, end in sorted((start, place, end) for place, (start, end) in enumerate(ranges)):
        if start < min(reached, end):
            found[place] = min(reached, end) - start
        reached = max(reached, end)
    return found
