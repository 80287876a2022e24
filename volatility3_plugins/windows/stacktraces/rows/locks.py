# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.locks`."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from ..base import bulk
from ..base.decode.status import NOTHING, Word, says, status, text
from ..base.image import Image
from ..base.space import AddressSpace
from ..locks import lock
from ..locks.lock import Lock, LockGap, LockOwner
from ..names.symbolizer import SpaceNames
from ..tracedb.creators import Creator
from .frames import FrameCells, StackCells
from .grid import NOT_APPLICABLE, UNREADABLE, Cells, Grid, Hex, Row, given, known

GRID = Grid(
    ("PID", int),
    ("Process", str),
    ("Arch", str),
    ("Address", Hex),
    ("Type", str),
    ("CreatorBackTraceIndex", int),
    ("OwningThread", Hex),
    ("OwnerTID", int),
    ("LockCount", int),
    ("ContentionCount", int),
    ("EntryCount", int),
    ("RecursionCount", int),
    ("NumberOfWaitingShared", int),
    ("NumberOfWaitingExclusive", int),
    ("Frame", int),
    ("FrameAddress", Hex),
    ("Symbol", str),
    ("Source", str),
    ("Status", str),
    ("File output", str),
)

_SPACE = ("PID", "Process", "Arch")
_LOCK = (*_SPACE, "Address", "Type")
_OWNED = ("OwningThread", "OwnerTID", "Status")
_COUNTS = ("EntryCount", "RecursionCount", "NumberOfWaitingShared", "NumberOfWaitingExclusive")
_CREATOR = ("FrameAddress", "Symbol", "Source")


class LockRows:
    """Makes the rows of the locks of one address space.

    Args:
        image: the image
        space: the kernel or one half of a process
        names: names of the space
    """

    def __init__(self, image: Image, space: AddressSpace, names: SpaceNames) -> None:
        self._layer = image.layer_of(space)
        self._names = names
        self._stacks = StackCells(self._layer, names)
        self._space = (space.pid, space.process, space.arch)
        self._gap = GRID.maker(*_SPACE, "Status")
        self._lock = GRID.maker(
            *_LOCK,
            "CreatorBackTraceIndex",
            *_OWNED,
            "LockCount",
            "ContentionCount",
            *_COUNTS,
            *_CREATOR,
            "File output",
        )
        self._owner = GRID.maker(*_LOCK, *_OWNED, "RecursionCount")
        self._frames = GRID.frames_maker(*_LOCK, "CreatorBackTraceIndex", address="FrameAddress")

    def frames(self, creator: Optional[Creator]) -> List[FrameCells]:
        """Returns the frames of a lock's creator."""
        if creator is None:
            return []
        return self._stacks.of(creator.frames, says(creator.status, Word.FREED))

    def gap(self, gap: LockGap) -> Cells:
        """Returns the row that stands for locks that cannot be read."""
        return self._gap(*self._space, text(gap.status))

    def lock(self, each: Lock, creator: Optional[Creator], file_output: str) -> Cells:
        """Returns the row of a lock."""
        stale = creator is not None and says(each.status, Word.SECTION_DOES_NOT_POINT_BACK)
        own = status(
            Word.INDEX_MAY_BE_STALE if stale else None, Word.ADDRESS if each.creator_address else None
        )
        no_owner = each.owner_tid is None and each.owning_thread == 0
        return self._lock(
            *self._key(each),
            self._address(each.owning_thread),
            NOT_APPLICABLE if no_owner else known(each.owner_tid),
            text(each.status + own + (creator.status if creator else NOTHING)),
            known(each.lock_count),
            known(each.contention_count),
            *_counts(each),
            *self._creator_address(each),
            file_output,
        )

    def owner(self, each: Lock, owner: LockOwner) -> Cells:
        """Returns the row of an owner. Type says how it owns the lock, RecursionCount how many times."""
        return self._owner(
            *self._space,
            self._address(each.address),
            owner.kind,
            self._address(owner.thread),
            known(owner.tid),
            text(owner.status),
            given(owner.owner_count),
        )

    def frame_rows(self, each: Lock, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of the creator's frames."""
        return self._frames(*self._key(each), frames)

    def _key(self, each: Lock) -> Cells:
        index = known(each.back_trace_index)
        if each.back_trace_index is None and each.creator_address:
            index = NOT_APPLICABLE
        address = each.debug_info if each.address is None else each.address
        return (*self._space, self._address(address), each.type, index)

    def _creator_address(self, each: Lock) -> Tuple[object, object, object]:
        if not each.creator_address:
            return NOT_APPLICABLE, NOT_APPLICABLE, NOT_APPLICABLE
        name = self._names.name(each.creator_address)
        return self._address(each.creator_address), name.symbol, name.source

    def _address(self, address: Optional[int]) -> object:
        return UNREADABLE if address is None else Hex(bulk.masked(self._layer, address))


def _counts(each: Lock) -> Cells:
    """Returns the cells of _COUNTS. Kernel resources have the last two, critical sections not the third."""
    entry, recursion = known(each.entry_count), known(each.recursion_count)
    shared, exclusive = known(each.waiting_shared), known(each.waiting_exclusive)
    if each.space.kernel:
        return NOT_APPLICABLE, NOT_APPLICABLE, shared, exclusive
    if each.type == lock.CRITICAL_SECTION:
        return entry, recursion, NOT_APPLICABLE, exclusive
    return entry, recursion, shared, exclusive
