# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.heaptraces`, in the order of its columns."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..base import bulk
from ..base.spaces import AddressSpace
from ..heaps.decode.block import UNKNOWN_SIZE, Block
from ..heaps.decode.contents import Owner
from ..heaps.decode.groups import Group
from ..heaps.decode.trace import Trace
from ..heaps.decode.umdhgrowth import UNKNOWN, Change, Total
from ..names.symbolizer import SpaceNames
from .frames import FrameCells, StackCells

COLUMNS: List[Tuple[str, type]] = [
    ("PID", int),
    ("Process", str),
    ("Arch", str),
    ("Heap", format_hints.Hex),
    ("Index", int),
    ("Allocations", int),
    ("Bytes", int),
    ("Block", format_hints.Hex),
    ("Size", int),
    ("Frame", int),
    ("Address", format_hints.Hex),
    ("Symbol", str),
    ("Source", str),
    ("Status", str),
    ("Kind", str),
    ("EntryAddress", format_hints.Hex),
    ("AllocationsGrowth", int),
    ("BytesGrowth", int),
    ("File output", str),
]

FREED = "freed"
UNTRACED = "untraced"
UNSIZED = "unsized"
GONE = "gone"
GROWTH_UNKNOWN = "growth unknown"

Cells = Tuple[object, ...]

_NONE = renderers.NotApplicableValue()
_UNKNOWN = renderers.NotAvailableValue()
_NONSENSE = renderers.UnparsableValue()
_MOST = (1 << 63) - 1


class HeapRows:
    """Makes the rows of the heaps of one address space.

    Args:
        layer: the layer of the space, whose form of addresses the columns have
        space: one half of a process
        names: names of the space
    """

    def __init__(
        self, layer: interfaces.layers.DataLayerInterface, space: AddressSpace, names: SpaceNames
    ) -> None:
        self._layer = layer
        self._stacks = StackCells(layer, names)
        self._space: Cells = (space.pid, space.process, space.arch)

    def frames(self, trace: Optional[Trace]) -> List[FrameCells]:
        """Returns the frames of a trace."""
        return [] if trace is None else self.stack(trace.frames, trace.status)

    def stack(self, frames: Sequence[Optional[int]], status: str = "") -> List[FrameCells]:
        """Returns the frames of a stack, given the status of its trace."""
        return self._stacks.of(frames, status)

    def unread(self, status: str) -> Cells:
        """Returns the row of an address space whose heaps cannot be told, or not all of them."""
        return (*self._space, *(_NONE,) * 10, status, *(_NONE,) * 5)

    def owner(self, owner: Owner, file_output: str) -> Cells:
        """Returns the row of a heap or segment: Block is its own address, Size what it reserved."""
        trace = owner.trace
        status = ", ".join(filter(None, (owner.status, trace.status if trace else "")))
        return (
            *self._space,
            self._hex(owner.heap),
            self._index(trace),
            _NONE,
            _NONE,
            self._hex(owner.address),
            owner.size or _UNKNOWN,
            *(_NONE,) * 4,
            status,
            owner.kind,
            self._entry(trace),
            _NONE,
            _NONE,
            file_output,
        )

    def group(self, group: Group, change: Optional[Change]) -> Cells:
        """Returns the row of a trace.

        Args:
            group: its blocks
            change: what its stack grew by; None when nothing is to be said of that here
        """
        return (
            *self._key(group),
            group.allocations,
            _UNKNOWN if group.unsized == group.allocations else _number(group.size),
            *(_NONE,) * 6,
            _status(group, change),
            group.trace.kind if group.trace else _NONE,
            self._entry(group.trace),
            *_growth(change),
            _NONE,
        )

    def frame(self, group: Group, number: int, frame: FrameCells) -> Cells:
        """Returns the row of a trace's frame."""
        return self._frame(self._key(group), _NONE, number, frame, group.trace)

    def owner_frame(self, owner: Owner, number: int, frame: FrameCells) -> Cells:
        """Returns the row of a frame of who made a heap or segment."""
        key = (*self._space, self._hex(owner.heap), self._index(owner.trace))
        return self._frame(key, self._hex(owner.address), number, frame, owner.trace)

    def block(self, block: Block) -> Cells:
        """Returns the row of a block; its Index is that of a second trace in the database, if it has one."""
        trace = block.trace
        index = block.std_index or (trace.std_index if trace else 0)
        return (
            *self._space,
            self._hex(block.heap),
            index or _NONE,
            _NONE,
            _NONE,
            self._hex(block.user) if block.user else _UNKNOWN,
            _UNKNOWN if block.size == UNKNOWN_SIZE else _number(block.size),
            *(_NONE,) * 4,
            ", ".join(filter(None, (FREED if block.freed else "", block.status))),
            block.form,
            self._entry(trace),
            *(_NONE,) * 3,
        )

    def gone(self, before: Total) -> Cells:
        """Returns the row of a stack of the baseline that has no busy block any more."""
        return (
            *self._space,
            _NONE,
            _NONE,
            0,
            0,
            *(_NONE,) * 6,
            GONE,
            _NONE,
            _NONE,
            -before.allocations,
            _number(-before.size),
            _NONE,
        )

    def gone_frame(self, number: int, frame: FrameCells) -> Cells:
        """Returns the row of a frame of such a stack."""
        return self._frame((*self._space, _NONE, _NONE), _NONE, number, frame, None)

    def _frame(
        self, key: Cells, block: object, number: int, frame: FrameCells, trace: Optional[Trace]
    ) -> Cells:
        return (
            *key,
            _NONE,
            _NONE,
            block,
            _NONE,
            number,
            *frame.cells,
            _NONE,
            self._entry(trace),
            *(_NONE,) * 3,
        )

    def _key(self, group: Group) -> Cells:
        heap: object = self._hex(group.heaps[0]) if len(group.heaps) == 1 else _NONE
        return (*self._space, heap, self._index(group.trace))

    def _index(self, trace: Optional[Trace]) -> object:
        return trace.std_index if trace is not None and trace.std_index else _NONE

    def _entry(self, trace: Optional[Trace]) -> object:
        return self._hex(trace.address) if trace is not None and trace.address else _NONE

    def _hex(self, address: int) -> object:
        return format_hints.Hex(bulk.masked(self._layer, address))


def _growth(change: Optional[Change]) -> Cells:
    if change is None:
        return _NONE, _NONE
    if change.allocations is None or change.size is None:
        return _UNKNOWN, _UNKNOWN
    return change.allocations, _number(change.size)


def _status(group: Group, change: Optional[Change]) -> str:
    words = (
        FREED if group.freed else "",
        UNTRACED if group.trace is None else "",
        UNSIZED if group.unsized else "",
        group.status,
        group.trace.status if group.trace else "",
        GROWTH_UNKNOWN if change == UNKNOWN else "",
    )
    return ", ".join(filter(None, words))


def _number(value: int) -> object:
    """Returns a number as a column takes it; none that a heap can have is too long for one."""
    return value if -_MOST <= value <= _MOST else _NONSENSE
