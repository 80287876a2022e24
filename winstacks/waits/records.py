# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The records of `windows.waits`: a waiting thread, what it waits for, and who owns that."""

from __future__ import annotations

from typing import Optional, Tuple

from ..columns import words
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status
from ..memory.image import AddressSpace
from ..process.thread import Thread
from ..process.threadids import ThreadOwner
from ..stacks.lister import CallStack

ThreadKey = Tuple[int, Optional[int], Optional[int]]
"""Address of the _EPROCESS (0 in a dump), PID and TID of a thread."""


LockKey = Tuple[int, Optional[int]]
"""Address of the _EPROCESS (0 for the kernel) and address of the lock."""


def lock_key(space: AddressSpace, address: Optional[int]) -> LockKey:
    """Returns the key of a lock, or of anything else for which threads wait."""
    return 0 if space.kernel else space.eprocess, address


def key_of(thread: Thread) -> ThreadKey:
    return thread.space.eprocess, thread.space.pid, thread.tid


class Awaited(NamedTuple):
    """The thing that a thread waits for.

    Attributes:
        space: address space of its address: the kernel or one half of the thread's process
        address: canonical address, None if unknown or if there is none
        mode: a word of `words.WAIT_MODES`, empty without one
        known: a word of `words.KNOWN`
        ownership: a word of `words.OWNERSHIPS`
        owners: the threads that own it or have to act; a process without a known thread has no TID
    """

    kind: str
    space: AddressSpace
    address: Optional[int] = None
    name: str = ""
    mode: str = ""
    known: str = words.BY_CALL
    evidence: str = ""
    ownership: str = words.NO_OWNER_KEPT
    owners: Tuple[WaitOwner, ...] = ()
    status: Status = NOTHING


class WaitOwner(NamedTuple):
    """A thread or process that owns what another thread waits for, or that has to act.

    Attributes:
        pid, process, tid: None where they are unknown; a process has no `tid`
        eprocess: address of its _EPROCESS, 0 if unknown
        ended: whether the thread is known to have ended
    """

    pid: Optional[int]
    process: Optional[str]
    tid: Optional[int]
    eprocess: int = 0
    ended: bool = False


class ThreadWait(NamedTuple):
    """A waiting thread.

    Attributes:
        stack: the stack that shows the wait, None without one
        since: when the wait began, a FILETIME; None if unknown
        status: contradictions between the kernel's state, its wait blocks and the locks
    """

    thread: Thread
    awaited: Tuple[Awaited, ...]
    stack: Optional[CallStack]
    since: Optional[int] = None
    status: Status = NOTHING


def owner_of(found: Optional[ThreadOwner]) -> Tuple[WaitOwner, ...]:
    """Returns the owner that a lookup of threads found; none without one."""
    return () if found is None else (WaitOwner(found.pid, found.process, found.tid),)
