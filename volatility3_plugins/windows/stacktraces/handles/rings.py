# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rings of handle traces: who opened and closed each handle of a process."""

from __future__ import annotations

from typing import Iterator, List, Optional, Set, Union

from volatility3.framework import interfaces

from ..base import bulk, members
from ..base.decode.field import Field
from ..base.objectheaders import ObjectInfo, Objects
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from ..threads import ids
from . import event as handleevent
from .decode import handle_ring
from .decode.handle_ring import HandleTrace, Hole, RingLayout
from .event import HandleEvent
from .tables import HandleTable, HandleTables

_INFO, _EVENT = "_HANDLE_TRACE_DEBUG_INFO", "_HANDLE_TRACE_DB_ENTRY"
_EVENTS = {
    handle_ring.OPEN: handleevent.OPEN,
    handle_ring.CLOSE: handleevent.CLOSE,
    handle_ring.BAD_REFERENCE: handleevent.BADREF,
}


class HandleRings:
    """Reads the rings of an image.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
        tables: reads handle tables
        objects: describes objects
    """

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        tables: HandleTables,
        objects: Objects,
    ) -> None:
        kernel = context.modules[kernel_module_name]
        self._context = context
        self._layer_name = kernel.layer_name
        self._peek = Peek(context, kernel.layer_name, tables.layout.pointer_size)
        self._tables = tables
        self._objects = objects
        self._layout = ring_layout(context, kernel.symbol_table_name, tables.layout.pointer_size)

    def list_events(self, space: AddressSpace, table: HandleTable) -> Iterator[HandleEvent]:
        """Yields the events of a process, newest first, and the holes among them.

        Args:
            space: the process
            table: its handle table
        """
        if not table.debug_info:
            return
        layout = self._layout
        head = self._peek.read(table.debug_info, layout.header_size)
        if head is None:
            yield handleevent.hole(space, handleevent.HEADER_UNREADABLE)
            return
        header = handle_ring.decode_header(head, layout)
        if header.status:
            yield handleevent.hole(space, header.status)
        start = table.debug_info + layout.trace_db
        length = header.size * layout.entry_size
        ring = bulk.read_extents(self._context, self._layer_name, start, length)
        events = handle_ring.decode_ring(ring, start, header, layout)
        yield from self._tell(space, table, events)

    def _tell(
        self, space: AddressSpace, table: HandleTable, events: Iterator[Union[HandleTrace, Hole]]
    ) -> Iterator[HandleEvent]:
        """Goes back in time: the first open of a handle that is met made it what it is now."""
        settled: Set[int] = set()
        lost = False
        for event in events:
            if isinstance(event, Hole):
                lost = True
                yield handleevent.hole(space, f"{event.slots} events unreadable")
                continue
            status: List[str] = []
            found: Optional[ObjectInfo] = None
            leak = False
            if event.type == handle_ring.OPEN and event.handle not in settled:
                lookup = self._tables.lookup(table, event.handle)
                leak = lookup.entry is not None or not lookup.readable
                if lookup.entry is not None:
                    found = self._objects.describe(lookup.entry.object_header)
                    status += [found.status, handleevent.EVENTS_LOST if lost else ""]
                else:
                    status.append(handleevent.NOT_OPEN if lookup.readable else handleevent.TABLE_UNREADABLE)
            if event.type in (handle_ring.OPEN, handle_ring.CLOSE):
                settled.add(event.handle)
            status.append("" if event.type in _EVENTS else f"{handleevent.UNKNOWN_TYPE} {event.type}")
            status.append(handleevent.DENIED if event.sequence < 0 else "")
            wide = max(event.unique_process, event.unique_thread) > ids.MAX_ID
            status.append(handleevent.WIDE_ID if wide else "")
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
                ", ".join(filter(None, status)),
            )


def ring_layout(context: interfaces.context.ContextInterface, table: str, pointer_size: int) -> RingLayout:
    """Returns the layout of rings and events from the kernel's symbols.

    Args:
        context: the context whose symbol space holds the table
        table: the kernel's symbol table
        pointer_size: 4 or 8
    """

    def need(type_name: str, path: str) -> Field:
        return members.need(context, table, type_name, path)

    entry_size = members.size_of(context, table, _EVENT)
    trace_db = need(_INFO, "TraceDb")
    stack = need(_EVENT, "StackTrace")
    return RingLayout(
        pointer_size=pointer_size,
        current_stack_index=need(_INFO, "CurrentStackIndex"),
        table_size=members.find(context, table, _INFO, "TableSize"),
        fixed_size=trace_db.size // entry_size,
        trace_db=trace_db.offset,
        entry_size=entry_size,
        unique_process=need(_EVENT, "ClientId.UniqueProcess"),
        unique_thread=need(_EVENT, "ClientId.UniqueThread"),
        handle=need(_EVENT, "Handle"),
        type=need(_EVENT, "Type"),
        stack_trace=stack.offset,
        max_depth=stack.size // pointer_size,
    )
