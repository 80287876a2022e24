# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The traces that heap blocks name, whichever way they name them.

Source: records of the heap's log as ntdll of 7601.24384 and 19044.1766 wrote them. That a block of 7 to 8.1
may hold its trace itself is known from the disassembly of x64 ntdll; that such a trace has the form of a
record is inferred. That page heap names entries of a stack trace database: ditto, and public write-ups.
"""

from __future__ import annotations

import functools
import struct
from typing import Callable, Dict, Iterable, NamedTuple, Optional, Tuple

from ...tracedb.decode.layout import EntryLayout, HeapLogLayout, unpack
from .memory import HeapMemory

LOG = "log"
DATABASE = "std"
INLINE = "inline"

UNREADABLE = "unreadable"
HASH = "hash"
UNSURE = "unsure"
NO_DATABASE = "no database"
NO_SUCH_INDEX = "no such index"


class Trace(NamedTuple):
    """A trace that a block names.

    Attributes:
        kind: where it is: `log` (the heap's), `std` (a stack trace database), `inline` (the block itself)
        address: of its record or entry, 0 when that is not known
        std_index: its index in the stack trace database, 0 when it has none
        frames: return addresses, innermost first; one that is overwritten or not present is None
        status: empty, what the database says of the trace, `unreadable` (not in the image), `hash` (what the
            block names is no record), `no such index`, `no database` (none is known that the trace is in),
            `unsure` (nothing confirms the frames)
    """

    kind: str
    address: int
    std_index: int
    frames: Tuple[Optional[int], ...]
    status: str


class Traces:
    """Reads traces, those of the log once each.

    Args:
        memory: the process's
        log: the layout of the log's records
        entry: the layout of a database's entries
        database: returns the traces of the process's stack trace database; called when one is wanted
    """

    def __init__(
        self,
        memory: HeapMemory,
        log: HeapLogLayout,
        entry: EntryLayout,
        database: Callable[[], Iterable[Trace]] = tuple,
    ) -> None:
        self._memory = memory
        self._log = log
        self._entry = entry
        self._database = database
        self._records: Dict[int, Trace] = {}

    def record(self, address: int) -> Trace:
        """Returns the record of the heap's log at an address; its hash must confirm it."""
        found = self._records.get(address)
        if found is None:
            found = self._records[address] = self._read(LOG, address)
        return found

    def inline(self, address: int, end: int, depth: int) -> Trace:
        """Returns the trace that a block holds.

        Args:
            address: where it begins
            end: where it must end
            depth: what the block says of its depth
        """
        trace = self._read(INLINE, address)
        room = (end - address - self._log.frames) // self._log.pointer_size
        if not trace.status and len(trace.frames) == depth <= room:
            return trace
        if not 0 < depth <= min(room, self._log.max_depth):
            return Trace(INLINE, address, 0, (), HASH)
        frames = self._frames(address + self._log.frames, depth)
        return Trace(INLINE, address, 0, frames, UNSURE if frames else UNREADABLE)

    def index(self, index: int) -> Trace:
        """Returns the trace of an index; when it is none of the database's, one without frames."""
        if not self._by_address:
            return Trace(DATABASE, 0, index, (), NO_DATABASE)
        return self._by_index.get(index) or Trace(DATABASE, 0, index, (), NO_SUCH_INDEX)

    def entry(self, address: int) -> Trace:
        """Returns the trace whose database entry is at an address, also when no known database has it."""
        return self._by_address.get(address) or self._read_entry(address)

    @functools.cached_property
    def _by_address(self) -> Dict[int, Trace]:
        return {trace.address: trace for trace in self._database()}

    @functools.cached_property
    def _by_index(self) -> Dict[int, Trace]:
        return {trace.std_index: trace for trace in self._by_address.values() if trace.std_index}

    def _read(self, kind: str, address: int) -> Trace:
        log = self._log
        header = self._memory.read(address, log.frames)
        if header is None:
            return Trace(kind, address, 0, (), UNREADABLE)
        depth = int.from_bytes(header[log.depth : log.depth + 4], "little")
        if address % log.pointer_size or not 0 < depth <= log.max_depth:
            return Trace(kind, address, 0, (), HASH)
        frames = self._frames(address + log.frames, depth)
        if not frames:
            return Trace(kind, address, 0, (), UNREADABLE)
        stored = int.from_bytes(header[log.hash : log.hash + 4], "little")
        if sum(frames) & 0xFFFFFFFF != stored:
            return Trace(kind, address, 0, (), HASH)
        return Trace(kind, address, 0, frames, "")

    def _read_entry(self, address: int) -> Trace:
        header = self._memory.read(address, self._entry.back_trace)
        if header is None:
            return Trace(DATABASE, address, 0, (), UNREADABLE)
        members = unpack(self._entry.members, bytes(header))
        depth = members["Depth"]
        if address % self._log.pointer_size or not 0 < depth <= self._entry.max_depth:
            return Trace(DATABASE, address, 0, (), HASH)
        frames = self._frames(address + self._entry.back_trace, depth)
        index = members.get("IndexHigh", 0) << 16 | members["Index"]
        return Trace(DATABASE, address, index, frames, NO_DATABASE if frames else UNREADABLE)

    def _frames(self, address: int, depth: int) -> Tuple[int, ...]:
        data = self._memory.read(address, depth * self._log.pointer_size)
        if data is None:
            return ()
        return struct.unpack("<%d%s" % (depth, "Q" if self._log.pointer_size == 8 else "I"), data)
