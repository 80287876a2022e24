# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

from typing import Iterator, List

from volatility3.framework import interfaces

from .stacktraces.names.symbolizer import Symbolizer
from .stacktraces.objects.lister import ObjectTraceLister
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing, tree

_NOTHING = (
    "No object is traced: Windows keeps these traces when object reference tracing is on "
    "(gflags /ro, or ObTracePoolTags and ObTraceProcessName in the registry)"
)


class ObjectTraces(interfaces.plugins.PluginInterface):
    """Lists who took and dropped references to traced objects, as the debugger's !obtrace does.

    Objects are traced by pool tag or process when gflags enabled that (ObTracePoolTags, ObTraceProcessName).
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(objecttraces=ObjectTraceLister, symbolizer=Symbolizer),
            *options.selecting("events"),
            options.fold(),
            options.brief(),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        from .stacktraces.rows.handles import ObjectRows

        with Listing(self, _NOTHING, "events") as listing:
            image = options.image(self)
            rows = ObjectRows(image, options.symbolizer(self, image), self.config.get("fold", False))
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
        from .stacktraces.rows.handles import OBJECTS

        return tree(self, OBJECTS, self._generator())
