# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The events of handles, and the service that lists them: of a kernel's tables, or of a dump."""

from __future__ import annotations

import functools
from typing import Any, Callable, Collection, Iterator, List, Optional, Protocol, Union

from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.image import AddressSpace, Image
from ..process.objectheaders import ObjectInfo
from ..tracedb.decode.recorded import NO_STACK, RecordedStack
from ..tracedb.gap import Gap


class HandleEvent(NamedTuple):
    """An event.

    Attributes:
        handle: handle as recorded; None for the creation of an object
        event: a word of `words.EVENTS`; empty for an unknown type
        by_pid, by_tid: IDs of the acting process and thread; None if not recorded
        sequence: number of the event in its ring, counted from 1; None for an event that is in no ring
        object: the object that the handle names now; None if it names none
        leak: whether the handle was opened and, as far as is known, is still open
        status: faults of the event or its stack; empty for none
    """

    space: AddressSpace
    handle: Optional[int] = None
    event: str = ""
    by_pid: Optional[int] = None
    by_tid: Optional[int] = None
    sequence: Optional[int] = None
    object: Optional[ObjectInfo] = None
    leak: bool = False
    status: Status = NOTHING
    stack: RecordedStack = NO_STACK


Listed = Union[HandleEvent, Gap]
"""An event, or a gap between events."""


class HandleEvents(Protocol):
    """Lists the events of handles."""

    def list_spaces(self) -> List[AddressSpace]:
        """Returns the native spaces of all processes; see `HandleLister.list_spaces`."""

    def list_events(self, space: AddressSpace) -> Iterator[Listed]:
        """Yields the events of a process; see `HandleLister.list_events`."""


def handle_events(image: Image) -> Callable[[Any], HandleEvents]:
    """Returns the maker of the lister for `image.service(handle_events)`: here it reads a kernel's tables.

    The maker takes the finder of the databases (`tracedb/finder.py`), which hold the stacks of creators.
    """
    # Dumps, which provide their own, do without the modules for tables and databases.
    from .lister import HandleLister

    return functools.partial(HandleLister, image)


def is_selected(event: Listed, space: AddressSpace, pids: Optional[Collection[int]]) -> bool:
    """Returns whether --pid selects an event of a process: all events of a selected process, and in the table
    of any other process those that a selected process made, and where such events may be lost.

    Each process is read, so that --pid changes neither which process lists the creation of an object nor the
    keys of rows. `pids` are the selected processes; None for all.
    """
    if pids is None or space.pid in pids:
        return True
    if isinstance(event, Gap):
        # That names of the other process are lost concerns none of its events.
        return bool(pids) and event.status != status(space.remark, space.status)
    return event.by_pid in pids
