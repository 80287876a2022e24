# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.handletraces` and `windows.objecttraces`."""

from __future__ import annotations

import functools
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from ..base import bulk
from ..base.decode.status import Word, says, text
from ..base.image import Image
from ..base.objectheaders import ObjectInfo
from ..base.space import AddressSpace
from ..handles.rings import HandleEvent
from ..names.symbolizer import Symbolizer
from ..objects.lister import ObjectEvent
from .frames import FrameCells, StackCells
from .grid import NOT_APPLICABLE, Cells, Grid, Hex, Row, given

HANDLES = Grid(
    ("PID", int),
    ("Process", str),
    ("Handle", Hex),
    ("Event", str),
    ("ByPID", int),
    ("ByTID", int),
    ("Sequence", int),
    ("Object", Hex),
    ("ObjectType", str),
    ("ObjectName", str),
    ("Frame", int),
    ("Address", Hex),
    ("Symbol", str),
    ("Source", str),
    ("Status", str),
)

OBJECTS = Grid(
    ("Object", Hex),
    ("ObjectType", str),
    ("ObjectName", str),
    ("Process", str),
    ("Event", str),
    ("Count", int),
    ("Tag", str),
    ("Sequence", int),
    ("Frame", int),
    ("Address", Hex),
    ("Symbol", str),
    ("Source", str),
    ("Status", str),
)

MAX_SPACES = 16
"""Address spaces whose named addresses are kept as cells: the events of one ring come from few processes."""


class HandleRows:
    """Makes the rows of handle events.

    Args:
        image: the image
        symbolizer: names addresses
        natives: the native spaces of all processes
    """

    def __init__(self, image: Image, symbolizer: Symbolizer, natives: Iterable[AddressSpace]) -> None:
        self._image = image
        self._symbolizer = symbolizer
        self._spaces: Dict[int, AddressSpace] = {
            space.pid: space for space in natives if space.layer_name and not space.kernel
        }
        self._stacks = functools.lru_cache(maxsize=MAX_SPACES)(self._stacks_of)
        key = ("PID", "Process", "Handle", "Event", "Sequence")
        self._event = HANDLES.maker(*key, "ByPID", "ByTID", "Object", "ObjectType", "ObjectName", "Status")
        self._frames = HANDLES.frames_maker(*key)

    def frames(self, event: HandleEvent) -> List[FrameCells]:
        """Returns an event's frames, named in the address space of the process that acted."""
        # The process that created a handle is not recorded; as a rule it is the process that has the handle.
        pid = event.space.pid if event.by_pid is None else event.by_pid
        stacks = self._stacks(self._spaces.get(pid, self._image.kernel))
        return stacks.of(event.frames, says(event.status, Word.FREED))

    def event(self, event: HandleEvent) -> Cells:
        """Returns the row of an event, or of a hole."""
        return self._event(
            *self._key(event),
            given(event.by_pid),
            given(event.by_tid),
            *_object(self._image, event.object),
            text(event.status),
        )

    def frame_rows(self, event: HandleEvent, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of an event's frames."""
        return self._frames(*self._key(event), frames)

    def _key(self, event: HandleEvent) -> Cells:
        return (
            event.space.pid,
            event.space.process,
            NOT_APPLICABLE if event.handle is None else Hex(event.handle),
            event.event or NOT_APPLICABLE,
            given(event.sequence),
        )

    def _stacks_of(self, space: AddressSpace) -> StackCells:
        return StackCells(self._image.layer, self._symbolizer.names(space))


class ObjectRows:
    """Makes the rows of the events of traced objects.

    Args:
        image: the image
        symbolizer: names addresses
    """

    def __init__(self, image: Image, symbolizer: Symbolizer) -> None:
        self._image = image
        self._stacks = StackCells(image.layer, symbolizer.names(image.kernel))
        key = ("Object", "ObjectType", "ObjectName", "Process", "Sequence")
        self._event = OBJECTS.maker(*key, "Event", "Count", "Tag", "Status")
        self._frames = OBJECTS.frames_maker(*key)

    def frames(self, event: ObjectEvent) -> List[FrameCells]:
        """Returns an event's frames."""
        return self._stacks.of(event.frames)

    def event(self, event: ObjectEvent) -> Cells:
        """Returns the row of an event, or the row that stands for events that cannot be read."""
        counted = (event.event or NOT_APPLICABLE, given(event.num_traces), given(event.tag))
        return self._event(*self._key(event), *counted, text(event.status))

    def frame_rows(self, event: ObjectEvent, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of an event's frames."""
        return self._frames(*self._key(event), frames)

    def _key(self, event: ObjectEvent) -> Cells:
        return (*_object(self._image, event.object), given(event.process), given(event.sequence))


def _object(image: Image, thing: Optional[ObjectInfo]) -> Tuple[object, object, object]:
    if thing is None:
        return NOT_APPLICABLE, NOT_APPLICABLE, NOT_APPLICABLE
    return Hex(bulk.masked(image.layer, thing.body)), given(thing.type), given(thing.name)
