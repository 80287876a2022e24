# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The events of handles (open, close, ...), and the rings in which the kernel keeps them."""

from __future__ import annotations

import collections
import functools
from typing import Dict, Iterator, List, Optional, Set, Tuple, Union

from ..columns import words
from ..memory import bulk
from ..memory.decode.memory import WINDOW
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import NOTHING, StatusItem, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import KERNEL_PID, AddressSpace, Image
from ..process import threadids as ids
from ..process.handletables import HandleTable, HandleTables
from ..process.kernelobjects import process_type
from ..process.objectheaders import ObjectInfo, Objects
from ..process.processlist import process_list
from ..tracedb.decode.recorded import RING, RecordedStack
from ..tracedb.gap import gap
from .decode import handle_ring
from .decode.handle_ring import HandleTrace, RingDecoder
from .events import HandleEvent, Listed

MAX_BLOCKS = 1 << 20
"""The most big pool blocks that are searched for rings."""
MAX_LOOSE = 1 << 18
"""The most events that are read from rings to which no handle table leads: 64 rings of Windows' own size."""
LAST_EVENTS = 64
"""The number of last events that decide to which process such a ring belongs."""

_EVENTS = {
    handle_ring.OPEN: words.OPEN,
    handle_ring.CLOSE: words.CLOSE,
    handle_ring.BAD_REFERENCE: words.BAD_REFERENCE,
}


def rings(image: Image, tables: HandleTables) -> Optional[HandleRings]:
    """Returns the reader of rings; None, with a warning, if the kernel's symbols do not describe them."""
    return image.attempt(lambda: HandleRings(image, tables))


class HandleRings:
    """Reads the rings of an image. `truncated` says whether there are more events than MAX_LOOSE in rings to
    which no table leads. Raises MissingMemberError if the kernel's symbols do not describe the rings."""

    def __init__(self, image: Image, tables: HandleTables) -> None:
        self.truncated = False
        self._image = image
        self._memory = image.memory(image.kernel)
        self._tables = tables
        self._objects = image.service(Objects)
        self._decoder = RingDecoder(image.types, image.pointer_size)

    def list_events(self, space: AddressSpace, table: HandleTable) -> Iterator[Listed]:
        """Yields the events of a process, newest first, and the gaps between them.

        A ring to which no table leads belongs to the process that made most of its last events, or to the
        kernel if that process is unknown.
        """
        if table.debug_info:
            yield from self._list_ring(space, table, table.debug_info)
        for ring in self.orphan_rings.pop(space.pid, ()) if space.pid is not None else ():
            yield gap(space, contradicted("DebugInfo"))
            yield from self._list_ring(space, table, ring)

    @functools.cached_property
    def orphan_rings(self) -> Dict[int, List[int]]:
        """The addresses of the rings to which no table leads, by process ID (0: unknown process)."""
        claims, left = bulk.PhysicalClaims(self._image.layer), MAX_LOOSE
        found: Dict[int, List[int]] = {}
        for ring, slots in self._image.possible(self._blocks()):
            if ring in self._led:
                continue
            end = ring + self._decoder.trace_db + slots * self._decoder.entry_size
            if claims.claim(ring, end) != end:
                continue  # a block has memory of its own
            left -= slots
            if left < 0:
                self.truncated = True
                break
            actor = self._actor(ring, slots)
            missing = actor != KERNEL_PID and bool(self._image.service(process_list).status)
            found.setdefault(actor if missing or actor in self._pids else KERNEL_PID, []).append(ring)
        return found

    @functools.cached_property
    def _led(self) -> Set[int]:
        """Addresses of the rings to which handle tables lead; read only if a ring exists."""
        tables = [
            *map(self._tables.table_of, self._processes),
            *map(self._tables.table_at, self._tables.all_listed),
        ]
        return {table.debug_info for table in tables if table is not None}

    @functools.cached_property
    def _pids(self) -> Set[Optional[int]]:
        listed = self._image.service(process_list)
        pid = process_type(self._image).field("UniqueProcessId")
        pids = {process: self._memory.member(process, pid) for process in self._processes}
        return {listed.id_of(item) if known is None else known for item, known in pids.items()}

    @functools.cached_property
    def _processes(self) -> List[int]:
        return [process.eprocess for process in self._image.service(process_list).processes()]

    def _blocks(self) -> Iterator[Tuple[int, int]]:
        """Yields (address, slots) of the rings in the kernel's list of big pool blocks.

        A ring is longer than a page, and all such blocks of the pool are in that list.
        """
        image = self._image
        table, count = image.require_symbol("PoolBigPageTable"), image.require_symbol("PoolBigPageTableSize")
        if table is None or count is None:
            return
        block = image.types["_POOL_TRACKER_BIG_PAGES"]
        unit = 1 if block.has("NumberOfBytes") else PAGE_SIZE
        unpack = block.packer("Va", "NumberOfBytes" if unit == 1 else "NumberOfPages").unpack_from
        start, blocks = self._memory.pointer(table) or 0, self._memory.number(count, 4) or 0
        length, step = min(blocks, MAX_BLOCKS) * block.size, WINDOW * block.size
        # Page tables that lead back to earlier pages end the list.
        end = bulk.PhysicalClaims(image.layer).claim(start, start + length)
        tried: Set[int] = set()
        for at in range(start, end, step):
            for low, data in self._memory.load(at, min(step, end - at)).runs:
                for offset in range(-(low - start) % block.size, len(data) - block.size + 1, block.size):
                    address, size = unpack(data, offset)
                    # The address of a free block is odd.
                    slots = 0 if address % PAGE_SIZE else self._decoder.slots(size * unit)
                    if slots and address not in tried:
                        tried.add(address)
                        if self._decoder.is_ring(self._memory, address, slots):
                            yield address, slots

    def _actor(self, ring: int, slots: int) -> int:
        """Returns the ID of the process that made most of a ring's last events, 0 if none is readable."""
        decoder, start = self._decoder, ring + self._decoder.trace_db
        current, _, _ = decoder.header(self._memory.read(ring, decoder.trace_db) or b"")
        data = self._memory.load(start, slots * decoder.entry_size)
        events = decoder.events(data, start, current, slots)
        traces = [event for event in events if isinstance(event, HandleTrace)]
        pids = collections.Counter(trace.unique_process for trace in traces[:LAST_EVENTS])
        return pids.most_common(1)[0][0] if pids else KERNEL_PID

    def _list_ring(self, space: AddressSpace, table: HandleTable, ring: int) -> Iterator[Listed]:
        """Yields the events of a ring, newest first, and the gaps between them."""
        decoder = self._decoder
        head = self._memory.read(ring, decoder.trace_db)
        if head is None:
            yield gap(space, StatusCode.RING_UNREADABLE)
            return
        current, size, ring_status = decoder.header(head)
        start = ring + decoder.trace_db
        stated, size = size, decoder.true_size(self._memory, start, current, size)
        if ring_status or size != stated:
            yield gap(space, ring_status or StatusCode.TABLE_SIZE)
        data = self._memory.load(start, size * decoder.entry_size)
        if decoder.is_ahead(data, start, current, size):
            yield gap(space, contradicted("CurrentStackIndex"))
        yield from self._events_of_handles(space, table, decoder.events(data, start, current, size))

    def _events_of_handles(
        self, space: AddressSpace, table: HandleTable, events: Iterator[Union[HandleTrace, int]]
    ) -> Iterator[Listed]:
        """Goes back in time: the first open event of a handle opened the present handle."""
        settled: Set[int] = set()
        decoder, lost = self._decoder, False
        for event in events:
            if isinstance(event, int):
                lost = True
                yield gap(space, StatusItem(StatusCode.EVENTS_UNREADABLE, event))
                continue
            event_status = NOTHING
            found: Optional[ObjectInfo] = None
            leak = False
            if event.type == handle_ring.OPEN and event.handle not in settled:
                entry, known = self._tables.lookup(table, event.handle)
                leak = entry is not None or not known
                if entry is not None:
                    found = self._objects.describe(entry.object_header)
                    event_status = status(found.status, StatusCode.EVENTS_LOST if lost else None)
                else:
                    event_status = status(
                        StatusCode.NO_LONGER_OPEN if known else StatusCode.HANDLE_TABLE_UNREADABLE
                    )
            if event.type in (handle_ring.OPEN, handle_ring.CLOSE):
                settled.add(event.handle)
            wide = max(event.unique_process, event.unique_thread) > ids.MAX_ID
            yield HandleEvent(
                space,
                event.handle,
                _EVENTS.get(event.type, ""),
                ids.identifier(event.unique_process),
                ids.identifier(event.unique_thread),
                event.sequence,
                found,
                leak,
                status(
                    event_status,
                    None if event.type in _EVENTS else StatusItem(StatusCode.UNKNOWN_TYPE, event.type),
                    StatusCode.BEYOND_THE_RINGS_COUNTER if event.sequence <= 0 else None,
                    StatusCode.CLIENT_ID_ABOVE_32_BITS if wide else None,
                ),
                RecordedStack(RING, 0, 0, event.frames, NOTHING, len(event.frames) >= decoder.max_depth),
            )
