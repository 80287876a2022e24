# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.heaptraces`."""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple

from ..heaps.decode.block import UNKNOWN_SIZE, Block, Group
from ..heaps.decode.contents import HeapOwner
from ..heaps.decode.trace import BlockTrace
from ..heaps.decode.umdh import UNKNOWN, Change, Total
from ..memory.decode.status import Status, Word, says, status, text
from ..memory.image import AddressSpace, Image
from .columns import BRIEF, PLUGINS, Hex
from .frames import FrameCells, StackCells, folded, unbacked
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, UNPARSABLE, Cells, Grid, Row

GRID = Grid(*PLUGINS["heaptraces"], brief=BRIEF["heaptraces"])

_SPACE = ("PID", "Process", "Arch")
_TRACE = (*_SPACE, "Heap", "Index", "EntryAddress")
_BLOCK = ("Block", "Size", "Status", "BlockKind")
_SUMS = ("Count", "Bytes", "CountGrowth", "BytesGrowth", "Unbacked", "Stack", "Status")
_MOST = (1 << 63) - 1


class HeapRows:
    """Makes the rows of the heaps of one address space.

    Args:
        image: the image
        space: one half of a process
        stacks: makes the cells of the stacks of the space
        fold: whether a row holds its stack, in the place of frame rows
    """

    def __init__(self, image: Image, space: AddressSpace, stacks: StackCells, fold: bool = False) -> None:
        self._fold = fold
        self._machine = image.machine
        self._stacks = stacks
        self._space = (space.pid, space.process, space.arch)
        self._unread = GRID.maker(*_SPACE, "Status")
        self._owner = GRID.maker(*_TRACE, *_BLOCK, "Unbacked", "Stack", "File output")
        self._owner_frames = GRID.frames_maker(*_TRACE, "Block")
        self._group = GRID.maker(*_TRACE, *_SUMS, "TraceKind")
        self._group_frames = GRID.frames_maker(*_TRACE)
        self._block = GRID.maker(*_TRACE, *_BLOCK)
        self._gone = GRID.maker(*_SPACE, *_SUMS)
        self._gone_frames = GRID.frames_maker(*_SPACE)

    def frames(self, trace: Optional[BlockTrace]) -> List[FrameCells]:
        """Returns the frames of a trace."""
        return [] if trace is None else self._stacks.of(trace.frames, says(trace.status, Word.FREED))

    def stack(self, frames: Sequence[Optional[int]]) -> List[FrameCells]:
        """Returns the frames of a stack."""
        return self._stacks.of(frames)

    def unread(self, said: Status) -> Cells:
        """Returns the row of an address space whose heaps cannot be told, or not all of them."""
        return self._unread(*self._space, text(said))

    def owner(self, owner: HeapOwner, frames: List[FrameCells], file_output: str) -> Cells:
        """Returns the row of a heap or segment: Block is its own address, Size what it has."""
        return self._owner(
            *self._trace(owner.trace, self._hex(owner.heap)),
            self._hex(owner.address),
            owner.size or NOT_AVAILABLE,
            text(owner.said),
            owner.kind,
            *self._sums(frames),
            file_output,
        )

    def owner_frames(self, owner: HeapOwner, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of the frames of who made a heap or segment."""
        key = self._trace(owner.trace, self._hex(owner.heap))
        return self._owner_frames(*key, self._hex(owner.address), self._below(frames))

    def group(self, group: Group, frames: List[FrameCells], change: Optional[Change]) -> Cells:
        """Returns the row of a trace.

        Args:
            group: its blocks
            frames: its frames
            change: what its stack grew by; None when nothing is to be said of that here
        """
        unsized = group.unsized == group.allocations
        return self._group(
            *self._key(group),
            group.allocations,
            NOT_AVAILABLE if unsized else _number(group.size),
            *_growth(change),
            *self._sums(frames),
            text(group.said + status(Word.GROWTH_UNKNOWN if change == UNKNOWN else None)),
            group.trace.kind if group.trace else NOT_APPLICABLE,
        )

    def group_frames(self, group: Group, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of the frames of a trace."""
        return self._group_frames(*self._key(group), self._below(frames))

    def block(self, block: Block) -> Cells:
        """Returns the row of a block; its Index is that of a second trace in the database, if it has one."""
        space, heap, index, entry = self._space, *self._trace(block.trace, self._hex(block.heap))[3:]
        return self._block(
            *space,
            heap,
            block.std_index or index,
            entry,
            self._hex(block.user) if block.user else NOT_AVAILABLE,
            NOT_AVAILABLE if block.size == UNKNOWN_SIZE else _number(block.size),
            text(status(Word.FREED if block.freed else None) + block.status),
            block.form,
        )

    def gone(self, before: Total, frames: List[FrameCells]) -> Cells:
        """Returns the row of a stack of the baseline that has no busy block any more."""
        growth = (-before.allocations, _number(-before.size))
        return self._gone(*self._space, 0, 0, *growth, *self._sums(frames), text(status(Word.GONE)))

    def gone_frames(self, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of the frames of such a stack."""
        return self._gone_frames(*self._space, self._below(frames))

    def _sums(self, frames: List[FrameCells]) -> Tuple[object, object]:
        """Returns the cells Unbacked and Stack of a stack."""
        return unbacked(frames), folded(frames, self._fold)

    def _below(self, frames: List[FrameCells]) -> Sequence[FrameCells]:
        """Returns the frames that have rows."""
        return () if self._fold else frames

    def _key(self, group: Group) -> Cells:
        heap = self._hex(group.heaps[0]) if len(group.heaps) == 1 else NOT_APPLICABLE
        return self._trace(group.trace, heap)

    def _trace(self, trace: Optional[BlockTrace], heap: object) -> Cells:
        """Returns the cells of _TRACE."""
        index: object = trace.std_index if trace is not None and trace.std_index else NOT_APPLICABLE
        entry = self._hex(trace.address) if trace is not None and trace.address else NOT_APPLICABLE
        return (*self._space, heap, index, entry)

    def _hex(self, address: int) -> object:
        return Hex(self._machine.masked(address))


def _growth(change: Optional[Change]) -> Tuple[object, object]:
    if change is None:
        return NOT_APPLICABLE, NOT_APPLICABLE
    if change.allocations is None or change.size is None:
        return NOT_AVAILABLE, NOT_AVAILABLE
    return change.allocations, _number(change.size)


def _number(value: int) -> object:
    """Returns a number as a column takes it; none that a heap can have is too long for one."""
    return value if -_MOST <= value <= _MOST else UNPARSABLE
