# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The cells of a frame, the same for every plugin that lists the stacks of something."""

from __future__ import annotations

from typing import Iterable, Iterator, List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..base.decode.memo import Memo
from ..names.symbolizer import Name, SpaceNames
from ..tracedb.decode import status as stdstatus
from ..tracedb.decode.judge import Trace
from .selection import Selection

OVERWRITTEN = "overwritten"
UNREADABLE = "unreadable"
_FREED = stdstatus.text(stdstatus.FREED)

_UNREADABLE = renderers.UnreadableValue()
_UNPARSABLE = renderers.UnparsableValue()


class FrameCells(NamedTuple):
    """Address, Symbol, Source and Status of a frame, and its name (None: the frame is not there)."""

    cells: Tuple[object, object, object, str]
    name: Optional[Name]


_NOT_THERE = FrameCells((_UNREADABLE, _UNREADABLE, _UNREADABLE, UNREADABLE), None)
_LINKED_OVER = FrameCells((_UNPARSABLE, _UNPARSABLE, _UNPARSABLE, OVERWRITTEN), None)


class StackCells:
    """Makes the cells of stacks of one address space, those of each address once.

    Args:
        layer: whose form of addresses the column has
        names: of the address space that the stacks belong to
    """

    def __init__(self, layer: interfaces.layers.DataLayerInterface, names: SpaceNames) -> None:
        self._mask = layer.address_mask
        self._names = names
        self._frames = Memo(self._frame)
        self._symbols = Memo(self._symbol)

    def of(self, frames: Iterable[Optional[int]], status: str = "") -> List[FrameCells]:
        """Returns the frames of a stack, innermost first.

        Args:
            frames: return addresses, canonical; None: overwritten in a freed trace, else not present
            status: the trace's
        """
        found = map(self._frames.__getitem__, frames)
        if _FREED in status:
            return [_LINKED_OVER if frame.name is None else frame for frame in found]
        return list(found)

    def folded(self, frames: Iterable[Optional[int]], status: str = "") -> str:
        """Returns a stack in one string, innermost first."""
        if _FREED in status:
            return "; ".join(map(_in_stack, self.of(frames, status)))
        return "; ".join(map(self._symbols.__getitem__, frames))

    def selected(self, selection: Selection, traces: Iterable[Trace]) -> Iterator[Trace]:
        """Yields the traces that a selection takes, by the names of their frames that are there."""
        takes = selection.by_address(self._names.name)
        return (trace for trace in traces if takes(trace.frames))

    def _frame(self, address: Optional[int]) -> FrameCells:
        if address is None:
            return _NOT_THERE
        name = self._names.name(address)
        shown = format_hints.Hex(address & self._mask)
        return FrameCells((shown, name.symbol, name.source, name.status), name)

    def _symbol(self, address: Optional[int]) -> str:
        return _in_stack(_NOT_THERE) if address is None else self._names.name(address).symbol


def names_of(frames: Iterable[FrameCells]) -> Iterator[Name]:
    """Yields the names of the frames that are there."""
    return (frame.name for frame in frames if frame.name is not None)


def _in_stack(frame: FrameCells) -> str:
    return f"<{frame.cells[3]}>" if frame.name is None else frame.name.symbol
