# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Locks of the kernel or of a process as `windows.locks` lists them, and places where some may be missing."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple, Union

from ..base.decode.status import NOTHING, Status, Word, status
from ..base.space import AddressSpace

RESOURCE = "resource"
FAST_RESOURCE = "fast resource"
CRITICAL_SECTION = "critical section"

SHARED, EXCLUSIVE, WAITING = "shared owner", "exclusive owner", "waiter"


class LockOwner(NamedTuple):
    """A thread that owns a lock, or waits for one.

    `thread` is OwnerThread as stored (canonical), without the bits that say what it is; `tid` is None and
    `status` says so when no thread is there.
    """

    thread: int
    tid: Optional[int]
    kind: str
    owner_count: Optional[int]
    status: Status


class Lock(NamedTuple):
    """A lock, as far as it can be read.

    Attributes:
        space: the kernel or one half of a process
        address: canonical; None where not even that is known
        debug_info: address of a section's debug information where only that is known, else None
        type: `resource`, `fast resource` or `critical section`
        back_trace_index: of the creator's stack in the database of its space, 0 if none was recorded
        creator_address: what the union of `_ERESOURCE` holds when it is an address, else 0
        owning_thread: as stored: an _ETHREAD for a resource (its exclusive or first owner), a thread ID for a
            critical section; 0 if there is none
        owner_tid: the thread ID; None if there is none, or it is not known
        held, contended: None where that cannot be read; contended is also a lock that was waited for before
        owners: all owners of a resource
        status: empty, or what is wrong

    The counts are those of RTL_PROCESS_LOCK_INFORMATION, None where they cannot be read or do not exist.
    """

    space: AddressSpace
    address: Optional[int]
    type: str
    back_trace_index: Optional[int] = None
    creator_address: int = 0
    owning_thread: Optional[int] = None
    owner_tid: Optional[int] = None
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


class LockGap(NamedTuple):
    """What stands for locks that are not known: a list that cannot be found or read, or a part of it.

    `status` is never empty.
    """

    space: AddressSpace
    status: Status


Listed = Union[Lock, LockGap]


def damaged(each: Listed) -> Listed:
    """Returns what is listed with the remark that one of its links is wrong. No lock is missing for it."""
    return each._replace(status=status(each.status, Word.LIST_DAMAGED))
