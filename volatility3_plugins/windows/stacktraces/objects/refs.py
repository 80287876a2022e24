# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The objects that the Object Manager traces, with their events: the chains that ObpObjectTable points to."""

from __future__ import annotations

from typing import Iterator, List, Set

from ..base.decode import text
from ..base.decode.claims import Claims
from ..base.decode.reading import Chunks, Reader
from ..base.objectheaders import ObjectInfo, Objects
from . import event as objectevent
from .decode import objecttrace
from .decode.objecttrace import RefEvent, RefInfo, RefLayout
from .event import ObjectEvent, nothing
from .stacks import ObjectStacks

MAX_OBJECTS = 1 << 20
MAX_EVENTS = 1 << 22
"""Events that are read of one image: Windows takes them from nonpaged pool, 12 bytes each."""


class ObjectRefs:
    """Walks the table of traced objects.

    Args:
        reader: reads the kernel's memory
        layout: of an object with its events
        pointer_size: 4 or 8
        objects: describes objects
        stacks: the traces
    """

    def __init__(
        self, reader: Reader, layout: RefLayout, pointer_size: int, objects: Objects, stacks: ObjectStacks
    ) -> None:
        self._reader = reader
        self._chunks = Chunks(reader)
        self._layout = layout
        self._pointer_size = pointer_size
        self._objects = objects
        self._stacks = stacks
        self._seen: Set[int] = set()
        self._claims = Claims()
        self._events_left = MAX_EVENTS

    def events(self, table: int) -> Iterator[ObjectEvent]:
        """Yields the events of all objects, and what stands for those that cannot be or are not read.

        Args:
            table: address of the array of chains
        """
        size = self._pointer_size
        extents = self._reader(table, objecttrace.OBJECT_BUCKETS * size)
        unreadable = 0
        for bucket in range(objecttrace.OBJECT_BUCKETS):
            head = extents.read(table + bucket * size, size)
            if head is None:
                unreadable += 1
            else:
                yield from self._chain(bucket, int.from_bytes(head, "little"))
        if unreadable:
            yield nothing(f"{unreadable} buckets {objectevent.UNREADABLE}")
        if not self._events_left:
            yield nothing(objectevent.LIMIT)

    def _chain(self, bucket: int, address: int) -> Iterator[ObjectEvent]:
        while address and self._events_left:
            if address in self._seen or len(self._seen) >= MAX_OBJECTS:
                yield nothing(objectevent.CYCLE)
                return
            self._seen.add(address)
            data = self._chunks.read(address, self._layout.stack_info)
            if data is None:
                yield nothing(f"bucket {bucket} {objectevent.UNREADABLE}")
                return
            info = objecttrace.decode_ref_info(data, self._layout)
            yield from self._object(bucket, address, info)
            address = info.next_ref

    def _object(self, bucket: int, address: int, info: RefInfo) -> Iterator[ObjectEvent]:
        """Yields the events of an object; one that has none still gets a row."""
        thing = self._objects.describe(info.object_header)
        process = text.printable(info.image_file_name.decode("latin-1"))
        status = [
            thing.status,
            objectevent.NOT_TRACED if self._objects.traced(info.object_header) is False else "",
            objectevent.BUCKET if self._strays(bucket, thing, info) else "",
            objectevent.TOO_MANY if info.next_pos > info.max_stacks else "",
        ]
        wanted = min(info.next_pos, info.max_stacks)
        size = self._layout.event_size
        start = address + self._layout.stack_info
        end = self._claims.claim(address, start + min(wanted, self._events_left) * size)
        count = max(end - start, 0) // size
        self._events_left -= count
        if count < wanted:
            why = objectevent.OVERLAP if self._events_left else objectevent.NOT_READ
            status.append(f"{wanted - count} events {why}")
        extents = self._reader(start, count * size)
        unreadable = 0
        for number in range(count):
            data = extents.read(start + number * size, size)
            if data is None:
                unreadable += 1
            else:
                (event,) = objecttrace.decode_events(data, self._layout)
                yield self._event(thing, process, event, status)
        if unreadable or not count:
            status.append(f"{unreadable} events {objectevent.UNREADABLE}" if unreadable else "")
            yield nothing(_joined(status), thing, process)

    def _event(self, thing: ObjectInfo, process: str, event: RefEvent, status: List[str]) -> ObjectEvent:
        stack = self._stacks.stack(event.trace)
        return ObjectEvent(
            thing,
            process,
            objectevent.REFERENCE if event.reference else objectevent.DEREFERENCE,
            event.num_traces,
            None if event.tag is None else text.printable(objecttrace.tag_text(event.tag)),
            event.sequence,
            stack.frames,
            _joined([*status, stack.status]),
        )

    def _strays(self, bucket: int, thing: ObjectInfo, info: RefInfo) -> bool:
        """Tells whether an object is in another chain than its address says; known for x64 only."""
        body_offset = thing.body - info.object_header
        return self._pointer_size == 8 and objecttrace.bucket_of(info.object_header, body_offset) != bucket


def _joined(words: List[str]) -> str:
    return ", ".join(filter(None, words))
