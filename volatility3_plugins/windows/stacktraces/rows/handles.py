# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.handletraces`, in the order of its columns."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..base import bulk
from ..base.spaces import AddressSpace
from ..handles.event import HandleEvent
from ..names.symbolizer import SpaceNames, Symbolizer
from .frames import FrameCells, StackCells

COLUMNS: List[Tuple[str, type]] = [
    ("PID", int),
    ("Process", str),
    ("Handle", format_hints.Hex),
    ("Event", str),
    ("ByPID", int),
    ("ByTID", int),
    ("Sequence", int),
    ("Object", format_hints.Hex),
    ("ObjectType", str),
    ("ObjectName", str),
    ("Frame", int),
    ("Address", format_hints.Hex),
    ("Symbol", str),
    ("Source", str),
    ("Status", str),
]

Cells = Tuple[object, ...]

_NONE = renderers.NotApplicableValue()


class HandleRows:
    """Makes the rows of handle events.

    Args:
        layer: the kernel's, whose form of addresses the columns have
        naming: names addresses
        kernel: the kernel's address space
        natives: the native spaces of all processes
    """

    def __init__(
        self,
        layer: interfaces.layers.DataLayerInterface,
        naming: Symbolizer,
        kernel: AddressSpace,
        natives: Iterable[AddressSpace],
    ) -> None:
        self._layer = layer
        self._naming = naming
        self._kernel = kernel
        self._spaces: Dict[int, AddressSpace] = {space.pid: space for space in natives if space.layer_name}

    def frames(self, event: HandleEvent) -> List[FrameCells]:
        """Returns an event's frames, named in the address space of the process that acted."""
        return StackCells(self._layer, self._names(event)).of(event.frames, event.status)

    def event(self, event: HandleEvent) -> Cells:
        """Returns the row of an event, or of a hole."""
        thing = event.object
        return (
            *self._key(event),
            _or_none(event.by_pid),
            _or_none(event.by_tid),
            _or_none(event.sequence),
            format_hints.Hex(bulk.masked(self._layer, thing.body)) if thing else _NONE,
            _or_none(thing.type if thing else None),
            _or_none(thing.name if thing else None),
            *(_NONE,) * 4,
            event.status,
        )

    def frame_rows(self, event: HandleEvent, frames: List[FrameCells]) -> Iterator[Cells]:
        """Yields the rows of an event's frames."""
        key = self._key(event)
        for number, frame in enumerate(frames):
            yield (*key, *(_NONE,) * 2, _or_none(event.sequence), *(_NONE,) * 3, number, *frame.cells)

    def _key(self, event: HandleEvent) -> Cells:
        return (
            event.space.pid,
            event.space.process,
            _NONE if event.handle is None else format_hints.Hex(event.handle),
            event.event or _NONE,
        )

    def _names(self, event: HandleEvent) -> SpaceNames:
        # Who made a handle is not recorded, but as a rule a process makes its own.
        pid = event.space.pid if event.by_pid is None else event.by_pid
        return self._naming.names(self._spaces.get(pid, self._kernel))


def _or_none(value: object) -> object:
    return _NONE if value is None else value
