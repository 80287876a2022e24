# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the threads that wait for a lock, with their stacks.

    waiters = LockWaiters(symbolizer, frames, lister)
    for wait in waiters.of_lock(lock): wait.waiting.stack, wait.sure

Stacks are walked only if a lock says that a thread waits for it: the stacks of the lock's process, or all
stacks for a lock of the kernel.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

from ..columns.words import THREAD_KINDS
from ..locks.lister import LockLister
from ..locks.lock import Lock
from ..memory.decode.memo import Memo
from ..memory.decode.status import NOTHING, Status, status
from ..memory.image import AddressSpace
from ..names.symbolizer import Symbolizer
from ..waits.userside import UserSides
from .frames import NamedFrames
from .stack import StackFilter, StackRecord
from .waits import EXCLUDED, ON_STACK, LockKey, Wait, Waits, lock_key

_PROCESSES = 16
"""The most processes whose waiting threads are stored."""


class _Found(NamedTuple):
    """The waits of a process by their lock, and why others may be missing.

    Attributes:
        lost: the joined statuses of the stacks that were lost
        doubts: contradictions of tables in which waiting threads may be missing
    """

    waits: Dict[LockKey, List[Wait]]
    lost: Status
    doubts: Status


class LockWaiters:
    """Finds the waiting threads."""

    def __init__(self, symbolizer: Symbolizer, frames: NamedFrames, lister: LockLister) -> None:
        self._symbolizer = symbolizer
        self._lister = lister
        self._frames = frames
        self._found: Memo[AddressSpace, _Found] = Memo(self._of_space, _PROCESSES)

    @functools.cached_property
    def _collector(self) -> Any:
        """The collector of stacks, imported when a lock has a waiter: it loads half of the library."""
        return importlib.import_module(".traces", __package__).StackCollector(self._symbolizer, self._frames)

    def of_lock(self, lock: Lock) -> List[Wait]:
        """Returns the threads whose stacks show that they wait for a lock.

        Threads on the lock's own list of waiters are left out.
        """
        if lock.address is None or not lock.waiters:
            return []
        return self._found[lock.space].waits.get(lock_key(lock), [])

    def lost_statuses(self, lock: Lock, found: Sequence[Wait]) -> Status:
        """Returns why threads that wait for a lock are missing, or only inferred: the statuses of the stacks
        that were lost, and contradictions of the table of wait blocks.

        A lock of the kernel may have waiters in any process, and few stacks show for which lock they wait:
        no status of a stack explains why one is missing.

        Args:
            found: the waiting threads that `of_lock` returned
        """
        if lock.address is None or lock.space.kernel:
            return NOTHING
        missing = (lock.waiters or 0) > len(found)
        inferred = any(wait.how in (ON_STACK, EXCLUDED) for wait in found)
        here = self._found[lock.space]
        return status(here.lost if missing else None, here.doubts if missing or inferred else None)

    def _of_space(self, space: AddressSpace) -> _Found:
        found: Dict[LockKey, List[Wait]] = {}
        lost: List[Status] = []
        doubts: List[Status] = []
        for wait in self._symbolizer.image.possible(self._waits(space, lost, doubts)):
            found.setdefault(wait.lock, []).append(wait)
        return _Found(found, status(*lost), status(*doubts))

    def _waits(self, space: AddressSpace, lost: List[Status], doubts: List[Status]) -> Iterator[Wait]:
        sides = UserSides(self._symbolizer.image, self._symbolizer, self._lister.ntdlls)
        waits = Waits(self._symbolizer.image, sides)
        pids = () if space.kernel or space.pid is None else (space.pid,)
        stacks: Iterator[StackRecord] = self._collector.list_stacks(StackFilter(THREAD_KINDS, pids))
        for stack in stacks:
            if stack.is_lost:
                lost.append(stack.status)
            waits.add_stack(stack)
        found, contradictions = waits.of_locks(self._lister, () if space.pid is None else (space.pid,))
        doubts += contradictions
        yield from found
