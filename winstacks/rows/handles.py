# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.handletraces` and `windows.objecttraces`."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence, Tuple

from ..handles.rings import HandleEvent
from ..memory.decode.status import text
from ..memory.image import Image
from ..objects.lister import ObjectEvent
from ..process.objectheaders import ObjectInfo
from ..stacklist.frames import NamedFrame
from .command import Command
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, Grid, Hex, Row, or_not_applicable, or_unreadable

HANDLES = Grid.for_plugin("handletraces")
OBJECTS = Grid.for_plugin("objecttraces")

_SPACE, _OBJECT = ("PID", "Process", "Arch"), ("Object", "ObjectType", "ObjectName")


class HandleRows:
    """Makes the rows of handle events."""

    def __init__(self, command: Command[Any, HandleEvent]) -> None:
        self._image = command.image
        key = (*_SPACE, "Handle", "Event", "Sequence", *_OBJECT)
        self._rows = command.stack_rows(key, ("ByPID", "ByTID", "Status"))

    def event(self, event: HandleEvent, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        """Returns the rows of an event, or of a gap, and of its frames."""
        key = (
            or_unreadable(event.space.pid),
            or_unreadable(event.space.known_name),
            event.space.arch,
            NOT_APPLICABLE if event.handle is None else Hex(event.handle),
            event.event or NOT_APPLICABLE,
            or_not_applicable(event.sequence),
            *_object(self._image, event.object),
        )
        cells = (or_not_applicable(event.by_pid), or_not_applicable(event.by_tid), text(event.status))
        return self._rows.rows(key, cells, frames)


class ObjectRows:
    """Makes the rows of the events of traced objects."""

    def __init__(self, command: Command[Any, ObjectEvent]) -> None:
        self._image = command.image
        key = (*_SPACE, *_OBJECT, "ImageFileName", "Event", "Sequence")
        self._rows = command.stack_rows(key, ("Count", "Tag", "Status"))

    def event(self, event: ObjectEvent, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        """Returns the rows of an event and of its frames, or the row of events that cannot be read."""
        kernel = self._image.kernel
        key = (
            kernel.pid,
            kernel.process,
            kernel.arch,
            *_object(self._image, event.object),
            or_not_applicable(event.process),
            event.event or NOT_APPLICABLE,
            or_not_applicable(event.sequence),
        )
        return self._rows.rows(
            key,
            (or_not_applicable(event.num_traces), or_not_applicable(event.tag), text(event.status)),
            frames,
        )


def _object(image: Image, thing: Optional[ObjectInfo]) -> Tuple[object, object, object]:
    if thing is None:
        return NOT_APPLICABLE, NOT_APPLICABLE, NOT_APPLICABLE
    body = Hex(image.machine.masked(thing.body)) if thing.body else NOT_AVAILABLE
    return body, or_not_applicable(thing.type), or_not_applicable(thing.name)
