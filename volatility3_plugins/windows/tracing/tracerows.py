# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of one database: what `windows.stacktracedb` shows of it, in the order of its columns."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple, Union

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from . import memory
from .databases import Database
from .decode import stdstatus
from .decode.memo import Memo
from .decode.stdheader import Header
from .decode.stdwalk import Trace
from .symbolizer import Name, SpaceNames

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
_OVERWRITTEN = "overwritten"
_UNREADABLE_WORD = "unreadable"
_FREED = stdstatus.text(stdstatus.FREED)


class Frame(NamedTuple):
    """The cells of a frame, and the name that they come from (None: the frame is not there)."""

    cells: Tuple[object, object, object, str]
    name: Optional[Name]


_NOT_THERE = Frame((_UNREADABLE, _UNREADABLE, _UNREADABLE, _UNREADABLE_WORD), None)
_LINKED_OVER = Frame((_UNPARSABLE, _UNPARSABLE, _UNPARSABLE, _OVERWRITTEN), None)


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
        self._layer = layer
        self._names = names
        self._key: Cells = (
            database.space.pid,
            database.space.process,
            database.space.arch,
            self._hex(database.address),
        )
        self._frames = Memo(self._frame)
        self._symbols = Memo(self._symbol)

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
        if _FREED in trace.status:
            stack = "; ".join(map(_in_stack, self.frames(trace)))
        else:
            stack = "; ".join(map(self._symbols.__getitem__, trace.frames))
        return self._trace(trace, self._hex(trace.address), stack)

    def unfolded(self, trace: Trace) -> Iterator[Tuple[int, Cells]]:
        """Yields (depth, row) of a back trace and of its frames below it."""
        entry = self._hex(trace.address)
        yield 0, self._trace(trace, entry, _NONE)
        before = (*self._key, trace.trace_index or _NONE, _NONE, _NONE)
        after = (entry, *(_NONE,) * 7)
        for number, frame in enumerate(self.frames(trace)):
            yield 1, (*before, number, *frame.cells, *after)

    def frames(self, trace: Trace) -> List[Frame]:
        """Returns the frames of a trace, innermost first."""
        frames = map(self._frames.__getitem__, trace.frames)
        if _FREED in trace.status:
            return [_LINKED_OVER if frame.name is None else frame for frame in frames]
        return list(frames)

    def _trace(self, trace: Trace, entry: format_hints.Hex, stack: object) -> Cells:
        return (
            *self._key,
            trace.trace_index or _NONE,
            _or_unreadable(trace.trace_count),
            _or_unreadable(trace.depth),
            _NONE,
            _NONE,
            _NONE,
            _NONE,
            trace.status,
            entry,
            _UNREADABLE if trace.hash is None else format_hints.Hex(trace.hash),
            stack,
            *(_NONE,) * 5,
        )

    def _frame(self, address: Optional[int]) -> Frame:
        if address is None:
            return _NOT_THERE
        name = self._names.name(address)
        return Frame((self._hex(address), name.symbol, name.source, name.status), name)

    def _symbol(self, address: Optional[int]) -> str:
        return _in_stack(self._frames[address])

    def _hex(self, address: int) -> format_hints.Hex:
        return format_hints.Hex(memory.masked(self._layer, address))


def names_of(frames: List[Frame]) -> Iterator[Name]:
    """Yields the names of the frames that are there."""
    return (frame.name for frame in frames if frame.name is not None)


def _in_stack(frame: Frame) -> str:
    return f"<{frame.cells[3]}>" if frame.name is None else frame.name.symbol


def _or_unreadable(value: Optional[int]) -> Union[int, interfaces.renderers.BaseAbsentValue]:
    return _UNREADABLE if value is None else value
