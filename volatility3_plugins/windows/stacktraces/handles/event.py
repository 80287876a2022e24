# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An event in the life of a handle, as `windows.handletraces` lists it."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from ..base.objectheaders import ObjectInfo
from ..base.spaces import AddressSpace

OPEN, CLOSE, BADREF, CREATE = "open", "close", "badref", "create"

NOT_OPEN = "no longer open"
"""Opened, never seen closed, and yet the handle table has no such handle: closed when nobody traced."""
TABLE_UNREADABLE = "handle table unreadable"
EVENTS_LOST = "events lost"
"""Later events of the ring cannot be read, the handle's close may be among them."""
UNKNOWN_TYPE = "unknown type"
DENIED = "beyond the ring's counter"
WIDE_ID = "ClientId above 32 bits"
"""Process and thread IDs have 32 bits: these are none, and not shown."""
HEADER_UNREADABLE = "ring unreadable"
PAGES_UNREADABLE = "pages of the handle table unreadable"
OBJECTS_UNREADABLE = "object headers unreadable"


class HandleEvent(NamedTuple):
    """An event, or a hole among them.

    Attributes:
        space: the process whose handle it is
        handle: as recorded; None for an object's creation, which has none, and for a hole
        event: `open`, `close`, `badref` or `create`; empty for a hole and for an unknown type
        by_pid, by_tid: who did it; None where that is not recorded
        sequence: number of the event in its ring, the first 1; None where it is in none
        object: what the handle names now, if it still does
        frames: innermost first, kernel and user; None for one that cannot be read
        leak: opened and, as far as is known, open still
        status: empty, or what is wrong
    """

    space: AddressSpace
    handle: Optional[int]
    event: str
    by_pid: Optional[int]
    by_tid: Optional[int]
    sequence: Optional[int]
    object: Optional[ObjectInfo]
    frames: Tuple[Optional[int], ...]
    leak: bool
    status: str


def hole(space: AddressSpace, status: str) -> HandleEvent:
    """Returns what stands for events that cannot be read."""
    return HandleEvent(space, None, "", None, None, None, None, (), False, status)
