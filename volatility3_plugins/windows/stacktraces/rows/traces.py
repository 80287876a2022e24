# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of one database: what `windows.stacktracedb` shows of it, in the order of its columns."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Optional, Tuple, Union

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..names.symbolizer import SpaceNames
from ..tracedb.decode.database import Trace
from ..tracedb.decode.header import Header
from ..tracedb.found import HEAPLOG, Database
from .frames import FrameCells, StackCells
from .selection import Selection

COLUMNS: List[Tuple[str, type]] = [
    ("PID", int),
    ("Process", str),
    ("Arch", str),
    ("Database", format_hints.Hex),
    ("Index", int),
    ("TraceCount", int),
    ("Depth", int),
    ("Frame", int),
    ("Address", format_hints.Hex),
    ("Symbol", str),
    ("Source", str),
    ("Status", str),
    ("EntryAddress", format_hints.Hex),
    ("Hash", format_hints.Hex),
    ("Stack", str),
    ("CommittedMemory", format_hints.Hex),
    ("ReservedMemory", format_hints.Hex),
    ("Lookups", int),
    ("BackTraces", int),
    ("File output", str),
]

Cells = Tuple[object, ...]

_NONE = renderers.NotApplicableValue()
_UNREADABLE = renderers.UnreadableValue()
_UNPARSABLE = renderers.UnparsableValue()


class TraceRows:
    """Makes the rows of one database.

    Args:
        layer: the layer of its address space, whose form of addresses the columns have
        database: whose rows these are
        names: names of its address space
    """

    def __init__(
        self, layer: interfaces.layers.DataLayerInterface, database: Database, names: SpaceNames
    ) -> None:
        self._mask = layer.address_mask
        self._stacks = StackCells(layer, names)
        self._no_count = _NONE if database.kind == HEAPLOG else _UNREADABLE
        self._key: Cells = (
            database.space.pid,
            database.space.process,
            database.space.arch,
            self._hex(database.address),
        )

    def database(self, header: Optional[Header], status: str, file_output: str) -> Cells:
        """Returns the row of the database itself, with the header figures as Windows computes them."""
        figures: Cells = (_UNPARSABLE,) * 4
        if header is not None:
            figures = (
                format_hints.Hex(header.committed_memory),
                format_hints.Hex(header.reserved_memory),
                header.lookups,
                header.back_traces,
            )
        return (*self._key, *(_NONE,) * 7, status, *(_NONE,) * 3, *figures, file_output)

    def heaplog(self, trace_count: Optional[int], status: str) -> Cells:
        """Returns the row of a heap's trace log, which has a number of records and no other figure."""
        return (*self._key, *(_NONE,) * 7, status, *(_NONE,) * 6, _or_unreadable(trace_count), _NONE)

    def folded(self, trace: Trace) -> Cells:
        """Returns the row of a back trace that holds its frames in the column Stack."""
        stack = self._stacks.folded(trace.frames, trace.status)
        return self._trace(trace, self._hex(trace.address), stack)

    def unfolded(self, trace: Trace) -> Iterator[Tuple[int, Cells]]:
        """Yields (depth, row) of a back trace and of its frames below it."""
        entry = self._hex(trace.address)
        yield 0, self._trace(trace, entry, _NONE)
        pid, process, arch, database = self._key
        index = trace.trace_index or _NONE
        # Of the two hundred thousand tuples of a listing none is made from others.
        for number, frame in enumerate(self.frames(trace)):
            address, symbol, source, status = frame.cells
            yield (
                1,
                (
                    pid,
                    process,
                    arch,
                    database,
                    index,
                    _NONE,
                    _NONE,
                    number,
                    address,
                    symbol,
                    source,
                    status,
                    entry,
                    _NONE,
                    _NONE,
                    _NONE,
                    _NONE,
                    _NONE,
                    _NONE,
                    _NONE,
                ),
            )

    def frames(self, trace: Trace) -> List[FrameCells]:
        """Returns the frames of a trace, innermost first."""
        return self._stacks.of(trace.frames, trace.status)

    def selected(self, selection: Selection, traces: Iterable[Trace]) -> Iterator[Trace]:
        """Returns the traces that are wanted; each address of the others is named once and shown never."""
        return self._stacks.selected(selection, traces)

    def _trace(self, trace: Trace, entry: format_hints.Hex, stack: object) -> Cells:
        index, _, count, depth, total, _, _, status = trace
        pid, process, arch, database = self._key
        return (
            pid,
            process,
            arch,
            database,
            index or _NONE,
            self._no_count if count is None else count,
            _UNREADABLE if depth is None else depth,
            _NONE,
            _NONE,
            _NONE,
            _NONE,
            status,
            entry,
            _UNREADABLE if total is None else format_hints.Hex(total),
            stack,
            _NONE,
            _NONE,
            _NONE,
            _NONE,
            _NONE,
        )

    def _hex(self, address: int) -> format_hints.Hex:
        return format_hints.Hex(address & self._mask)


def _or_unreadable(value: Optional[int]) -> Union[int, interfaces.renderers.BaseAbsentValue]:
    return _UNREADABLE if value is None else value
