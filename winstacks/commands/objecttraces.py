# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.objecttraces`."""

from __future__ import annotations

from typing import Iterable, List, Sequence

from ..memory.image import AddressSpace
from ..objects.lister import Listed, ObjectEvent, ObjectTraceLister
from ..rows.command import Command
from ..rows.entries import OBJECT, ShownEntry, object_cells
from ..rows.grid import Grid
from ..stacklist.frames import NamedFrame


class ObjectTraces(Command[AddressSpace, ObjectEvent]):
    """The work of `windows.objecttraces`."""

    grid = Grid.for_plugin("objecttraces")
    key = (*OBJECT, "ImageFileName", "Event", "Sequence")
    recorded = True
    things = "events"
    nothing = (
        "No object is traced: Windows keeps these traces when object reference tracing is on "
        "(gflags /ro, or ObTracePoolTags and ObTraceProcessName in the registry)"
    )

    def steps(self) -> List[AddressSpace]:
        return [self.image.kernel]

    def describe(self, step: AddressSpace) -> str:
        return "Reading the traces of objects"

    def items(self, step: AddressSpace) -> Iterable[Listed]:
        return self.with_progress(ObjectTraceLister(self.image).list_events(), self.describe(step))

    def is_gap(self, item: ObjectEvent) -> bool:
        return not item.event

    def frames(self, item: ObjectEvent) -> Sequence[NamedFrame]:
        return self.frames_of(self.image.kernel).name_recorded(item.stack)

    def entry(self, item: ObjectEvent) -> ShownEntry:
        cells = {
            **object_cells(item.object),
            "ImageFileName": item.process,
            "Event": item.event or None,
            "Sequence": item.sequence,
            "Count": item.num_traces,
            "Tag": item.tag,
        }
        return ShownEntry(self.image.kernel, item.status, cells)
