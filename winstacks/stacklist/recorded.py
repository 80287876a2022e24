# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks that Windows recorded: kinds `std`, `heaplog`, `heap`, `lock`, `handle` and `object`."""

from __future__ import annotations

from functools import cached_property
from typing import Collection, Dict, Iterator, Optional, Tuple

from ..columns.words import HANDLE, HEAP, HEAPLOG, LOCK, OBJECT, STD, WAITING
from ..handles.events import HandleEvent, handle_events, is_selected
from ..handles.lister import ActingSpaces
from ..heaps.decode.block import TraceGroup
from ..heaps.decode.contents import HeapOwner
from ..heaps.lister import Heaps
from ..locks.lister import LockLister
from ..locks.lock import Lock
from ..memory.decode.status import Status, StatusItem, naming, status, text
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..names.symbolizer import Symbolizer
from ..objects.lister import ObjectEvent, ObjectTraceLister
from ..process import globalflag
from ..process.objectheaders import ObjectInfo
from ..tracedb.decode import status as tracestatus
from ..tracedb.decode.anomalies import Trace
from ..tracedb.decode.heaplog import HeapLog
from ..tracedb.decode.recorded import NO_STACK
from ..tracedb.finder import Databases, Opened
from ..tracedb.gap import Gap
from ..tracedb.model import Database
from .decode import keys
from .frames import NamedFrames
from .imagefacts import Totals
from .stack import Distinct, StackRecord, gap

BLOCKS = "blocks"
"""OwnerName of the stacks that allocated heap blocks; heaps and segments have names of their own."""

MAX_OWNERS = 64
"""The most owners of a lock that Status names."""

MAX_COUNTED = 1 << 24
"""More traces than a database can have: a larger count is not believed."""

_MOST = (1 << 63) - 1


class RecordedStacks:
    """Lists the recorded stacks of an image. What a list needs is made when it is first asked for: a missing
    symbol costs only its own stacks."""

    def __init__(self, symbolizer: Symbolizer, frames: NamedFrames) -> None:
        self._image = image = symbolizer.image
        self._kernel = image.kernel
        self._frames = frames
        self._databases = Databases(image, symbolizer.indexes)

    @cached_property
    def _heaps(self) -> Heaps:
        return Heaps(self._image, self._databases)

    @cached_property
    def _locks(self) -> LockLister:
        return LockLister(self._image, self._databases)

    def of_databases(
        self, kinds: Collection[str], carve: bool, space: AddressSpace, totals: Totals
    ) -> Iterator[StackRecord]:
        """Yields the traces of databases and trace logs, and rows for those that cannot be read. `carve` says
        whether to add freed and orphan entries, and databases to which no pointer leads."""
        distinct = Distinct()
        search_result = self._databases.search(space, carve)
        flags = globalflag.read(self._image, space)
        missing = self._databases.missing(space, search_result, flags)
        missing_log = self._databases.missing_log(space, search_result, flags)
        space_status = status(space.remark, space.status)
        # The remark on the kernel's space is the status of the process list.
        for kind, reason in (
            (STD, status(space_status, missing)),
            (HEAPLOG, status(space_status, missing_log)),
        ):
            if reason and kind in kinds:
                yield gap(kind, distinct.key(kind, space, 0, ""), space, reason)
        for database in search_result.databases:
            if database.kind in kinds:
                totals.databases += 1
                yield from self._database(database, carve, distinct)

    def _database(self, database: Database, carve: bool, distinct: Distinct) -> Iterator[StackRecord]:
        opened = self._databases.open_database(database)
        database_status = status(
            database.status, StatusCode.DATABASE_UNREADABLE if opened is None else opened.status
        )
        if database_status:
            key = distinct.key(database.kind, database.space, database.address, "")
            row = gap(database.kind, key, database.space, database_status, database.address)
            yield row._replace(owner_name=database.layout or None, nothing=opened is not None)
        most, indexed = 0 if opened is None else opened.max_depth, 0
        for trace in opened.traces(carve) if opened is not None else ():
            indexed += bool(trace.trace_index) or database.header is None
            yield self._trace(database, trace, len(trace.frames) >= most, distinct)
        missing = self._counted(database, opened) - indexed
        if missing > 0 and opened is not None and _is_unread(opened):
            database_status = status(StatusItem(StatusCode.TRACES_UNREADABLE, missing))
            yield distinct.lost(database.kind, database.space, database_status, database.address)

    @staticmethod
    def _counted(database: Database, opened: Optional[Opened]) -> int:
        """Returns the database's own count of its traces, 0 if unknown."""
        count = opened.trace_count if isinstance(opened, HeapLog) else None
        if database.header is not None:
            count = database.header.back_traces
        return 0 if count is None or count > MAX_COUNTED else count

    def _trace(self, database: Database, trace: Trace, full: bool, distinct: Distinct) -> StackRecord:
        space, kind, numbers = database.space, database.kind, (trace.trace_index or 0, trace.address)
        if trace.status:
            key = distinct.key(kind, space, database.address, "", *numbers)
        else:
            # No two sound traces share an entry: most of their keys need not be stored.
            key = keys.trace_id(kind, space.eprocess, database.address, space.arch, "", *numbers)
        freed = bool(trace.status & tracestatus.FREED)
        return StackRecord(
            kind,
            key,
            space,
            database.address,
            database.layout or None,
            self._frames.for_space(space).stack(trace.frames, freed),
            tracestatus.status_of(trace.status),
            counted=1 if trace.trace_count is None else trace.trace_count,
            depth=trace.depth,
            hash=trace.hash,
            full=full,
        )

    def of_heaps(self, space: AddressSpace, _: Totals) -> Iterator[StackRecord]:
        """Yields the stacks that allocated heap blocks, and that created heaps and their segments.

        A heap or segment without a recorded creator gets a row only if it is damaged.
        """
        contents, distinct = self._heaps.read(space), Distinct()
        if contents is None:
            return
        if contents.status:
            yield gap(HEAP, distinct.key(HEAP, space, 0, ""), space, contents.status)
        for owner in contents.owners:
            if owner.trace is not None or owner.status:
                yield self._owner(space, owner, distinct)
        for group in contents.groups:
            yield self._group(space, group, distinct)

    def _owner(self, space: AddressSpace, owner: HeapOwner, distinct: Distinct) -> StackRecord:
        trace = owner.trace
        return StackRecord(
            HEAP,
            distinct.key(HEAP, space, owner.address, _piece(owner.kind)),
            space,
            owner.address,
            owner.kind,
            self._frames.for_space(space).name_recorded(trace or NO_STACK),
            owner.joined_status,
            counted=None if trace is None else 1,
            depth=None if trace is None else len(trace.frames),
            hash=None if trace is None else trace.hash,
            nothing=trace is None,
            full=trace is not None and trace.full,
        )

    def _group(self, space: AddressSpace, group: TraceGroup, distinct: Distinct) -> StackRecord:
        trace = group.trace or NO_STACK
        numbers: Tuple[int, ...] = ()
        if group.trace is not None:
            # A trace within a block has no address of its own: only its frames distinguish it.
            numbers = trace.trace_index, trace.address or int(keys.digest(repr(trace.frames)), 16)
        words = (trace.kind or "none", "freed" if group.freed else "", text(group.status))
        unsized = group.unsized == group.allocations
        return StackRecord(
            HEAP,
            distinct.key(HEAP, space, 0, _piece(" ".join(filter(None, words))), *numbers),
            space,
            group.heaps[0] if len(group.heaps) == 1 else None,
            BLOCKS,
            self._frames.for_space(space).name_recorded(trace),
            group.joined_status,
            counted=group.allocations,
            size=None if unsized or group.size > _MOST else group.size,
            depth=len(trace.frames),
            hash=trace.hash,
            full=trace.full,
        )

    def of_locks(self, space: AddressSpace, _: Totals) -> Iterator[StackRecord]:
        """Yields the stacks that created locks; a lock without a recorded stack gets no row."""
        distinct = Distinct()
        for lock in self._locks.list_created(space):
            if isinstance(lock, Gap):
                yield distinct.lost(LOCK, space, lock.status)
            elif lock.back_trace_index != 0 or lock.creator_address:
                yield self._lock(space, lock, distinct)

    def _lock(self, space: AddressSpace, lock: Lock, distinct: Distinct) -> StackRecord:
        addresses = lock.stack.frames
        address = lock.debug_info if lock.address is None else lock.address
        tids = _owners(lock)
        return StackRecord(
            LOCK,
            distinct.key(LOCK, space, address or 0, "", lock.back_trace_index or 0),
            space,
            address,
            lock.type,
            self._frames.for_space(space).name_recorded(lock.stack),
            status(lock.joined_status, _owned(lock, tids)),
            tid=tids[0] if tids else None,
            more_tids=tids[1:],
            counted=1,
            depth=len(addresses) if lock.back_trace_index is not None or addresses else None,
            hash=lock.stack.hash,
            full=lock.stack.full,
        )

    def of_handles(self, pids: Optional[Collection[int]], _: Totals) -> Iterator[StackRecord]:
        """Yields the stacks that opened, closed and created handles; of all processes if `pids` is None."""
        handles = self._image.service(handle_events)(self._databases)
        natives = handles.list_spaces()
        acting = ActingSpaces(self._image, natives)
        for space in natives:
            distinct, newer = Distinct(), 0
            for event in handles.list_events(space):
                newer = newer if isinstance(event, Gap) else event.sequence or newer
                if not is_selected(event, space, pids):
                    continue
                if isinstance(event, Gap):
                    yield distinct.lost(HANDLE, space, event.status, 0, newer)
                else:
                    yield self._handle(event, acting.space_of(event), distinct)

    def _handle(self, event: HandleEvent, acting: AddressSpace, distinct: Distinct) -> StackRecord:
        body = 0 if event.object is None else event.object.body
        key = distinct.key(HANDLE, event.space, event.handle or 0, event.event, event.sequence or 0, body)
        return StackRecord(
            HANDLE,
            key,
            event.space,
            event.handle,
            _described(event.object),
            self._frames.for_space(acting).name_recorded(event.stack),
            event.status,
            tid=event.by_tid,
            event=event.event or None,
            counted=1,
            depth=len(event.stack.frames),
            hash=event.stack.hash,
            full=event.stack.full,
            acting=acting,
        )

    def of_objects(self, _: Totals) -> Iterator[StackRecord]:
        """Yields the stacks that added and dropped references to traced objects."""
        times: Dict[int, int] = {}
        of_none = distinct = Distinct()
        last = 0
        for event in ObjectTraceLister(self._image).list_events():
            body = 0 if isinstance(event, Gap) or event.object is None else event.object.body
            if body != last:
                # There may be millions of events: only the keys of one object's are stored at a time.
                last, times[body] = body, times.get(body, 0) + 1
                distinct = Distinct(times[body]) if body else of_none
            if isinstance(event, Gap):
                yield distinct.lost(OBJECT, self._kernel, event.status)
            else:
                yield self._object(event, body, distinct)

    def _object(self, event: ObjectEvent, body: int, distinct: Distinct) -> StackRecord:
        if event.event:
            key = distinct.key(OBJECT, self._kernel, body, event.event, event.sequence or 0)
        else:
            key = distinct.gap(OBJECT, self._kernel, event.status, body)
        return StackRecord(
            OBJECT,
            key,
            self._kernel,
            body or None,
            _described(event.object),
            self._frames.for_space(self._kernel).name_recorded(event.stack),
            event.status,
            event=event.event or None,
            counted=event.num_traces,
            depth=len(event.stack.frames) if event.event else None,
            hash=event.stack.hash,
            nothing=not (event.event or event.status),
            full=event.stack.full,
        )


def _is_unread(opened: Opened) -> bool:
    """Returns whether used parts of a database are not in the image."""
    return bool(opened.figures().unreadable if isinstance(opened, HeapLog) else opened.unreadable)


def _owners(lock: Lock) -> Tuple[int, ...]:
    """Returns the IDs of the threads that own a lock, each once; an exclusive owner comes first."""
    owners = [lock.owner, *(owner.owner for owner in lock.owners if owner.kind != WAITING)]
    return tuple(dict.fromkeys(owner.tid for owner in owners if owner is not None))


def _owned(lock: Lock, tids: Tuple[int, ...]) -> Status:
    """Returns the additions to a lock's status for its owners, whose IDs are `tids`."""
    several = naming(StatusCode.OWNED_BY, *map(str, tids[:MAX_OWNERS])) if len(tids) > 1 else None
    more = StatusItem(StatusCode.MORE_OWNERS, len(tids) - MAX_OWNERS) if len(tids) > MAX_OWNERS else None
    return status(*(owner.status for owner in lock.owners), several, more)


def _described(thing: Optional[ObjectInfo]) -> Optional[str]:
    """Returns the type and the name of an object as one text."""
    return None if thing is None else " ".join(filter(None, (thing.type, thing.name))) or None


def _piece(words: str) -> str:
    """Returns words in the form of a TraceId."""
    return words.replace(":", "").replace(",", "").replace(" ", "-")
