# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the references that were taken and dropped on the objects that the Object Manager traces."""

from __future__ import annotations

from typing import Iterator, Optional, Set, Union

from ..columns.words import DEREFERENCE, REFERENCE
from ..memory import bulk
from ..memory.decode import text
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import WINDOW, Memory, ReadWindows
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..process.cidtable import CidTable
from ..process.handletables import handle_tables
from ..process.objectheaders import ObjectInfo, Objects
from ..process.processlist import process_list
from ..tracedb.decode.recorded import NO_STACK, OBJECTS, RecordedStack
from ..tracedb.gap import Gap, gap
from .decode import objecttrace
from .decode.objecttrace import RefDecoder, RefEvent, RefInfo, StackTableDecoder

MAX_OBJECTS = 1 << 20
MAX_BEHIND = 1 << 12
"""The most events that are searched behind the counted events of an object."""
MAX_EVENTS = 1 << 22
"""The most events that are read from one image. Windows keeps them in nonpaged pool, 12 bytes each."""


_OBJECTS, _STACKS = "ObpObjectTable", "ObpStackTable"
_LATER = "_RTL_STACKDB_CONTEXT"
"""17763 and later have this type; since build 28000 the traces of objects are kept in it."""


class ObjectEvent(NamedTuple):
    """An event of a traced object, or the object itself where its events cannot be read, or there are none.

    Attributes:
        object: address of the object; None if unknown
        process: name of the creating process in the trace; None if unknown
        event: `reference` or `dereference`; empty in a row without an event
        num_traces: references taken or dropped; None in a row without an event
        tag: the tag of the reference; None before 7
        sequence: number of the event, counted over all objects
        stack: frames of kernel mode
    """

    object: Optional[ObjectInfo] = None
    process: Optional[str] = None
    event: str = ""
    num_traces: Optional[int] = None
    tag: Optional[str] = None
    sequence: Optional[int] = None
    stack: RecordedStack = NO_STACK
    status: Status = NOTHING


Listed = Union[ObjectEvent, Gap]
"""An event, or a gap that stands for events that cannot be read."""


class ObjectTraceLister:
    """Lists the reference traces of objects."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def list_events(self) -> Iterator[Listed]:
        """Yields the events object by object, the events of an object in the order in which they happened.

        Only the form of Vista SP1 to build 26100 is read. For another form there is one row whose status
        names the form.
        """
        image = self._image
        lacking = objecttrace.undescribed(image.types)
        complete_types = not lacking
        for name in lacking if len(lacking) < len(objecttrace.FORM) else ():
            image.lacks(name)
        symbol = image.require_symbol(_OBJECTS)
        if symbol is None:
            yield gap(image.kernel, StatusCode.NO_SYMBOL if complete_types else self._other_form())
            return
        memory = image.memory(image.kernel)
        table, stacks_symbol = memory.pointer(symbol), image.require_symbol(_STACKS)
        stacks = memory.pointer(stacks_symbol)
        if table is None:
            yield gap(image.kernel, StatusCode.UNREADABLE)
        elif (table or stacks) and (not complete_types or stacks_symbol is None):
            yield gap(image.kernel, self._other_form())
        elif table or stacks:
            if not table:
                yield gap(image.kernel, contradicted(_OBJECTS))
            yield from _Refs(image, stacks).events(table)

    def _other_form(self) -> StatusCode:
        return StatusCode.LATER_FORM if self._image.types.has(_LATER) else StatusCode.EARLIER_FORM


class _Refs:
    """The table of traced objects. `stacks` is the address of the table of traces; 0 or None if there is
    none."""

    def __init__(self, image: Image, stacks: Optional[int]) -> None:
        self._pointer_size = image.pointer_size
        self._wide = image.machine is Machine.AMD64
        self._memory = Memory(ReadWindows(image.reader(image.kernel.layer_name), WINDOW), image.pointer_size)
        self._decoder = RefDecoder(image.types)
        self._objects = image.service(Objects)
        self._stacks = _Stacks(self._memory, stacks, StackTableDecoder(image.types, image.pointer_size))
        self._seen: Set[int] = set()
        self._image, self._kernel = image, image.kernel
        self._headers: Set[int] = set()
        self._claims = bulk.PhysicalClaims(image.layer)
        self._events_left = MAX_EVENTS

    def events(self, table: int) -> Iterator[Listed]:
        """Yields the events of all objects, and a row for events that cannot be read or exceed the limit.
        `table` is the address of the array of chains; 0 if the kernel has none."""
        size = self._pointer_size
        extents = self._memory.load(table, objecttrace.OBJECT_BUCKETS * size)
        unreadable = 0
        for bucket in range(objecttrace.OBJECT_BUCKETS if table else 0):
            head = extents.read(table + bucket * size, size)
            if head is None:
                unreadable += 1
            else:
                yield from self._chain(bucket, int.from_bytes(head, "little"))
        if unreadable:
            yield gap(self._kernel, StatusItem(StatusCode.BUCKETS_UNREADABLE, unreadable))
        yield from self._strangers()
        if not self._events_left:
            yield gap(self._kernel, StatusCode.EVENT_LIMIT)

    def _strangers(self) -> Iterator[Listed]:
        """Yields a row for each object that is traced according to its header and is in no chain.

        The objects are all processes and threads, and the objects behind the handles of the processes. A row
        says so if the list of processes is damaged.
        """
        listed = self._image.service(process_list).status
        if listed:
            yield gap(self._kernel, listed)
        for header in dict.fromkeys(_objects(self._image, self._objects)):
            if header not in self._headers and self._objects.traced(header):
                yield ObjectEvent(self._objects.describe(header), status=status(StatusCode.IN_NO_CHAIN))

    def _chain(self, bucket: int, address: int) -> Iterator[Listed]:
        while address and self._events_left:
            if address in self._seen or len(self._seen) >= MAX_OBJECTS:
                yield gap(self._kernel, StatusCode.CHAIN_LEADS_BACK)
                return
            self._seen.add(address)
            data = self._memory.read(address, self._decoder.stack_info)
            if data is None:
                yield gap(self._kernel, StatusItem(StatusCode.BUCKET_UNREADABLE, bucket))
                return
            info = self._decoder.info(data)
            yield from self._object(bucket, address, info)
            address = info.next_ref

    def _object(self, bucket: int, address: int, info: RefInfo) -> Iterator[ObjectEvent]:
        """Yields the events of an object; an object without events gets a row, too."""
        described = self._objects.describe(info.object_header)
        self._headers.add(info.object_header)
        process = text.cell(info.image_file_name)
        used = self._used(address + self._decoder.stack_info, info)
        too_many = info.next_pos > info.max_stacks
        expected = info.max_stacks if too_many else used
        size = self._decoder.event_size
        start = address + self._decoder.stack_info
        end = self._claims.claim(address, start + min(expected, self._events_left) * size)
        count = max(end - start, 0) // size
        self._events_left -= count
        why = StatusCode.EVENTS_OVERLAP if self._events_left else StatusCode.EVENTS_NOT_READ
        faults = status(
            described.status,
            StatusCode.NO_LONGER_TRACED if self._objects.traced(info.object_header) is False else None,
            StatusCode.BUCKET if self._strays(bucket, described, info) else None,
            contradicted("NextPos") if used != info.next_pos else None,
            contradicted("MaxStacks") if expected > info.max_stacks or not info.max_stacks else None,
            StatusCode.TOO_MANY_EVENTS if too_many else None,
            StatusItem(why, expected - count) if count < expected else None,
        )
        extents = self._memory.load(start, count * size)
        unreadable = 0
        for number in range(count):
            data = extents.read(start + number * size, size)
            if data is None:
                unreadable += 1
            else:
                (event,) = self._decoder.events(data)
                yield self._event(described, process, event, faults)
        if unreadable or not count:
            missing_events = StatusItem(StatusCode.EVENTS_UNREADABLE, unreadable) if unreadable else None
            yield ObjectEvent(described, process, status=status(faults, missing_events))

    def _used(self, start: int, info: RefInfo) -> int:
        """Returns the number of events of an object.

        There are more than NextPos if plausible events lie behind it, and fewer if the last ones before it
        have no Sequence: every event has one, and memory that no event has used yet is 0.
        """
        size, used = self._decoder.event_size, info.next_pos
        most = max(used - MAX_BEHIND, 0)
        while most < used <= info.max_stacks:
            data = self._memory.read(start + (used - 1) * size, size)
            last = next(self._decoder.events(data or b""), None)
            if last is None or last.sequence > 0 or last.num_traces:
                break
            used -= 1
        if used < info.next_pos:
            return used
        return used + self._behind(start + used * size, used, info) if used <= info.max_stacks else used

    def _behind(self, at: int, used: int, info: RefInfo) -> int:
        """Returns the number of plausible events from the address `at` on, behind those that are used.

        Behind the array lies another pool block: a single event may seem plausible there.
        """
        size, found = self._decoder.event_size, 0
        before = self._memory.read(at - size, size) if used else b""
        previous = next(self._decoder.events(before or b""), None)
        while found < MAX_BEHIND:
            data = self._memory.read(at + found * size, size)
            event = next(self._decoder.events(data or b""), None)
            if event is None or not self._decoder.plausible(event, previous, self._stacks.count):
                break
            previous = event
            found += 1
        room = info.max_stacks - used
        return room if found == room + 1 else found

    def _event(self, described: ObjectInfo, process: str, event: RefEvent, faults: Status) -> ObjectEvent:
        stack = self._stacks.stack(event.trace)
        return ObjectEvent(
            described,
            process,
            REFERENCE if event.reference else DEREFERENCE,
            event.num_traces,
            None if event.tag is None else text.cell(objecttrace.tag_text(event.tag)),
            event.sequence,
            stack,
            status(faults, stack.status),
        )

    def _strays(self, bucket: int, described: ObjectInfo, info: RefInfo) -> bool:
        """Returns whether an object is not in the chain of its address; known for 64-bit kernels only."""
        body_offset = described.body - info.object_header
        return self._wide and objecttrace.bucket_of(info.object_header, body_offset) != bucket


class _Stacks:
    """Reads traces by number, each once."""

    def __init__(self, memory: Memory, address: Optional[int], decoder: StackTableDecoder) -> None:
        self._memory = memory
        self._decoder = decoder
        self._known: Memo[int, RecordedStack] = Memo(self._read)
        data = memory.read(address, decoder.header_size) if address else None
        self._table = None if data is None else decoder.table(data)

    @property
    def count(self) -> int:
        """Number of traces; 0 if the table cannot be read."""
        return 0 if self._table is None else self._table[0]

    def stack(self, number: int) -> RecordedStack:
        """Returns a trace; a trace without frames has the reason in its status."""
        return self._known[number]

    def _read(self, number: int) -> RecordedStack:
        address = None if self._table is None else self._decoder.locate(*self._table, number)
        data = None if address is None else self._memory.read(address, self._decoder.trace_size)
        if address is None or data is None:
            missing = StatusCode.NO_STACK_TABLE if self._table is None else StatusCode.NO_SUCH_TRACE
            why = status(missing if address is None else StatusCode.TRACE_UNREADABLE)
            return RecordedStack(OBJECTS, address or 0, 0, (), why)
        frames = self._decoder.trace(data)
        full = bool(frames) and len(frames) >= self._decoder.max_depth
        return RecordedStack(OBJECTS, address, 0, frames, full=full)


def _objects(image: Image, objects: Objects) -> Iterator[int]:
    """Yields the addresses of the headers of the objects that can be found without the tables of traces."""
    ids = image.service(CidTable)
    processes = [process.eprocess for process in image.service(process_list).processes()]
    for body in (*processes, *ids.processes, *ids.threads):
        yield objects.header_of(body)
    tables = handle_tables(image)
    if tables is None:
        return
    for eprocess in processes:
        table = tables.table_of(eprocess) or tables.listed_table(eprocess)
        for entry in tables.entries(table) if table is not None and table.address else ():
            if entry is not None:
                yield entry.object_header
