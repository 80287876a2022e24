# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the threads that wait for a lock, with their stacks.

    waiters = LockWaiters(symbolizer, frames, lister)
    for wait in waiters.of_lock(lock): wait.waiting.stack, wait.sure

Stacks are walked only if a lock says that a thread waits for it: the stacks of the lock's process, or all
stacks for a lock of the kernel.
"""

from __future__ import annotations

from typing import Dict, Iterator, List

from ..columns.words import THREAD_KINDS
from ..locks.lister import LockLister
from ..locks.lock import Lock
from ..memory.decode.memo import Memo
from ..memory.image import AddressSpace
from ..names.symbolizer import Symbolizer
from .frames import NamedFrames
from .stack import StackFilter
from .traces import StackCollector
from .waits import LockKey, Wait, Waits, lock_key, waiters

_PROCESSES = 16
"""The most processes whose waiting threads are stored."""


class LockWaiters:
    """Finds the waiting threads.

    Args:
        symbolizer: names addresses
        frames: the named frames
        lister: lists the locks
    """

    def __init__(self, symbolizer: Symbolizer, frames: NamedFrames, lister: LockLister) -> None:
        self._symbolizer = symbolizer
        self._lister = lister
        self._collector = StackCollector(symbolizer, frames)
        self._found: Memo[AddressSpace, Dict[LockKey, List[Wait]]] = Memo(self._of_space, _PROCESSES)

    def of_lock(self, lock: Lock) -> List[Wait]:
        """Returns the threads whose stacks show that they wait for a lock, without those that it lists."""
        if lock.address is None or not waiters(lock):
            return []
        return self._found[lock.space].get(lock_key(lock), [])

    def _of_space(self, space: AddressSpace) -> Dict[LockKey, List[Wait]]:
        image = self._symbolizer.image
        found: Dict[LockKey, List[Wait]] = {}
        for wait in image.possible(self._waits(space)):
            if wait.waiting is not None and wait.lock is not None:
                found.setdefault(wait.lock, []).append(wait)
        return found

    def _waits(self, space: AddressSpace) -> Iterator[Wait]:
        waits = Waits(self._symbolizer.image)
        pids = () if space.kernel or space.pid is None else (space.pid,)
        for stack in self._collector.list_stacks(StackFilter(THREAD_KINDS, pids)):
            waits.add_stack(stack)
        yield from waits.graph(self._lister, () if space.pid is None else (space.pid,)).waits
