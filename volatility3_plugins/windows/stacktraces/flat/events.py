# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The stacks of events of handles and of traced objects: kinds `handle` and `object`."""

from __future__ import annotations

from typing import Collection, Iterator, Optional

from ..base.decode.status import Word, says
from ..base.image import Image
from ..base.objectheaders import ObjectInfo
from ..handles.lister import ActingSpaces, HandleLister
from ..handles.rings import HandleEvent
from ..objects.lister import ObjectEvent, ObjectTraceLister
from .decode.schema import HANDLE, OBJECT
from .frames import FlatFrames
from .recorded import recorded_hash
from .stack import Distinct, FlatStack


class HandleStacks:
    """Who opened, closed and created handles.

    Args:
        image: the image
        frames: looks up frames
        handles: lists the events
    """

    def __init__(self, image: Image, frames: FlatFrames, handles: HandleLister) -> None:
        self._frames = frames
        self._handles = handles
        self._natives = handles.list_spaces()
        self._acting = ActingSpaces(image, self._natives)

    def list_stacks(self, pids: Collection[int] = ()) -> Iterator[FlatStack]:
        """Yields the events of processes, and what stands for those that cannot be read.

        Args:
            pids: the processes wanted; all when empty
        """
        for space in self._natives:
            distinct = Distinct()
            for event in self._handles.list_events(space) if not pids or space.pid in pids else ():
                yield self._flat(event, distinct)

    def _flat(self, event: HandleEvent, distinct: Distinct) -> FlatStack:
        frames = self._frames.of(self._acting.of(event))
        body = 0 if event.object is None else event.object.body
        key = distinct.key(HANDLE, event.space, event.handle or 0, event.event, event.sequence or 0, body)
        hole = not event.event and event.handle is None
        return FlatStack(
            HANDLE,
            key,
            event.space,
            event.handle,
            _described(event.object),
            frames.stack(event.frames, says(event.status, Word.FREED)),
            event.status,
            tid=event.by_tid,
            event=event.event or None,
            count=None if hole else 1,
            depth=None if hole else len(event.frames),
            hash=recorded_hash(event.frames),
        )


class ObjectStacks:
    """Who took and dropped references to traced objects.

    Args:
        image: the image
        frames: looks up frames
        objects: lists the events
    """

    def __init__(self, image: Image, frames: FlatFrames, objects: ObjectTraceLister) -> None:
        self._kernel = image.kernel
        self._frames = frames
        self._objects = objects

    def list_stacks(self) -> Iterator[FlatStack]:
        """Yields the events, and what stands for those that cannot be read."""
        distinct = Distinct()
        for event in self._objects.list_events():
            yield self._flat(event, distinct)

    def _flat(self, event: ObjectEvent, distinct: Distinct) -> FlatStack:
        body = 0 if event.object is None else event.object.body
        return FlatStack(
            OBJECT,
            distinct.key(OBJECT, self._kernel, body, event.event, event.sequence or 0),
            self._kernel,
            body or None,
            _described(event.object),
            self._frames.of(self._kernel).stack(event.frames),
            event.status,
            event=event.event or None,
            count=event.num_traces,
            depth=len(event.frames) if event.event else None,
            hash=recorded_hash(event.frames),
        )


def _described(thing: Optional[ObjectInfo]) -> Optional[str]:
    """Returns the type and the name of an object."""
    return None if thing is None else " ".join(filter(None, (thing.type, thing.name))) or None
