# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of one database: what `windows.stacktracedb` shows of it, in the order of its columns."""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from . import memory
from .databases import Database
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
        self._hex = _hex_form(layer)
        self._names = names
        self._key: Cells = (
            database.space.pid,
            database.space.process,
            database.space.arch,
            self._hex(database.address),
        )
        self._frames: Dict[int, Frame] = {}

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

    def trace(self, trace: Trace, frames: Optional[List[Frame]] = None) -> Cells:
        """Returns the row of a back trace.

        Args:
            trace: the trace
            frames: its frames, if the column Stack is to hold them
        """
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
            self._hex(trace.address),
            _UNREADABLE if trace.hash is None else format_hints.Hex(trace.hash),
            _NONE if frames is None else "; ".join(map(_in_stack, frames)),
            *(_NONE,) * 5,
        )

    def frame(self, trace: Trace, number: int, frame: Frame) -> Cells:
        """Returns the row of a frame."""
        return (
            *self._key,
            trace.trace_index or _NONE,
            _NONE,
            _NONE,
            number,
            *frame.cells,
            self._hex(trace.address),
            *(_NONE,) * 7,
        )

    def frames(self, trace: Trace) -> List[Frame]:
        """Returns the frames of a trace, innermost first."""
        known = self._frames
        missing = _LINKED_OVER if "freed" in trace.status else _NOT_THERE
        found = []
        for address in trace.frames:
            if address is None:
                found.append(missing)
                continue
            frame = known.get(address)
            if frame is None:
                name = self._names.name(address)
                cells = (self._hex(address), name.symbol, name.source, name.status)
                frame = known[address] = Frame(cells, name)
            found.append(frame)
        return found


def names_of(frames: List[Frame]) -> Iterator[Name]:
    """Yields the names of the frames that are there."""
    return (frame.name for frame in frames if frame.name is not None)


def _in_stack(frame: Frame) -> str:
    return f"<{frame.cells[3]}>" if frame.name is None else frame.name.symbol


def _or_unreadable(value: Optional[int]) -> Union[int, interfaces.renderers.BaseAbsentValue]:
    return _UNREADABLE if value is None else value


def _hex_form(layer: interfaces.layers.DataLayerInterface) -> Callable[[int], format_hints.Hex]:
    return lambda address: format_hints.Hex(memory.masked(layer, address))
