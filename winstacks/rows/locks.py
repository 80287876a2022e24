# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.locks`."""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, Optional, Sequence

from ..columns.words import CRITICAL_SECTION, WAITING
from ..locks.lock import Lock, LockGap, LockOwner
from ..memory.decode.status import status, text
from ..memory.decode.statuscodes import StatusCode
from ..process.threadids import ThreadOwner
from ..stacklist.frames import NamedFrame
from ..stacklist.waits import Wait
from .command import Command
from .frames import folded
from .grid import NOT_APPLICABLE, UNREADABLE, Cells, Grid, Hex, Row, or_not_applicable, or_unreadable

GRID = Grid.for_plugin("locks")

_SPACE = ("PID", "Process", "Arch")
_LOCK = (*_SPACE, "Lock", "LockType", "Index")
_THREAD = ("OwnerPID", "OwnerProcess", "OwnerTID")
_FRAME = ("Address", "Symbol", "Source", "Backing")
_OWNED = ("OwningThread", "OwnerPID", "OwnerProcess", "OwnerTID", "Status")
_COUNTS = ("EntryCount", "RecursionCount", "NumberOfWaitingShared", "NumberOfWaitingExclusive", "Waiters")


class LockRows:
    """Makes the rows of locks."""

    def __init__(self, command: Command[Any, Any]) -> None:
        self._machine = command.image.machine
        self._gap = GRID.maker(*_SPACE, "Status")
        self._owner = GRID.maker(*_LOCK, *_OWNED, "OwnerRole", "RecursionCount")
        self._fold, self._printer = command.option("fold"), command.printer
        self._mask = self._machine.address_mask
        self._waiter = GRID.maker(*_LOCK, *_THREAD, "OwnerRole", "Stack", "Status")
        self._waiter_frame = GRID.maker(*_LOCK, "OwnerPID", "OwnerTID", "Frame", *_FRAME, "Status")
        self._rows = command.stack_rows(
            _LOCK, (*_OWNED, "LockCount", "ContentionCount", *_COUNTS, "File output")
        )

    def gap(self, gap: LockGap) -> Cells:
        """Returns the row of locks that cannot be read."""
        return self._gap(
            or_unreadable(gap.space.pid),
            or_unreadable(gap.space.known_name),
            gap.space.arch,
            text(gap.status),
        )

    def lock(
        self, lock: Lock, frames: Sequence[NamedFrame], file_output: str, waits: Iterable[Wait] = ()
    ) -> Iterator[Row]:
        """Returns the rows of a lock, of its owners, of the threads that wait, and of its creator's frames.

        Args:
            waits: the waiting threads whose stacks show it
        """
        absent = NOT_APPLICABLE if lock.owning_thread == 0 else UNREADABLE
        key = self._key(lock)
        cells = (
            self._address(lock.owning_thread),
            *_owner(lock.owner, absent),
            text(lock.joined_status),
            or_unreadable(lock.lock_count),
            or_unreadable(lock.contention_count),
            *_counts(lock),
            file_output,
        )
        owners = ((1, self._owned(key, owner)) for owner in lock.owners)
        waiting = itertools.chain.from_iterable(self._waiting(key, wait) for wait in waits)
        return self._rows.rows(key, cells, frames, itertools.chain(owners, waiting))

    def _waiting(self, key: Cells, wait: Wait) -> Iterator[Row]:
        """Yields the row of a waiting thread, and below it the rows of its stack, innermost frame first."""
        assert wait.waiting is not None
        stack, (pid, tid) = wait.waiting.stack, wait.key
        thread = (or_unreadable(pid), or_unreadable(wait.waiting.process or None), tid)
        unsure = text(status(None if wait.sure else StatusCode.UNSURE))
        yield 1, self._waiter(*key, *thread, WAITING, folded(stack.frames, self._fold, self._mask), unsure)
        for number, frame in enumerate(() if self._fold else stack.frames):
            guessed = bool(stack.walked) and not stack.walked[number].sure
            cells = self._printer.guess(frame) if guessed else self._printer[frame]
            yield 2, self._waiter_frame(*key, thread[0], tid, number, *cells)

    def _owned(self, key: Cells, owner: LockOwner) -> Cells:
        """Returns the row of an owner."""
        return self._owner(
            *key,
            self._address(owner.thread),
            *_owner(owner.owner, UNREADABLE),
            text(owner.status),
            owner.kind,
            or_not_applicable(owner.owner_count),
        )

    def _key(self, lock: Lock) -> Cells:
        index = or_unreadable(lock.back_trace_index)
        if lock.back_trace_index is None and lock.creator_address:
            index = NOT_APPLICABLE
        address = lock.debug_info if lock.address is None else lock.address
        space = lock.space
        return (
            or_unreadable(space.pid),
            or_unreadable(space.known_name),
            space.arch,
            self._address(address),
            lock.type,
            index,
        )

    def _address(self, address: Optional[int]) -> object:
        return UNREADABLE if address is None else Hex(self._machine.masked(address))


def _owner(owner: Optional[ThreadOwner], absent: object) -> Cells:
    """Returns the cells OwnerPID, OwnerProcess and OwnerTID."""
    if owner is None:
        return absent, absent, absent
    return or_unreadable(owner.pid), or_unreadable(owner.process), owner.tid


def _counts(lock: Lock) -> Cells:
    """Returns the cells of _COUNTS.

    The first two do not exist for kernel resources, the third does not exist for critical sections.
    """
    entry, recursion = or_unreadable(lock.entry_count), or_unreadable(lock.recursion_count)
    shared, exclusive = or_unreadable(lock.waiting_shared), or_unreadable(lock.waiting_exclusive)
    if lock.space.kernel:
        entry = recursion = NOT_APPLICABLE
    elif lock.type == CRITICAL_SECTION:
        shared = NOT_APPLICABLE
    return entry, recursion, shared, exclusive, or_unreadable(lock.waiters)
