# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The events of handles (open, close, ...), and the rings in which the kernel keeps them."""

from __future__ import annotations

from typing import Iterator, Optional, Set, Tuple, Union

from ..base.decode.record import Record
from ..base.decode.status import NOTHING, Said, Status, Word, status
from ..base.handletables import HandleTable, HandleTables
from ..base.image import Image
from ..base.objectheaders import ObjectInfo, Objects
from ..base.space import AddressSpace
from ..threads import ids
from .decode import handle_ring
from .decode.handle_ring import HandleTrace, RingDecoder

_EVENTS = {
    handle_ring.OPEN: "open",
    handle_ring.CLOSE: "close",
    handle_ring.BAD_REFERENCE: "badref",
}


class HandleEvent(Record):
    """An event, or a hole among them.

    Attributes:
        space: the process whose handle it is
        handle: as recorded; None for the creation of an object, and for a hole
        event: `open`, `close`, `badref` or `create`; empty for a hole and for an unknown type
        by_pid, by_tid: the process and thread that did it; None if that is not recorded
        sequence: number of the event in its ring, counted from 1; None for an event that is in no ring
        object: the object that the handle names now; None if it names none
        frames: canonical, innermost first, kernel and user; None for a frame that cannot be read
        leak: the handle was opened and, as far as is known, is still open
        status: what is wrong with the event; empty if nothing is
        full: there are as many frames as Windows keeps: outer ones may be missing
    """

    space: AddressSpace
    handle: Optional[int] = None
    event: str = ""
    by_pid: Optional[int] = None
    by_tid: Optional[int] = None
    sequence: Optional[int] = None
    object: Optional[ObjectInfo] = None
    frames: Tuple[Optional[int], ...] = ()
    leak: bool = False
    status: Status = NOTHING
    full: bool = False


def hole(space: AddressSpace, *said: Union[Word, Said, Status]) -> HandleEvent:
    """Returns the event that stands for events that cannot be read."""
    return HandleEvent(space, status=status(*said))


class HandleRings:
    """Reads the rings of an image.

    Args:
        image: the image
        tables: reads handle tables

    Raises:
        MissingMemberError: when the kernel's symbols do not describe the rings
    """

    def __init__(self, image: Image, tables: HandleTables) -> None:
        self._memory = image.memory(image.kernel)
        self._tables = tables
        self._objects = image.part(Objects)
        self._decoder = RingDecoder(image.types, image.pointer_size)

    def list_events(self, space: AddressSpace, table: HandleTable) -> Iterator[HandleEvent]:
        """Yields the events of a process, newest first, and the holes among them.

        Args:
            space: the process
            table: its handle table
        """
        if not table.debug_info:
            return
        decoder = self._decoder
        head = self._memory.read(table.debug_info, decoder.trace_db)
        if head is None:
            yield hole(space, Word.RING_UNREADABLE)
            return
        current, size, said = decoder.header(head)
        start = table.debug_info + decoder.trace_db
        stated, size = size, decoder.true_size(self._memory, start, current, size)
        if said or size != stated:
            yield hole(space, said or Word.TABLE_SIZE)
        ring = self._memory.load(start, size * decoder.entry_size)
        yield from self._tell(space, table, decoder.events(ring, start, current, size))

    def _tell(
        self, space: AddressSpace, table: HandleTable, events: Iterator[Union[HandleTrace, int]]
    ) -> Iterator[HandleEvent]:
        """Goes back in time: the first open of a handle that it meets opened the present handle."""
        settled: Set[int] = set()
        lost = False
        for event in events:
            if isinstance(event, int):
                lost = True
                yield hole(space, Said(Word.EVENTS_UNREADABLE, event))
                continue
            said = NOTHING
            found: Optional[ObjectInfo] = None
            leak = False
            if event.type == handle_ring.OPEN and event.handle not in settled:
                entry, known = self._tables.lookup(table, event.handle)
                leak = entry is not None or not known
                if entry is not None:
                    found = self._objects.describe(entry.object_header)
                    said = status(found.status, Word.EVENTS_LOST if lost else None)
                else:
                    said = status(Word.NO_LONGER_OPEN if known else Word.HANDLE_TABLE_UNREADABLE)
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
                event.frames,
                leak,
                status(
                    said,
                    None if event.type in _EVENTS else Said(Word.UNKNOWN_TYPE, event.type),
                    Word.BEYOND_THE_RINGS_COUNTER if event.sequence < 0 else None,
                    Word.CLIENT_ID_ABOVE_32_BITS if wide else None,
                ),
                len(event.frames) >= self._decoder.max_depth,
            )
