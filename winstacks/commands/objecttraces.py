# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.objecttraces`."""

from __future__ import annotations

from typing import Iterator

from volatility3.framework import interfaces

from ..objects.lister import ObjectTraceLister
from ..rows import requested
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.handles import OBJECTS, ObjectRows
from ..rows.plugin import Listing, tree

_NOTHING = (
    "No object is traced: Windows keeps these traces when object reference tracing is on "
    "(gflags /ro, or ObTracePoolTags and ObTraceProcessName in the registry)"
)


class ObjectTraces(Command):
    """What `windows.objecttraces` does."""

    def _generator(self) -> Iterator[Row]:
        with Listing(self, _NOTHING, "events") as listing:
            image = self.image
            rows = ObjectRows(image, requested.symbolizer(self.plugin, image), self.config.get("fold", False))
            listed = ObjectTraceLister(image).list_events()
            for event in listing.many(listed, "Reading the traces of objects"):
                if event.event:
                    listing.found = True
                else:
                    listing.unread = True
                frames = rows.frames(event)
                if listing.selection.takes(frames):
                    listing.matched = listing.found
                    yield 0, rows.event(event, frames)
                    yield from rows.frame_rows(event, frames)

    def run(self) -> interfaces.renderers.TreeGrid:
        return tree(self.plugin, OBJECTS, self._generator())
