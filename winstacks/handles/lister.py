# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the threads that opened and closed handles, and the creators of handles and objects."""

from __future__ import annotations

import functools
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

from ..columns.words import CREATE
from ..memory import bulk
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import KERNEL_PID, AddressSpace, Image
from ..process import globalflag
from ..process import threadids as ids
from ..process.decode import globalflags
from ..process.handletables import HandleTable, HandleTables
from ..process.objectheaders import Objects
from ..process.processlist import process_list
from ..process.spaces import AddressSpaces
from ..tracedb.creators import CreatorTraces, no_such_index
from ..tracedb.decode.recorded import RecordedStack
from ..tracedb.finder import Databases
from ..tracedb.gap import Gap, gap
from .events import HandleEvent, Listed
from .rings import rings

_KEPT = globalflags.FLG_KERNEL_STACK_TRACE_DB | globalflags.FLG_MAINTAIN_OBJECT_TYPELIST
"""An object's header has its creator's trace only if both flags are set."""

_INDICES = range(1, 1 << 16)
"""CreatorBackTraceIndex has 16 bits, in a handle's entry and in an object's header."""

MAX_SHARERS = 4
"""The number of processes that do not own a handle table for which it is read all the same."""

_NO_TABLE = HandleTable(0, 0, 0)

_Creation = Tuple[Optional[int], int, Optional[int], int]
"""A handle or object with its creator's trace: the handle (None for an object), the address of the object's
header, the creator's process ID (None if it is not kept), the index of the trace."""


class ActingSpaces:
    """The address space in which the frames of an event are named: the space of the acting process.

    An event has the ID by which Windows finds the process, whatever ID the process's own structure has.
    """

    def __init__(self, image: Image, natives: Iterable[AddressSpace]) -> None:
        self._image = image
        self._spaces: Dict[Optional[int], AddressSpace] = {}
        # Of processes whose ID is in their own structure alone.
        self._alike: Dict[Optional[int], AddressSpace] = {}
        listed = image.service(process_list)
        for space in natives:
            if not space.kernel:
                found = listed.id_of(space.eprocess) if space.eprocess else None
                (self._alike if found is None else self._spaces).setdefault(found or space.pid, space)

    def space_of(self, event: HandleEvent) -> AddressSpace:
        """Returns the address space: the kernel's of a process that has ended."""
        # The process that created a handle is not recorded; as a rule it is the process that has the handle.
        pid = event.by_pid
        if pid is None:
            return event.space
        known = self._spaces.get(pid) or (event.space if pid == event.space.pid else self._alike.get(pid))
        if known is not None:
            return known
        # If the whole list lacks an ID, the process with this ID has ended.
        lost = pid != KERNEL_PID and self._image.service(process_list).status
        return unknown_process(self._image, pid) if lost else self._image.kernel


def unknown_process(image: Image, pid: Optional[int]) -> AddressSpace:
    """Returns what stands for a process that may be among those that the image lacks."""
    unreadable = status(StatusCode.PROCESS_UNREADABLE)
    return AddressSpace(pid, "", image.machine, "", status=unreadable, remark=unreadable)


class HandleLister:
    """Lists the events of handles. Raises MissingMemberError if the kernel's symbols do not describe handle
    tables."""

    def __init__(self, image: Image, databases: Databases) -> None:
        self._image = image
        self._databases = databases
        self._tables = image.service(HandleTables)
        self._objects = image.service(Objects)
        self._rings = rings(image, self._tables)
        flags = globalflag.read(image, image.kernel)
        self._objects_have_creators = flags is not None and flags & _KEPT == _KEPT
        self._seen: Set[int] = set()
        self._named: Set[int] = set()
        self._claimed: Dict[int, int] = {}
        self._processes = {process.eprocess for process in image.service(process_list).processes()}

    def list_spaces(self) -> List[AddressSpace]:
        """Returns the native spaces of all processes.

        Before them the kernel's, if the list of processes is damaged, or if a ring of events is of none.
        Behind them, where processes may be missing, those that only their events know.
        """
        loose = self._rings.orphan_rings if self._rings is not None else {}
        lost = self._rings is not None and (KERNEL_PID in loose or self._rings.truncated)
        listed = AddressSpaces.list_spaces(self._image)
        found = [space for space in listed if not space.wow64 and (space.remark or not space.kernel or lost)]
        known = {space.pid for space in found} | {KERNEL_PID}
        return found + [unknown_process(self._image, pid) for pid in loose if pid not in known]

    def list_events(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the events of a process: the events of its ring, newest first, then creations.

        An event with a status stands for each unreadable part of the handle table. The creation of an object
        is listed once, in the first process with a handle to it.
        """
        if space.remark or space.status:
            # The ring is in kernel memory and can be read: only the names of user frames are lost.
            yield gap(space, space.remark, space.status)
        holes, table = self._listed(space)
        yield from holes
        if table is not None:
            if self._rings is not None:
                yield from self._image.possible(self._rings.list_events(space, table))
            yield from self._creations(space, table) if table.address else ()
        if space.kernel and self._rings is not None and self._rings.truncated:
            yield gap(space, StatusCode.EVENT_LIMIT)

    def _listed(self, space: AddressSpace) -> Tuple[List[Gap], Optional[HandleTable]]:
        """Returns the faults of the handle table of a process, and the table whose events are listed."""
        table, table_status = self._table(space.eprocess) if space.eprocess else (_NO_TABLE, NOTHING)
        holes = [gap(space, table_status)] if table_status else []
        if table is None:
            holes.append(gap(space, StatusCode.HANDLE_TABLE_UNREADABLE))
        elif table.address and self._is_shared(space, table):
            holes.append(gap(space, StatusCode.HANDLE_TABLE_SHARED))
            table = None
        return holes, table

    def _table(self, eprocess: int) -> Tuple[Optional[HandleTable], Status]:
        """Returns the handle table of a process, and the contradictions of the kernel's list of tables.

        The table is None if it cannot be read. A table that was made for another process is left to that
        process.
        """
        table, listed = self._tables.table_of(eprocess), self._tables.listed_table(eprocess)
        wrong = contradicted("ObjectTable")
        if listed is not None:
            return listed, wrong if table is None or table.address != listed.address else NOTHING
        owners = self._tables.all_listed
        owner = owners.get(table.address) if owners and table is not None and table.address else 0
        # The list has the table for no process, for another process, or not any more.
        return _NO_TABLE if owner in self._processes else table, NOTHING if owner == 0 else wrong

    def _is_shared(self, space: AddressSpace, table: HandleTable) -> bool:
        """Returns whether more than MAX_SHARERS processes already claimed this table or its ring.

        In Windows each process has a table of its own. The process that the table names always gets it, when
        the table is first met under its ID.
        """
        if table.pid == space.pid and table.address not in self._named:
            self._named.add(table.address)
            return False
        addresses = filter(None, (table.address, table.debug_info))
        places = {bulk.physical(self._image.layer, address) for address in addresses}
        for place in places:
            self._claimed[place] = self._claimed.get(place, 0) + 1
        return any(self._claimed[place] > MAX_SHARERS for place in places)

    @functools.cached_property
    def _creators(self) -> Dict[int, RecordedStack]:
        """The stacks of all possible indices: the kernel's database is decoded once, not for each process."""
        return CreatorTraces(self._databases).resolve(self._image.kernel, _INDICES, stored_in_16_bits=True)

    def _creations(self, space: AddressSpace, table: HandleTable) -> Iterator[Listed]:
        if not self._tables.has_creators and not self._objects_have_creators:
            return
        creations: List[_Creation] = []
        missing = unreadable = 0
        for entry in self._tables.entries(table):
            if entry is None:
                missing += 1
                continue
            if entry.creator:
                creations.append((entry.handle, entry.object_header, None, entry.creator))
            if self._objects_have_creators and entry.object_header not in self._seen:
                self._seen.add(entry.object_header)
                creator = self._objects.creator(entry.object_header)
                unreadable += creator is None
                if creator is not None and creator.back_trace_index:
                    creations.append((None, entry.object_header, creator.pid, creator.back_trace_index))
        for handle, header, pid, index in creations:
            stack = self._creators.get(index) or no_such_index(index)
            yield self._creation(space, handle, header, pid, stack)
        for count, word in (
            (missing, StatusCode.PAGES_OF_THE_HANDLE_TABLE_UNREADABLE),
            (unreadable, StatusCode.OBJECT_HEADERS_UNREADABLE),
        ):
            if count:
                yield gap(space, StatusItem(word, count))

    def _creation(
        self,
        space: AddressSpace,
        handle: Optional[int],
        header: int,
        pid: Optional[int],
        stack: RecordedStack,
    ) -> HandleEvent:
        found = self._objects.describe(header)
        wide = pid is not None and pid > ids.MAX_ID
        return HandleEvent(
            space,
            handle,
            CREATE,
            ids.identifier(pid),
            object=found,
            status=status(found.status, StatusCode.CLIENT_ID_ABOVE_32_BITS if wide else None, stack.status),
            stack=stack,
        )
