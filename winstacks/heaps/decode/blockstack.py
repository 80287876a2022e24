# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stack of a heap block: where a block names it, and how it is read.

* Extended blocks (Vista and later): a second, plain `_HEAP_ENTRY` (ExtendedBlockSignature 5) precedes the
  caller's bytes. Its EntryOffset is the number of units back to the real header. The interceptor keeps its
  data between the two headers: a pointer to a record of the heap's log, or (7 to 8.1) the trace itself. The
  pointer is tried first; if no record confirms it, the trace within the block. The interceptor's number does
  not decide this, because its meaning changed: until 8.1 index 1 is the trace itself and 2 the log, from
  Windows 10 on index 1 is the log.
* Blocks of segment heaps: a pointer to such a record lies behind their bytes (`segmentheap`).
* Blocks of XP and 2003: an index into the stack trace database in their last bytes (`ntblocks`).
* Blocks of page heap: the address of an entry of that database (`pageheap`).

Source: extended blocks and records of the heap's log as ntdll of 7601.24384 and 19044.1766 (x64) wrote them,
and the traces that a block of 7 to 8.1 may hold itself as 7601.17514 wrote them (x64; the x86 form is
inferred). Public write-ups describe that page heap names entries of a stack trace database.
"""

from __future__ import annotations

import functools
from typing import Callable, Dict, Iterable, Iterator, Optional, Tuple

from ...columns.words import INLINE, LOG, STD
from ...memory.decode.memo import Memo
from ...memory.decode.memory import Memory
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import integers
from ...tracedb.decode.blocks import read_entry, read_head
from ...tracedb.decode.capture import without_padding
from ...tracedb.decode.heaplog import Record
from ...tracedb.decode.layout import EntryLayout, HeapLogLayout
from ...tracedb.decode.recorded import RecordedStack
from .block import DAMAGED, UNREADABLE
from .layout import HeapLayout

EXTENDED = 0x40  # bit in UnusedBytes of an extended block; the lower bits are its EntryOffset
VIRTUAL = 4  # UnusedBytes of a virtual-alloc block; its EntryOffset is in SegmentOffset

HASH = status(StatusCode.HASH)
UNSURE = status(StatusCode.UNSURE)
NO_DATABASE = status(StatusCode.NO_DATABASE)
NO_SUCH_INDEX = status(StatusCode.NO_SUCH_INDEX)

_SIGNATURE = 5
_INLINE_FUNCTION = 1
_FEW = 16
"""So many indices are looked up one by one; a process with more has one in each block (XP, 2003)."""


class Extension(NamedTuple):
    """An extended block.

    Attributes:
        header: address of the real _HEAP_ENTRY
        unused: UnusedBytesLength: bytes of the block that are not the caller's
        trace: the trace that the block names, None if it names none
    """

    header: int
    user: int
    unused: int
    trace: Optional[RecordedStack]


def units_before(unused: int, segment: int) -> int:
    """Returns the EntryOffset of a block, from UnusedBytes and SegmentOffset of its header; 0 for none."""
    if unused == VIRTUAL:
        return segment
    return unused & 0x3F if unused & EXTENDED else 0


class Traces:
    """Reads the traces of blocks, each record of the log once.

    Args:
        log: layout of the heap's log, and of a trace within a block, for the process's bitness
        database: returns the traces of the process's stack trace database; called at the first look-up of an
            entry, or of an index that `look_up` does not find
        look_up: returns the trace of an index without reading the whole database, None if that is not
            possible; called for few indices
    """

    def __init__(
        self,
        memory: Memory,
        log: HeapLogLayout,
        entry: EntryLayout,
        database: Callable[[], Iterable[RecordedStack]] = tuple,
        look_up: Callable[[int], Optional[RecordedStack]] = lambda index: None,
    ) -> None:
        self._memory = memory
        self._database = database
        self._looked_up: Memo[int, Optional[RecordedStack]] = Memo(look_up)
        self._records: Dict[int, RecordedStack] = {}
        self._log, self._entry = log, entry
        prefix = log.types["_RTLP_STACK_TRACE_PREFIX"]
        self._prefix = prefix.reader("Depth", "Sum")
        self._prefix_head = prefix.offset("Frames")

    def record(self, address: int) -> RecordedStack:
        """Returns the record of the heap's log at an address; its hash must confirm it."""
        trace = self._records.get(address)
        if trace is None:
            trace = self._records[address] = self._read(address)
        return trace

    def extended(
        self, header: int, offset: int, layout: HeapLayout
    ) -> Tuple[int, Optional[int], Optional[RecordedStack], Status]:
        """Returns address, overhead in bytes, trace and status of an extended block.

        If the second header is not in the image or is invalid, the pointer behind the first header still
        names a record of the log; the record is the trace if its hash confirms it.
        """
        extension = self._extension(header, offset, layout)
        if extension is not None:
            return extension.user, extension.unused, extension.trace, NOTHING
        unit = layout.unit
        user = header + (offset + 1) * unit
        named = self.pointed(header + unit)
        statuses = UNREADABLE if self._memory.read(user - unit, unit) is None else DAMAGED
        return user, None, None if named is None or named.status else named, statuses

    def carve(self, start: int, end: int, layout: HeapLayout) -> Iterator[Extension]:
        """Yields the extended blocks in a range whose block headers cannot be trusted.

        Each is proved by the record that it names, or by the trace that it holds. `layout` has the structures
        of the heap's generation; 5.x has no such blocks.
        """
        memory, unit, second_header = self._memory, layout.unit, layout.extended
        if second_header is None:
            return
        for low, data in memory.pages(start, end):
            first = -low % unit
            signatures = data[first + second_header.signature :: unit]
            position = signatures.find(_SIGNATURE)
            while position >= 0:
                second = low + first + position * unit
                offset = memory.member(second, second_header.back)
                if offset and second - offset * unit >= start:
                    extension = self._extension(second - offset * unit, offset, layout)
                    if extension is not None and extension.trace is not None and not extension.trace.status:
                        yield extension
                position = signatures.find(_SIGNATURE, position + 1)

    def pointed(self, address: int) -> Optional[RecordedStack]:
        """Returns the record to which the pointer at an address leads, None if there is no pointer."""
        record = self._memory.pointer(address)
        return self.record(record) if record else None

    def inline(self, address: int, end: int, depth: int) -> RecordedStack:
        """Returns the trace that a block holds."""
        room = (end - address - self._prefix_head) // self._log.pointer_size
        if not 0 < depth <= min(room, self._log.max_depth):
            return RecordedStack(INLINE, address, 0, (), HASH)
        header = self._memory.read(address, self._prefix_head)
        data = self._memory.read(address + self._prefix_head, depth * self._log.pointer_size)
        if header is None or data is None:
            return RecordedStack(INLINE, address, 0, (), UNREADABLE)
        stored, total = self._prefix(header, 0)
        if stored != depth:
            return RecordedStack(INLINE, address, 0, (), HASH)
        slots = integers(data, self._log.pointer_size)
        # A shallower stack leaves the last slots empty.
        frames = without_padding(slots)
        proven = sum(slots) % (1 << 8 * self._log.pointer_size) == total
        statuses = NOTHING if proven else UNSURE
        return RecordedStack(INLINE, address, 0, frames, statuses, len(frames) == depth)

    def index(self, index: int) -> RecordedStack:
        """Returns the trace of an index; a trace without frames if the database does not have the index."""
        if len(self._looked_up) < _FEW:
            trace = self._looked_up[index]
            if trace is not None:
                return trace
        if not self._by_address:
            return RecordedStack(STD, 0, index, (), NO_DATABASE)
        return self._by_index.get(index) or RecordedStack(STD, 0, index, (), NO_SUCH_INDEX)

    def entry(self, address: int) -> RecordedStack:
        """Returns the trace whose database entry is at an address, even if no known database holds it."""
        return self._by_address.get(address) or self._read_entry(address)

    def _extension(self, header: int, offset: int, layout: HeapLayout) -> Optional[Extension]:
        """Reads an extended block; None if its second header is not present or is invalid."""
        unit, second_header = layout.unit, layout.extended
        second = header + offset * unit
        data = self._memory.read(second, unit)
        if data is None or second_header is None:
            return None
        function, depth, unused, back, signature = second_header.members(data, 0)
        if signature != _SIGNATURE or back != offset:
            return None
        trace = self.pointed(header + unit)
        if (trace is None or trace.status) and function == _INLINE_FUNCTION and depth:
            inline = self.inline(header + unit, second + second_header.start, depth)
            if inline.status != HASH:
                trace = inline
        return Extension(header, second + unit, unused, trace)

    @functools.cached_property
    def _by_address(self) -> Dict[int, RecordedStack]:
        return {trace.address: trace for trace in self._database()}

    @functools.cached_property
    def _by_index(self) -> Dict[int, RecordedStack]:
        # The index of a freed trace may be another's now. Traces to which a slot leads come first.
        traces = reversed(self._by_address.values())
        return {trace.trace_index: trace for trace in traces if trace.trace_index}

    def _read(self, address: int) -> RecordedStack:
        record, log = Record(self._memory, address, self._log), self._log
        misplaced = address % log.pointer_size
        right = record.total is not None and record.total == record.hash and not record.impossible
        if right and not misplaced:
            return RecordedStack(LOG, address, 0, record.frames, NOTHING, record.depth == log.max_depth)
        unread = None in record.frames and not misplaced and not record.impossible
        statuses = UNREADABLE if unread or None in (record.hash, record.depth) else HASH
        return RecordedStack(LOG, address, 0, (), statuses)

    def _read_entry(self, address: int) -> RecordedStack:
        layout, read = self._entry, self._memory.read
        head = read_head(layout, read, address)
        if head is None:
            return RecordedStack(STD, address, 0, (), UNREADABLE)
        if address % layout.pointer_size or head.depth not in layout.frames:
            return RecordedStack(STD, address, 0, (), HASH)
        entry = read_entry(layout, read, address)
        if entry is None:
            return RecordedStack(STD, address, head.number, (), UNREADABLE)
        full = head.depth == layout.max_depth
        return RecordedStack(STD, address, head.number, entry.frames, NO_DATABASE, full)
