# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Who opened and closed the handles of processes, and who made handles and objects."""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Set

from volatility3.framework import interfaces

from ..base import globalflag
from ..base.decode import globalflags
from ..base.objectheaders import Objects
from ..base.spaces import AddressSpace
from ..threads import ids
from ..tracedb.creators import Creator, Creators
from ..tracedb.finder import Databases
from . import event
from .event import HandleEvent
from .rings import HandleRings
from .tables import HandleTable, HandleTables, MissingPage

_KEPT = globalflags.FLG_KERNEL_STACK_TRACE_DB | globalflags.FLG_MAINTAIN_OBJECT_TYPELIST
"""Both are needed for an object's header to have its creator's trace."""


class _Made(NamedTuple):
    """Something that remembers its creator's trace: a handle, or (handle None) an object."""

    handle: Optional[int]
    object_header: int
    pid: Optional[int]
    back_trace_index: int


class HandleTraces(interfaces.configuration.VersionableInterface):
    """Lists the events of handles.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        databases: finds the kernel's database
        kernel_space: the kernel's address space
    """

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        databases: Databases,
        kernel_space: AddressSpace,
    ) -> None:
        super().__init__()
        self._kernel_space = kernel_space
        self._tables = HandleTables(context, kernel_module_name, kernel_space)
        self._objects = Objects(context, kernel_module_name)
        self._rings = HandleRings(context, kernel_module_name, self._tables, self._objects)
        self._creators = Creators(databases)
        flags = globalflag.read(context, kernel_module_name, kernel_space)
        self._objects_have_creators = flags is not None and flags & _KEPT == _KEPT
        self._seen: Set[int] = set()

    def list_events(self, space: AddressSpace) -> Iterator[HandleEvent]:
        """Yields the events of a process: its ring's, newest first, then creations.

        What cannot be read of its handle table has an event that says so.

        An object is told of once, in the first process that has a handle to it.

        Args:
            space: the native space of a process
        """
        if space.eprocess is None:
            return
        if space.status:
            # The table is the kernel's memory: only the names of user frames are lost.
            yield event.hole(space, space.status)
        table = self._tables.of(space.eprocess)
        if table is None:
            yield event.hole(space, event.TABLE_UNREADABLE)
        elif table.address:
            yield from self._rings.list_events(space, table)
            yield from self._creations(space, table)

    def _creations(self, space: AddressSpace, table: HandleTable) -> Iterator[HandleEvent]:
        if self._tables.layout.creator is None and not self._objects_have_creators:
            return
        made: List[_Made] = []
        missing = unreadable = 0
        for each in self._tables.entries(table):
            if isinstance(each, MissingPage):
                missing += 1
                continue
            if each.creator:
                made.append(_Made(each.handle, each.object_header, None, each.creator))
            if self._objects_have_creators and each.object_header not in self._seen:
                self._seen.add(each.object_header)
                creator = self._objects.creator(each.object_header)
                unreadable += creator is None
                if creator is not None and creator.back_trace_index:
                    made.append(_Made(None, each.object_header, creator.pid, creator.back_trace_index))
        creators = self._creators.resolve(
            self._kernel_space, {thing.back_trace_index for thing in made}, narrow=True
        )
        for thing in made:
            yield self._creation(space, thing, creators)
        for count, what in (
            (missing, event.PAGES_UNREADABLE),
            (unreadable, event.OBJECTS_UNREADABLE),
        ):
            if count:
                yield event.hole(space, f"{count} {what}")

    def _creation(self, space: AddressSpace, made: _Made, creators: Dict[int, Creator]) -> HandleEvent:
        creator = creators[made.back_trace_index]
        found = self._objects.describe(made.object_header)
        wide = made.pid is not None and made.pid > ids.MAX_ID
        status: List[str] = [found.status, event.WIDE_ID if wide else "", creator.status]
        return HandleEvent(
            space,
            made.handle,
            event.CREATE,
            ids.identifier(made.pid),
            None,
            None,
            found,
            creator.frames,
            False,
            ", ".join(filter(None, status)),
        )
