# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the threads that wait for a listed lock, and its deadlocks: the waits of `windows.waits`, by lock.

    waiters = LockWaiters(symbolizer, frames, lister, pids)
    found = waiters.of_lock(lock)
    for waiter in found: waiter.wait.stack, waiter.awaited.known
    for sentence, faults in waiters.deadlocks(found): ...

If a lock says that a thread waits for it, the stacks of the selected processes are walked, or all stacks if
the kernel is selected.
"""

from __future__ import annotations

from functools import cached_property
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ..columns.words import WAITING
from ..locks.lister import LockLister
from ..locks.lock import Lock
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.image import KERNEL_PID
from ..names.symbolizer import Symbolizer
from ..waits.chains import Chains, is_inferred, key_of
from ..waits.lister import ProcessWaits, WaitLister
from ..waits.records import Awaited, LockKey, ThreadWait, lock_key
from .frames import NamedFrames
from .threadwaits import symbol_of, wait_status


class Waiter(NamedTuple):
    """A thread that waits for a lock. `awaited` says which of the things for which the thread waits is the
    lock."""

    wait: ThreadWait
    awaited: Awaited
    status: Status


class LockWaiters:
    """Finds the waiting threads. `pids` are the processes that are listed, 0 for the kernel; None for all."""

    def __init__(
        self,
        symbolizer: Symbolizer,
        frames: NamedFrames,
        lister: LockLister,
        pids: Optional[Sequence[int]] = None,
    ) -> None:
        self._image = symbolizer.image
        # Any process may wait for a lock of the kernel.
        self._pids = None if pids is None or KERNEL_PID in pids else tuple(pids)
        self._lister = WaitLister(
            self._image, symbolizer, lister.ntdlls, lister.list_locks, symbol_of(frames)
        )
        self._told: Set[int] = set()

    @cached_property
    def _processes(self) -> List[ProcessWaits]:
        return list(self._image.possible(self._lister.list_waits(self._pids)))

    @cached_property
    def _chains(self) -> Chains:
        return Chains(self._processes, self._pids)

    @cached_property
    def _doubts(self) -> Dict[Tuple[int, Optional[int]], Status]:
        """Why waiting threads of a process may be missing, by its _EPROCESS and ID."""
        found: Dict[Tuple[int, Optional[int]], Status] = {}
        for process in self._processes:
            key = process.space.eprocess, process.space.pid
            unknown = (wait.status for wait in process.waits if wait.awaited[0].address is None)
            found[key] = status(found.get(key, NOTHING), process.status, process.lost, *unknown)
        return found

    @cached_property
    def _waiters(self) -> Dict[LockKey, List[Waiter]]:
        found: Dict[LockKey, List[Waiter]] = {}
        for wait in (wait for process in self._processes for wait in process.waits):
            for awaited in wait.awaited:
                if awaited.address is not None:
                    waiter = Waiter(wait, awaited, wait_status(wait, awaited))
                    found.setdefault(lock_key(awaited.space, awaited.address), []).append(waiter)
        return found

    def of_lock(self, lock: Lock) -> List[Waiter]:
        """Returns the threads that wait for a lock; those on the lock's own list of waiters are left out."""
        if lock.address is None or not lock.waiters:
            return []
        listed = {owner.thread for owner in lock.owners if owner.kind == WAITING}
        found = self._waiters.get(lock_key(lock.space, lock.address), [])
        return [waiter for waiter in found if waiter.wait.thread.ethread not in listed]

    def deadlocks(self, found: Sequence[Waiter]) -> Iterator[Tuple[str, Status]]:
        """Yields sentence and status of each deadlock in which threads wait for a lock.

        A deadlock comes once: for the first of its locks. `found` are the waiting threads that `of_lock`
        returned.
        """
        deadlock_of = self._chains.deadlock_of if found else {}
        keys = (key_of(waiter.wait) for waiter in found)
        numbers = {deadlock_of[key] for key in keys if key in deadlock_of}
        for number in sorted(numbers - self._told):
            self._told.add(number)
            cycle = self._chains.deadlocks[number]
            yield self._chains.sentence(cycle), self._chains.doubts(cycle)

    def lost_statuses(self, lock: Lock, found: Sequence[Waiter]) -> Status:
        """Returns why threads that wait for a lock are missing, or only inferred: the statuses of the stacks
        that were lost, and contradictions of the table of wait blocks.

        A lock of the kernel may have waiters in any process, and few stacks show for which lock they wait: no
        status of a stack explains why one is missing. `found` are the waiting threads that `of_lock`
        returned.
        """
        if lock.address is None or lock.space.kernel or not lock.waiters:
            return NOTHING
        doubts = [waiter.wait.status for waiter in found if is_inferred(waiter.awaited)]
        if lock.waiters > len(found):
            doubts.append(self._doubts.get((lock.space.eprocess, lock.space.pid), NOTHING))
        return status(*doubts)
