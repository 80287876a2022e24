# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.objecttraces`."""

from __future__ import annotations

from functools import cached_property
from typing import Iterable, Iterator, List, Sequence

from ..memory.image import AddressSpace
from ..objects.lister import ObjectEvent, ObjectTraceLister
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.handles import OBJECTS, ObjectRows
from ..stacklist.frames import NamedFrame


class ObjectTraces(Command[AddressSpace, ObjectEvent]):
    """The work of `windows.objecttraces`."""

    grid = OBJECTS
    recorded = True
    things = "events"
    nothing = (
        "No object is traced: Windows keeps these traces when object reference tracing is on "
        "(gflags /ro, or ObTracePoolTags and ObTraceProcessName in the registry)"
    )

    @cached_property
    def _rows(self) -> ObjectRows:
        return ObjectRows(self)

    def steps(self) -> List[AddressSpace]:
        return [self.image.kernel]

    def describe(self, step: AddressSpace) -> str:
        return "Reading the traces of objects"

    def items(self, step: AddressSpace) -> Iterable[ObjectEvent]:
        return self.with_progress(ObjectTraceLister(self.image).list_events(), self.describe(step))

    def is_gap(self, item: ObjectEvent) -> bool:
        return not item.event

    def frames(self, item: ObjectEvent) -> Sequence[NamedFrame]:
        return self.frames_of(self.image.kernel).name_recorded(item.stack)

    def rows(self, item: ObjectEvent, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        return self._rows.event(item, frames)
