# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handle traces: the ring to which `_HANDLE_TABLE.DebugInfo` points.

In a process with handle tracing (`!htrace -enable`, Application Verifier) every open, close and bad reference
of a handle takes the next slot of the ring. The kernel increments CurrentStackIndex; the slot is its new
value modulo the size of the ring.
"""

from __future__ import annotations

import struct
from typing import Iterator, Tuple, Union

from ...memory.decode.memory import Memory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import INTEGER_CODES, Structures
from ...tracedb.decode.capture import without_padding

MAX_ENTRIES = 0x20000
"""The largest ring that ProcessHandleTracing accepts (System Informer's phnt)."""

OPEN, CLOSE, BAD_REFERENCE = 1, 2, 3
"""PROCESS_HANDLE_TRACE_OPEN, _CLOSE and _BADREF (phnt)."""


class HandleTrace(NamedTuple):
    """One event of a ring.

    `sequence` counts the events of the ring from 1. It is 0 or less if a slot holds an event, but the ring's
    counter says that the slot was never used. `frames` are canonical addresses, innermost first.
    """

    slot: int
    sequence: int
    unique_process: int
    unique_thread: int
    handle: int
    type: int
    frames: Tuple[int, ...]


class RingDecoder:
    """Decodes `_HANDLE_TRACE_DEBUG_INFO` and the `_HANDLE_TRACE_DB_ENTRY` behind it.

    XP has no TableSize: its TraceDb is declared with all the entries of the ring, 4096. Since 2003 TraceDb is
    declared with one entry.

    Attributes:
        trace_db: offset of the first event; the counters lie before it
        max_depth: frames of an event (16)

    Raises:
        MissingMemberError: the symbols lack one of the two structures
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        info, entry = types["_HANDLE_TRACE_DEBUG_INFO"], types["_HANDLE_TRACE_DB_ENTRY"]
        stack = entry.field("StackTrace")
        self.trace_db = info.offset("TraceDb")
        self.entry_size = entry.size
        self.max_depth = stack.size // pointer_size
        self._pointer_size = pointer_size
        self._current = info.field("CurrentStackIndex")
        self._table_size = info.first_member("TableSize")
        self._fixed_size = info.field("TraceDb").size // entry.size
        self._members = entry.reader("ClientId.UniqueProcess", "ClientId.UniqueThread", "Handle", "Type")
        self._stack = stack.offset
        self._frames = struct.Struct(f"<{self.max_depth}{INTEGER_CODES[pointer_size]}")

    def header(self, data: bytes) -> Tuple[int, int, Status]:
        """Decodes the counters: CurrentStackIndex, the number of slots (limited), and a status if Windows
        makes no table of that TableSize. `data` has the `trace_db` bytes before the first event. Raises
        ValueError if data is too short."""
        current = self._current.value_in(data)
        if self._table_size is None:
            return current, self._fixed_size, NOTHING
        size = self._table_size.value_in(data)
        sound = 0 < size <= MAX_ENTRIES and not size & (size - 1)
        return current, min(size, MAX_ENTRIES), NOTHING if sound else status(StatusCode.TABLE_SIZE)

    def true_size(self, memory: Memory, start: int, current: int, size: int) -> int:
        """Returns the number of slots of a ring: more than TableSize if events lie behind its end.

        A ring that has not wrapped around has no events from CurrentStackIndex on.

        Args:
            start: address of TraceDb[0]
            size: TableSize, limited
        """
        if self._table_size is None:
            return size
        if size & (size - 1) or not size:
            size = 1 << size.bit_length()
        while size < MAX_ENTRIES and current > size and self._is_event(memory, start, size):
            size *= 2
        return size

    def _is_event(self, memory: Memory, start: int, slot: int) -> bool:
        """Returns whether type, IDs and a kernel frame prove that a slot holds an event."""
        data = memory.read(start + slot * self.entry_size, self.entry_size)
        if data is None:
            return False
        process, thread, _, kind = self._members(data, 0)
        (inner, *_) = self._frames.unpack_from(data, self._stack)
        ids = 0 < process < 1 << 32 and not process % 4 and 0 < thread < 1 << 32 and not thread % 4
        return ids and kind in (OPEN, CLOSE, BAD_REFERENCE) and bool(inner >> 8 * self._pointer_size - 1)

    def is_ahead(self, memory: Extents, start: int, current: int, size: int) -> bool:
        """Returns whether CurrentStackIndex counts more events than there were: a slot was never used."""
        slots = range(size if current >= size else 0)
        slots_data = (memory.read(start + slot * self.entry_size, self.entry_size) for slot in slots)
        return any(data is not None and not any(data) for data in slots_data)

    def slots(self, length: int) -> int:
        """Returns the number of slots of a ring from the size of its pool block; 0 if none fits the size."""
        count = (length - self.trace_db) // self.entry_size
        if count < 1 or count > MAX_ENTRIES:
            return 0
        size = self._fixed_size if self._table_size is None else 1 << count.bit_length() - 1
        spare = length - self.trace_db - size * self.entry_size
        return size if 0 <= spare < PAGE_SIZE else 0

    def is_ring(self, memory: Memory, address: int, slots: int) -> bool:
        """Returns whether TableSize and the last event prove a ring of `size` slots at an address."""
        head = memory.read(address, self.trace_db)
        if head is None:
            return False
        current, size, _ = self.header(head)
        return size == slots and self._is_event(memory, address + self.trace_db, current % size)

    def events(
        self, memory: Extents, start: int, current: int, size: int
    ) -> Iterator[Union[HandleTrace, int]]:
        """Yields the events of a ring from the newest to the oldest; for a gap between them, which is a run
        of used slots that cannot be read, the number of its slots."""
        members, frames = self._members, self._frames.unpack_from
        missing = 0
        for age in range(size):
            sequence = current - age
            slot = sequence % size
            data = memory.read(start + slot * self.entry_size, self.entry_size)
            if data is None:
                missing += sequence > 0
                continue
            if missing:
                yield missing
                missing = 0
            process, thread, handle, kind = members(data, 0)
            if kind or handle:
                stack = without_padding(frames(data, self._stack))
                yield HandleTrace(slot, sequence, process, thread, handle, kind, stack)
        if missing:
            yield missing
