# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.locks`."""

from __future__ import annotations

from functools import cached_property
from typing import Iterator, List, NamedTuple, Sequence

from volatility3.framework import interfaces

from ..locks.lister import LockLister
from ..locks.lock import Listed, Lock, LockGap
from ..memory.decode.status import status
from ..memory.image import AddressSpace
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.locks import GRID, LockRows
from ..rows.plugin import DISABLED, write_file
from ..stacklist.frames import NamedFrame
from ..stacklist.lockwaiters import LockWaiters

_NOTHING = "No lock is known in the selected address spaces"
_NO_TRACES = (
    "No lock has a trace of its creator: the kernel keeps them when NtGlobalFlag has +kst 0x2000, a process "
    "when its own has +ust 0x1000 (windows.gflags shows the flags)"
)


class ListedLock(NamedTuple):
    """A lock or a gap, and the name of the file to which its address space's locks were written."""

    lock: Listed
    file_output: str


class Locks(Command[AddressSpace, ListedLock]):
    """The work of `windows.locks`."""

    grid = GRID
    recorded = True
    things = "locks"

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self.nothing = _NOTHING if self.selection.everything else _NO_TRACES

    @cached_property
    def _lister(self) -> LockLister:
        return LockLister(self.image, self.databases)

    @cached_property
    def _waiters(self) -> LockWaiters:
        return LockWaiters(self.symbolizer, self.named, self._lister)

    @cached_property
    def _rows(self) -> LockRows:
        return LockRows(self)

    def describe(self, step: AddressSpace) -> str:
        return f"Reading the locks of process {step.pid_text}"

    def items(self, step: AddressSpace) -> List[ListedLock]:
        locks = self._lister.list_created(step)
        file_output = self._dump(step, locks) if locks else DISABLED
        return [ListedLock(lock, file_output) for lock in locks]

    def is_gap(self, item: ListedLock) -> bool:
        return isinstance(item.lock, LockGap)

    def selects(self, item: ListedLock) -> bool:
        """Returns whether a lock passes --held and --contended; an unreadable lock passes both."""
        assert isinstance(item.lock, Lock)
        not_held = self.option("held") and item.lock.held is False
        not_contended = self.option("contended") and item.lock.contended is False
        return not (not_held or not_contended)

    def frames(self, item: ListedLock) -> Sequence[NamedFrame]:
        assert isinstance(item.lock, Lock)
        return self.frames_of(item.lock.space).name_recorded(item.lock.stack)

    def rows(self, item: ListedLock, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        if isinstance(item.lock, LockGap):
            return iter([(0, self._rows.gap(item.lock))])
        lock = item.lock
        if not lock.waiters:
            return self._rows.lock(lock, frames, item.file_output)
        waits = self._waiters.of_lock(lock)
        lost = self._waiters.lost_statuses(lock, waits)
        if lost:
            lock = lock._replace(status=status(lock.status, lost))
        return self._rows.lock(lock, frames, item.file_output, waits)

    def _dump(self, space: AddressSpace, locks: List[Listed]) -> str:
        """Writes RTL_PROCESS_LOCKS if they are requested; returns the name of the file."""
        if not self.option("dump"):
            return DISABLED
        name = f"locks.{space.file_part}.{space.arch}.bin"
        return write_file(self.plugin, name, [self._lister.buffer(space, locks)])
