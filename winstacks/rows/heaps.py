# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.heaptraces`."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence, Tuple

from ..heaps.decode.block import UNKNOWN_SIZE, Block, TraceGroup
from ..heaps.decode.contents import HeapOwner
from ..heaps.decode.totals import ProcessTotal
from ..heaps.decode.umdh import UNKNOWN, Change, Total
from ..memory.decode.status import Status, status, text
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..stacklist.frames import NamedFrame
from ..tracedb.decode.recorded import RecordedStack
from .command import Command
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, UNPARSABLE, Cells, Grid, Hex, Row, or_unreadable

GRID = Grid.for_plugin("heaptraces")

_SPACE = ("PID", "Process", "Arch")
_TRACE = (*_SPACE, "Heap", "Index", "EntryAddress")
_BLOCK = ("Block", "Size", "Status", "BlockKind")
_SUMS = ("Count", "Bytes", "CountGrowth", "BytesGrowth", "Status")
_MOST = (1 << 63) - 1


class HeapRows:
    """Makes the rows of heaps."""

    def __init__(self, command: Command[Any, Any]) -> None:
        self._machine = command.image.machine
        self._unread = GRID.maker(*_SPACE, "Status")
        self._total = GRID.maker(*_SPACE, *_SUMS)
        self._block = GRID.maker(*_TRACE, *_BLOCK)
        self._owners = command.stack_rows((*_TRACE, "Block"), ("Size", "Status", "BlockKind", "File output"))
        self._groups = command.stack_rows(_TRACE, (*_SUMS, "TraceKind"))
        self._gone = command.stack_rows(_SPACE, _SUMS)

    def unread(self, space: AddressSpace, row_status: Status) -> Cells:
        """Returns the row of an address space whose heaps are unreadable, wholly or in part."""
        return self._unread(*_space(space), text(row_status))

    def owner(
        self, space: AddressSpace, owner: HeapOwner, frames: Sequence[NamedFrame], file_output: str
    ) -> Iterator[Row]:
        """Returns the rows of a heap or segment, with its address in Block, and of its creator's frames."""
        key = (*self._trace(space, owner.trace, self._hex(owner.heap)), self._hex(owner.address))
        cells = (owner.size or NOT_AVAILABLE, text(owner.joined_status), owner.kind, file_output)
        return self._owners.rows(key, cells, frames)

    def group(
        self, space: AddressSpace, group: TraceGroup, frames: Sequence[NamedFrame], change: Optional[Change]
    ) -> Iterator[Row]:
        """Returns the rows of a trace and of its frames.

        Args:
            change: growth of the trace's stack since the baseline; None if it does not apply to this row
        """
        heap = self._hex(group.heaps[0]) if len(group.heaps) == 1 else NOT_APPLICABLE
        unsized = group.unsized == group.allocations
        cells = (
            group.allocations,
            NOT_AVAILABLE if unsized else _number(group.size),
            *_growth(change),
            text(group.joined_status + status(StatusCode.GROWTH_UNKNOWN if change == UNKNOWN else None)),
            group.trace.kind if group.trace else NOT_APPLICABLE,
        )
        return self._groups.rows(self._trace(space, group.trace, heap), cells, frames)

    def block(self, space: AddressSpace, block: Block) -> Cells:
        """Returns the row of a block; its Index is the index of a second trace in the database, if any."""
        heap, index, entry = self._trace(space, block.trace, self._hex(block.heap))[3:]
        return self._block(
            *_space(space),
            heap,
            block.std_index or index,
            entry,
            self._hex(block.user) if block.user else NOT_AVAILABLE,
            NOT_AVAILABLE if block.size == UNKNOWN_SIZE else _number(block.size),
            text(status(StatusCode.FREED if block.freed else None) + block.status),
            block.form,
        )

    def total(self, space: AddressSpace, total: ProcessTotal) -> Cells:
        """Returns the row of an address space with the sums of its traces."""
        growth: Tuple[object, object] = (NOT_APPLICABLE, NOT_APPLICABLE)
        if total.growth is not None:
            growth = (total.growth.allocations, _number(total.growth.size))
        unknown = StatusCode.GROWTH_UNKNOWN if total.growth_unknown else None
        size = NOT_AVAILABLE if total.unsized == total.count else _number(total.size)
        return self._total(*_space(space), total.count, size, *growth, text(status(total.status, unknown)))

    def freed_group(self, space: AddressSpace, before: Total, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        """Returns the rows of a stack of the baseline that no longer has a busy block."""
        growth = (-before.allocations, _number(-before.size))
        return self._gone.rows(_space(space), (0, 0, *growth, text(status(StatusCode.GONE))), frames)

    def _trace(self, space: AddressSpace, trace: Optional[RecordedStack], heap: object) -> Cells:
        """Returns the cells of _TRACE."""
        index: object = trace.trace_index if trace is not None and trace.trace_index else NOT_APPLICABLE
        entry = self._hex(trace.address) if trace is not None and trace.address else NOT_APPLICABLE
        return (*_space(space), heap, index, entry)

    def _hex(self, address: int) -> object:
        return Hex(self._machine.masked(address))


def _space(space: AddressSpace) -> Cells:
    """Returns the cells of _SPACE."""
    return or_unreadable(space.pid), or_unreadable(space.known_name), space.arch


def _growth(change: Optional[Change]) -> Tuple[object, object]:
    if change is None:
        return NOT_APPLICABLE, NOT_APPLICABLE
    if change.allocations is None or change.size is None:
        return NOT_AVAILABLE, NOT_AVAILABLE
    return change.allocations, _number(change.size)


def _number(value: int) -> object:
    """Returns a number as a column takes it; no number of a heap is too long."""
    return value if -_MOST <= value <= _MOST else UNPARSABLE
