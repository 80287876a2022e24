# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.handletraces` and `windows.objecttraces`."""

from __future__ import annotations

from typing import Iterable, Iterator, List, Optional, Tuple

from ..handles.lister import ActingSpaces
from ..handles.rings import HandleEvent
from ..memory.decode.status import Word, says, text
from ..memory.image import AddressSpace, Image
from ..names.symbolizer import Symbolizer
from ..objects.lister import ObjectEvent
from ..process.objectheaders import ObjectInfo
from .columns import BRIEF, PLUGINS, Hex
from .frames import FrameCells, SpaceStacks, folded, unbacked
from .grid import NOT_APPLICABLE, Cells, Grid, Row, given

HANDLES = Grid(*PLUGINS["handletraces"], brief=BRIEF["handletraces"])
OBJECTS = Grid(*PLUGINS["objecttraces"], brief=BRIEF["objecttraces"])


class HandleRows:
    """Makes the rows of handle events.

    Args:
        image: the image
        symbolizer: names addresses
        natives: the native spaces of all processes
        fold: whether the row of an event holds its stack, in the place of frame rows
    """

    def __init__(
        self, image: Image, symbolizer: Symbolizer, natives: Iterable[AddressSpace], fold: bool = False
    ) -> None:
        self._image = image
        self._fold = fold
        self._acting = ActingSpaces(image, natives)
        self._stacks = SpaceStacks(symbolizer)
        thing = ("Object", "ObjectType", "ObjectName")
        key = ("PID", "Process", "Arch", "Handle", "Event", "Sequence", *thing)
        self._event = HANDLES.maker(*key, "ByPID", "ByTID", "Unbacked", "Status", "Stack")
        self._frames = HANDLES.frames_maker(*key)

    def frames(self, event: HandleEvent) -> List[FrameCells]:
        """Returns an event's frames, named in the address space of the process that acted."""
        stacks = self._stacks.of(self._acting.of(event))
        return stacks.of(event.frames, says(event.status, Word.FREED))

    def event(self, event: HandleEvent, frames: List[FrameCells]) -> Cells:
        """Returns the row of an event, or of a hole."""
        by = (given(event.by_pid), given(event.by_tid))
        stack = folded(frames, self._fold)
        return self._event(*self._key(event), *by, unbacked(frames), text(event.status), stack)

    def frame_rows(self, event: HandleEvent, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of an event's frames."""
        return self._frames(*self._key(event), () if self._fold else frames)

    def _key(self, event: HandleEvent) -> Cells:
        return (
            event.space.pid,
            event.space.process,
            event.space.arch,
            NOT_APPLICABLE if event.handle is None else Hex(event.handle),
            event.event or NOT_APPLICABLE,
            given(event.sequence),
            *_object(self._image, event.object),
        )


class ObjectRows:
    """Makes the rows of the events of traced objects.

    Args:
        image: the image
        symbolizer: names addresses
        fold: whether the row of an event holds its stack, in the place of frame rows
    """

    def __init__(self, image: Image, symbolizer: Symbolizer, fold: bool = False) -> None:
        self._image = image
        self._fold = fold
        self._stacks = SpaceStacks(symbolizer).of(image.kernel)
        space, thing = ("PID", "Process", "Arch"), ("Object", "ObjectType", "ObjectName")
        key = (*space, *thing, "ImageFileName", "Event", "Sequence")
        self._event = OBJECTS.maker(*key, "Count", "Tag", "Unbacked", "Status", "Stack")
        self._frames = OBJECTS.frames_maker(*key)

    def frames(self, event: ObjectEvent) -> List[FrameCells]:
        """Returns an event's frames."""
        return self._stacks.of(event.frames)

    def event(self, event: ObjectEvent, frames: List[FrameCells]) -> Cells:
        """Returns the row of an event, or the row that stands for events that cannot be read."""
        counted = (given(event.num_traces), given(event.tag), unbacked(frames))
        return self._event(*self._key(event), *counted, text(event.status), folded(frames, self._fold))

    def frame_rows(self, event: ObjectEvent, frames: List[FrameCells]) -> Iterator[Row]:
        """Yields the rows of an event's frames."""
        return self._frames(*self._key(event), () if self._fold else frames)

    def _key(self, event: ObjectEvent) -> Cells:
        kernel = self._image.kernel
        return (
            kernel.pid,
            kernel.process,
            kernel.arch,
            *_object(self._image, event.object),
            given(event.process),
            event.event or NOT_APPLICABLE,
            given(event.sequence),
        )


def _object(image: Image, thing: Optional[ObjectInfo]) -> Tuple[object, object, object]:
    if thing is None:
        return NOT_APPLICABLE, NOT_APPLICABLE, NOT_APPLICABLE
    return Hex(image.machine.masked(thing.body)), given(thing.type), given(thing.name)
