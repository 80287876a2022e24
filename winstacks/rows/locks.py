# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.locks`."""

from __future__ import annotations

from typing import Iterator, List, Optional

from ..locks import lock
from ..locks.lock import Lock, LockGap, LockOwner
from ..memory.decode.status import Word, says, text
from ..memory.image import AddressSpace, Image
from ..process.threadids import ThreadOwner
from ..tracedb.creators import Creator
from .columns import BRIEF, PLUGINS, Hex
from .frames import FrameCells, StackCells, folded, unbacked
from .grid import NOT_APPLICABLE, UNREADABLE, Cells, Grid, Row, given, known

GRID = Grid(*PLUGINS["locks"], brief=BRIEF["locks"])

_SPACE = ("PID", "Process", "Arch")
_LOCK = (*_SPACE, "Lock", "LockType", "Index")
_OWNED = ("OwningThread", "OwnerPID", "OwnerProcess", "OwnerTID", "Status")
_COUNTS = ("EntryCount", "RecursionCount", "NumberOfWaitingShared", "NumberOfWaitingExclusive")


class LockRows:
    """Makes the rows of the locks of one address space.

    Args:
        image: the image
        space: the kernel or one half of a process
        stacks: makes the cells of the stacks of the space
        fold: whether the row of a lock holds its creator's stack, in the place of frame rows
    """

    def __init__(self, image: Image, space: AddressSpace, stacks: StackCells, fold: bool = False) -> None:
        self._fold = fold
        self._machine = image.machine
        self._stacks = stacks
        self._space = (space.pid, space.process, space.arch)
        self._gap = GRID.maker(*_SPACE, "Status")
        figures = ("LockCount", "ContentionCount", *_COUNTS, "Unbacked", "Stack", "File output")
        self._lock = GRID.maker(*_LOCK, *_OWNED, *figures)
        self._owner = GRID.maker(*_LOCK, *_OWNED, "OwnerRole", "RecursionCount")
        self._frames = GRID.frames_maker(*_LOCK)

    def frames(self, each: Lock, creator: Optional[Creator]) -> List[FrameCells]:
        """Returns the frames of a lock's creator; of some only the address of its caller is known."""
        if each.creator_address:
            return [self._stacks.frame(each.creator_address)]
        if creator is None:
            return []
        return self._stacks.of(creator.frames, says(creator.status, Word.FREED))

    def gap(self, gap: LockGap) -> Cells:
        """Returns the row that stands for locks that cannot be read."""
        return self._gap(*self._space, text(gap.status))

    def lock(
        self, each: Lock, creator: Optional[Creator], frames: List[FrameCells], file_output: str
    ) -> Cells:
        """Returns the row of a lock."""
        absent = NOT_APPLICABLE if each.owning_thread == 0 else UNREADABLE
        return self._lock(
            *self._key(each),
            self._address(each.owning_thread),
            *_owner(each.owner, absent),
            text(each.said(creator)),
            known(each.lock_count),
            known(each.contention_count),
            *_counts(each),
            unbacked(frames),
            folded(frames, self._fold),
            file_output,
        )

    def owner(self, each: Lock, owner: LockOwner) -> Cells:
        """Returns the row of an owner."""
        return self._owner(
            *self._key(each),
            self._address(owner.thread),
            *_owner(owner.owner, UNREADABLE),
            text(owner.status),
            owner.kind,
            given(owner.owner_count),
        )

    def frame_rows(self, each: Lock, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of the creator's frames."""
        return self._frames(*self._key(each), () if self._fold else frames)

    def _key(self, each: Lock) -> Cells:
        index = known(each.back_trace_index)
        if each.back_trace_index is None and each.creator_address:
            index = NOT_APPLICABLE
        address = each.debug_info if each.address is None else each.address
        return (*self._space, self._address(address), each.type, index)

    def _address(self, address: Optional[int]) -> object:
        return UNREADABLE if address is None else Hex(self._machine.masked(address))


def _owner(owner: Optional[ThreadOwner], absent: object) -> Cells:
    """Returns the cells OwnerPID, OwnerProcess and OwnerTID."""
    if owner is None:
        return absent, absent, absent
    return known(owner.pid), known(owner.process), owner.tid


def _counts(each: Lock) -> Cells:
    """Returns the cells of _COUNTS. Kernel resources have the last two, critical sections not the third."""
    entry, recursion = known(each.entry_count), known(each.recursion_count)
    shared, exclusive = known(each.waiting_shared), known(each.waiting_exclusive)
    if each.space.kernel:
        return NOT_APPLICABLE, NOT_APPLICABLE, shared, exclusive
    if each.type == lock.CRITICAL_SECTION:
        return entry, recursion, NOT_APPLICABLE, exclusive
    return entry, recursion, shared, exclusive
