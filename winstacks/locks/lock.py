# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The records of `windows.locks`: locks of the kernel or of a process, and gaps where some may be missing."""

from __future__ import annotations

from typing import Optional, Tuple, Union

from ..columns.words import CRITICAL_SECTION
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..process.threadids import ThreadOwner
from ..tracedb.decode.recorded import NO_STACK, RecordedStack
from ..tracedb.gap import Gap


class LockOwner(NamedTuple):
    """A thread that owns a lock, or waits for it.

    `thread` is OwnerThread as stored (canonical), without the low flag bits. If there is no thread at that
    address, `owner` is None and `status` says so.
    """

    thread: int
    owner: Optional[ThreadOwner]
    kind: str
    owner_count: Optional[int]
    status: Status


class Lock(NamedTuple):
    """A lock, as far as it can be read.

    Attributes:
        address: canonical address; None if unknown
        debug_info: address of a section's debug information if only that is known, else None
        type: a word of `words.LOCK_TYPES`
        back_trace_index: index of the creator's stack in the database of the space, 0 if none was recorded,
            None if unknown, or if `creator_address` holds the value
        creator_address: the value of the union in `_ERESOURCE` if it is an address, else 0
        owning_thread: owner as stored: an _ETHREAD for a resource (its exclusive or first owner), a thread ID
            for a critical section; 0 if there is none
        owner: thread that owns the lock; None if there is none, or it is unknown
        held, contended: whether a thread owns the lock, and whether one waits or waited for it; None if
            unreadable
        stack: stack of the creator; for some locks only the address of its caller is known

    The counts are members of RTL_PROCESS_LOCK_INFORMATION; a count that does not exist or cannot be read is
    None.
    """

    space: AddressSpace
    address: Optional[int]
    type: str
    back_trace_index: Optional[int] = None
    creator_address: int = 0
    owning_thread: Optional[int] = None
    owner: Optional[ThreadOwner] = None
    lock_count: Optional[int] = None
    contention_count: Optional[int] = None
    entry_count: Optional[int] = None
    recursion_count: Optional[int] = None
    waiting_shared: Optional[int] = None
    waiting_exclusive: Optional[int] = None
    held: Optional[bool] = None
    contended: Optional[bool] = None
    owners: Tuple[LockOwner, ...] = ()
    status: Status = NOTHING
    debug_info: Optional[int] = None
    stack: RecordedStack = NO_STACK

    @property
    def waiters(self) -> Optional[int]:
        """Number of threads that wait for the lock, as its members count them; None if unknown.

        A critical section has no shared waiters.
        """
        if self.type == CRITICAL_SECTION:
            return self.waiting_exclusive
        if self.waiting_shared is None or self.waiting_exclusive is None:
            return None
        return self.waiting_shared + self.waiting_exclusive

    @property
    def joined_status(self) -> Status:
        """Status of the lock, joined with the status of its creator's stack."""
        stale = self.stack.trace_index and has_status(self.status, StatusCode.SECTION_DOES_NOT_POINT_BACK)
        return status(
            self.status,
            StatusCode.INDEX_MAY_BE_STALE if stale else None,
            StatusCode.ADDRESS if self.creator_address else None,
            self.stack.status,
        )


Listed = Union[Lock, Gap]
"""A lock, or a gap where a list or a part of it cannot be found or read."""


def damaged(item: Listed) -> Listed:
    """Returns a lock or gap with the status that one of its links is wrong, although no lock is missing."""
    return item._replace(status=status(item.status, StatusCode.LIST_DAMAGED))
