# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.locks`."""

from __future__ import annotations

import importlib
import itertools
from functools import cached_property
from typing import Any, Dict, Iterator, List, Optional, Sequence

from volatility3.framework import interfaces

from ..columns.words import CRITICAL_SECTION, DEADLOCK, KNOWN, WAITING
from ..locks.lister import LockLister
from ..locks.lock import Listed, Lock, LockOwner
from ..memory.decode.status import status
from ..memory.image import AddressSpace
from ..process.threadids import ThreadOwner
from ..rows.databasecommand import DatabaseCommand
from ..rows.entries import SPACE, ShownEntry
from ..rows.frames import folded
from ..rows.grid import NOT_APPLICABLE, UNREADABLE, Grid, Row, or_not_applicable, or_unreadable
from ..rows.plugin import DISABLED, write_file
from ..stacklist.frames import NamedFrame

GRID = Grid.for_plugin("locks")

_LOCK = ("Lock", "LockType", "Index")
_THREAD = ("OwnerPID", "OwnerProcess", "OwnerTID")
_WAITER = ("OwnerPID", "OwnerProcess", "TID")
"""Columns of a thread that owns a lock, and of one that waits for it."""
_FRAME = ("Address", "Symbol", "Source", "Backing")
_COUNTS = ("EntryCount", "RecursionCount", "NumberOfWaitingShared", "NumberOfWaitingExclusive", "Waiters")
_WAITER_FRAME = GRID.maker(*SPACE, *_LOCK, "OwnerPID", "TID", "Frame", *_FRAME, "Status")

_NOTHING = "No lock is known in the selected address spaces"
_NO_TRACES = (
    "No lock has a trace of its creator: the kernel keeps them when NtGlobalFlag has +kst 0x2000, a process "
    "when its own has +ust 0x1000 (windows.gflags shows the flags)"
)


class Locks(DatabaseCommand[AddressSpace, Lock]):
    """The work of `windows.locks`."""

    grid = GRID
    key = _LOCK
    unreadable = (
        "PID",
        "Process",
        *_LOCK,
        *_THREAD,
        "TID",
        "OwningThread",
        "LockCount",
        "ContentionCount",
        *_COUNTS,
    )
    recorded = True
    things = "locks"

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self.nothing = _NOTHING if self.selection.everything else _NO_TRACES
        self._file_output = DISABLED

    @cached_property
    def _lister(self) -> LockLister:
        return LockLister(self.image, self.databases)

    @cached_property
    def _waiters(self) -> Any:
        """Finds waiting threads; imported when a lock has a waiter: it loads half of the library."""
        module = importlib.import_module("..stacklist.lockwaiters", __package__)
        return module.LockWaiters(self.symbolizer, self.named, self._lister, self.pids)

    def describe(self, step: AddressSpace) -> str:
        return f"Reading the locks of process {step.pid_text}"

    def items(self, step: AddressSpace) -> List[Listed]:
        locks = self._lister.list_created(step)
        self._file_output = self._dump(step, locks) if locks else DISABLED
        return locks

    def selects(self, item: Lock) -> bool:
        """Returns whether a lock passes --held and --contended; an unreadable lock passes both."""
        not_held = self.option("held") and item.held is False
        not_contended = self.option("contended") and item.contended is False
        return not (not_held or not_contended)

    def frames(self, item: Lock) -> Sequence[NamedFrame]:
        return self.frames_of(item.space).name_recorded(item.stack)

    def entry(self, item: Lock) -> ShownEntry:
        waits = self._waiters.of_lock(item) if item.waiters else []
        lost = self._waiters.lost_statuses(item, waits) if item.waiters else ()
        lock = item._replace(status=status(item.status, lost)) if lost else item
        key = _key(lock)
        cells = {
            **key,
            "OwningThread": lock.owning_thread,
            **_owner(lock.owner, NOT_APPLICABLE if lock.owning_thread == 0 else UNREADABLE),
            "LockCount": lock.lock_count,
            "ContentionCount": lock.contention_count,
            **_counts(lock),
            "File output": self._file_output,
        }
        owners = ((1, self.entries.cells(_owned(lock, key, owner))) for owner in lock.owners)
        waiting = itertools.chain.from_iterable(self._waiting(lock, key, waiter) for waiter in waits)
        below = itertools.chain(self._deadlocks(lock, key, waits), owners, waiting)
        return ShownEntry(lock.space, lock.joined_status, cells, below)

    def _deadlocks(self, lock: Lock, key: Dict[str, object], waits: List[Any]) -> Iterator[Row]:
        """Yields a row for each deadlock that has no row below another lock yet."""
        for sentence, doubts in self._waiters.deadlocks(waits) if waits else ():
            cells = {**key, "OwnerRole": DEADLOCK, "Evidence": sentence}
            yield 1, self.entries.cells(ShownEntry(lock.space, doubts, cells))

    def _waiting(self, lock: Lock, key: Dict[str, object], waiter: Any) -> Iterator[Row]:
        """Yields the row of a waiting thread, and below it the rows of its stack, innermost frame first."""
        thread, stack = waiter.wait.thread, waiter.wait.stack
        frames = [] if stack is None else self.frames_of(stack.space).name_walked(stack.frames)
        evidence = "; ".join(filter(None, (KNOWN[waiter.awaited.known], waiter.awaited.evidence)))
        cells = {
            **key,
            **dict(zip(_WAITER, (thread.space.pid, thread.space.known_name, thread.tid))),
            "OwnerRole": WAITING,
            # In --brief the texts of many waiting threads would hide the sentence of a deadlock.
            "Evidence": None if self.option("brief") else evidence,
        }
        stack_cell = folded(frames, self.option("fold"), self.printer.mask)
        row = self.entries.cells(ShownEntry(lock.space, waiter.status, cells), stack=stack_cell)
        yield 1, row
        if stack is None or self.option("fold"):
            return
        own = *self.entries.key_of(row), or_unreadable(thread.space.pid), or_unreadable(thread.tid)
        for number, frame in enumerate(map(self.printer.walked, frames, stack.frames)):
            yield 2, _WAITER_FRAME(*own, number, *frame)

    def _dump(self, space: AddressSpace, locks: List[Listed]) -> str:
        """Writes RTL_PROCESS_LOCKS if they are requested; returns the name of the file."""
        if not self.option("dump"):
            return DISABLED
        name = f"locks.{space.file_part}.{space.arch}.bin"
        return write_file(self.plugin, name, [self._lister.buffer(space, locks)])


def _key(lock: Lock) -> Dict[str, object]:
    """Returns the cells of _LOCK."""
    index: object = lock.back_trace_index
    if index is None and lock.creator_address:
        index = NOT_APPLICABLE
    return dict(zip(_LOCK, (lock.debug_info if lock.address is None else lock.address, lock.type, index)))


def _owner(
    owner: Optional[ThreadOwner], absent: object, columns: Sequence[str] = _THREAD
) -> Dict[str, object]:
    """Returns the cells of _THREAD or _WAITER for a thread."""
    values = (absent,) * 3 if owner is None else (owner.pid, owner.process, owner.tid)
    return dict(zip(columns, values))


def _owned(lock: Lock, key: Dict[str, object], owner: LockOwner) -> ShownEntry:
    """Returns the entry of one of the owners of a resource."""
    cells = {
        **key,
        "OwningThread": owner.thread,
        **_owner(owner.owner, UNREADABLE, _WAITER if owner.kind == WAITING else _THREAD),
        "OwnerRole": owner.kind,
        "RecursionCount": or_not_applicable(owner.owner_count),
    }
    return ShownEntry(lock.space, owner.status, cells)


def _counts(lock: Lock) -> Dict[str, object]:
    """Returns the cells of _COUNTS.

    The first two do not exist for kernel resources, the third does not exist for critical sections.
    """
    entry: object = lock.entry_count
    recursion: object = lock.recursion_count
    shared: object = lock.waiting_shared
    if lock.space.kernel:
        entry = recursion = NOT_APPLICABLE
    elif lock.type == CRITICAL_SECTION:
        shared = NOT_APPLICABLE
    return dict(zip(_COUNTS, (entry, recursion, shared, lock.waiting_exclusive, lock.waiters)))
