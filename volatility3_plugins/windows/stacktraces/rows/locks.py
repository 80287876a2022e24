# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.locks`, in the order of its columns."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..base import bulk
from ..base.spaces import AddressSpace
from ..locks import lock
from ..locks.lock import Lock, LockOwner
from ..names.symbolizer import SpaceNames
from ..tracedb.creators import Creator
from .frames import FrameCells, StackCells

COLUMNS: List[Tuple[str, type]] = [
    ("PID", int),
    ("Process", str),
    ("Arch", str),
    ("Address", format_hints.Hex),
    ("Type", str),
    ("CreatorBackTraceIndex", int),
    ("OwningThread", format_hints.Hex),
    ("OwnerTID", int),
    ("LockCount", int),
    ("ContentionCount", int),
    ("EntryCount", int),
    ("RecursionCount", int),
    ("NumberOfWaitingShared", int),
    ("NumberOfWaitingExclusive", int),
    ("Frame", int),
    ("FrameAddress", format_hints.Hex),
    ("Symbol", str),
    ("Source", str),
    ("Status", str),
    ("File output", str),
]

Cells = Tuple[object, ...]

_NONE = renderers.NotApplicableValue()
_UNREADABLE = renderers.UnreadableValue()

ADDRESS = "address"
"""Status of a resource whose union holds an address instead of a trace index."""


class LockRows:
    """Makes the rows of the locks of one address space.

    Args:
        layer: the layer of the space, whose form of addresses the columns have
        space: the kernel or one half of a process
        names: names of the space
    """

    def __init__(
        self, layer: interfaces.layers.DataLayerInterface, space: AddressSpace, names: SpaceNames
    ) -> None:
        self._layer = layer
        self._names = names
        self._stacks = StackCells(layer, names)
        self._space: Cells = (space.pid, space.process, space.arch)

    def frames(self, creator: Optional[Creator]) -> List[FrameCells]:
        """Returns the frames of a lock's creator."""
        if creator is None:
            return []
        return self._stacks.of(creator.frames, creator.status)

    def lock(self, each: Lock, creator: Optional[Creator], file_output: str) -> Cells:
        """Returns the row of a lock, or of what stands for unreadable ones."""
        if not each.type:
            return (*self._space, *(_NONE,) * 15, each.status, _NONE)
        stale = creator is not None and lock.NOT_PROVEN in each.status
        words = (
            each.status,
            lock.STALE_INDEX if stale else "",
            ADDRESS if each.creator_address else "",
            creator.status if creator else "",
        )
        return (
            *self._key(each),
            self._address(each.owning_thread),
            _NONE if each.owner_tid is None and each.owning_thread == 0 else _known(each.owner_tid),
            _known(each.lock_count),
            _known(each.contention_count),
            *self._counts(each),
            _NONE,
            *self._creator_address(each),
            ", ".join(filter(None, words)),
            file_output,
        )

    def owner(self, each: Lock, owner: LockOwner) -> Cells:
        """Returns the row of an owner: Type says what it is, RecursionCount how often it is."""
        return (
            *self._space,
            self._address(each.address),
            owner.kind,
            _NONE,
            self._address(owner.thread),
            _known(owner.tid),
            *(_NONE,) * 3,
            _NONE if owner.owner_count is None else owner.owner_count,
            *(_NONE,) * 6,
            owner.status,
            _NONE,
        )

    def frame_rows(self, each: Lock, frames: List[FrameCells]) -> Iterator[Cells]:
        """Yields the rows of the creator's frames."""
        for number, frame in enumerate(frames):
            yield (*self._key(each), *(_NONE,) * 8, number, *frame.cells, _NONE)

    def _key(self, each: Lock) -> Cells:
        index: object = each.back_trace_index
        if index is None:
            index = _NONE if each.creator_address else _UNREADABLE
        address = each.debug_info if each.address is None else each.address
        return (*self._space, self._address(address), each.type, index)

    def _counts(self, each: Lock) -> Cells:
        """Returns the counts that only one kind of lock has."""
        counts = (each.entry_count, each.recursion_count, each.waiting_shared, each.waiting_exclusive)
        if each.space.kernel:
            return (_NONE, _NONE, *map(_known, counts[2:]))
        if each.type == lock.CRITICAL_SECTION:
            return (*map(_known, counts[:2]), _NONE, _known(counts[3]))
        return tuple(map(_known, counts))

    def _creator_address(self, each: Lock) -> Cells:
        if not each.creator_address:
            return (_NONE,) * 3
        name = self._names.name(each.creator_address)
        return self._address(each.creator_address), name.symbol, name.source

    def _address(self, address: Optional[int]) -> object:
        return _UNREADABLE if address is None else format_hints.Hex(bulk.masked(self._layer, address))


def _known(value: Optional[int]) -> object:
    return _UNREADABLE if value is None else value
