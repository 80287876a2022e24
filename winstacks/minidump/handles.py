# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The handle events of a dump, recorded by Application Verifier (HandleOperationListStream).

The dump does not have the order of these events, so an event has no number. HandleDataStream has the handles
that were open when the dump was written.
"""

from __future__ import annotations

from functools import cached_property
from typing import Dict, Iterator, List, Optional

from ..handles.events import HandleEvent, Listed
from ..memory.decode.status import status
from ..memory.image import AddressSpace, Image
from ..process.objectheaders import ObjectInfo
from ..process.spaces import AddressSpaces
from ..tracedb.decode.recorded import RING, RecordedStack
from ..tracedb.gap import gap
from ..waits.handlenames import HandleObject
from .decode.dumpfile import Minidump
from .decode.handleobjects import mutant_owners
from .decode.handles import (
    MAX_TRACES,
    HandleDescriptor,
    HandleOperation,
    handle_data,
    handle_operation_list,
)

_EVENTS = {1: "open", 2: "close", 3: "badref"}
"""Names of eHANDLE_TRACE_OPERATIONS, the same as for the kernel's rings."""


class DumpHandles:
    """Lists the handle events of a dump; made by the provider of `handle_events`."""

    def __init__(self, image: Image, dump: Minidump) -> None:
        self._image = image
        self._dump = dump

    def list_spaces(self) -> List[AddressSpace]:
        return [space for space in AddressSpaces.list_spaces(self._image) if not space.wow64]

    @cached_property
    def _objects(self) -> Dict[int, HandleObject]:
        handles, _ = handle_data(self._dump)
        owners = mutant_owners(self._dump, handles)
        return {
            handle.Handle: HandleObject(handle.TypeName, handle.ObjectName, owners.get(handle.Handle))
            for handle in handles
        }

    def object_of(self, handle: int) -> Optional[HandleObject]:
        """Returns the object of a handle: the provider of `handle_objects`."""
        return self._objects.get(handle)

    def list_events(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the events in the order of the dump, and a gap for events that cannot be read."""
        operations, faults = handle_operation_list(self._dump)
        handles, handle_faults = handle_data(self._dump)
        if faults or handle_faults:
            yield gap(space, faults, handle_faults)
        opened = {handle.Handle: handle for handle in handles}
        closed = {
            operation.Handle for operation in operations if _EVENTS.get(operation.OperationType) == "close"
        }
        for operation in operations:
            yield self._event(space, operation, opened, operation.Handle in closed)

    def _event(
        self,
        space: AddressSpace,
        operation: HandleOperation,
        opened: Dict[int, HandleDescriptor],
        closed: bool,
    ) -> HandleEvent:
        event, handle = _EVENTS.get(operation.OperationType, ""), opened.get(operation.Handle)
        canonical = self._image.machine.canonical
        return HandleEvent(
            space,
            operation.Handle,
            event,
            operation.ProcessId,
            operation.ThreadId,
            object=None if handle is None else ObjectInfo(0, handle.TypeName, handle.ObjectName, ()),
            leak=event == "open" and handle is not None and not closed,
            status=status(space.remark, operation.status),
            stack=RecordedStack(
                RING,
                0,
                0,
                tuple(map(canonical, operation.addresses)),
                full=operation.Depth >= MAX_TRACES,
            ),
        )
