# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

from typing import Iterator, List

from volatility3.framework import interfaces

from .stacktraces.base.decode.status import Word, says
from .stacktraces.base.image import AddressSpace
from .stacktraces.handles.lister import HandleLister
from .stacktraces.handles.rings import HandleEvent
from .stacktraces.names.symbolizer import Symbolizer
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing, advice, tree
from .stacktraces.tracedb.finder import Databases

_NOTHING = (
    "No handle traces: a process has them after '!htrace -enable', under Application Verifier's Handles, or "
    "after NtSetInformationProcess(ProcessHandleTracing); creators of handles are kept on XP and 2003 when "
    "NtGlobalFlag has +kst 0x2000, of objects with +otl 0x4000 as well"
)


class HandleTraces(interfaces.plugins.PluginInterface):
    """Lists who opened and closed each handle, with the stack, where a process's handles are traced.

    On XP and 2003 with gflags +kst also who created each handle, and with +otl in any version each object.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(databases=Databases, handletraces=HandleLister, symbolizer=Symbolizer),
            options.pid(),
            options.numbers("handle", "Show only the events of these handles"),
            options.switch("leaks", "Show only handles that were opened and of which no close was traced"),
            *options.selecting("events"),
            options.fold(),
            options.brief(),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        from .stacktraces.rows.handles import HandleRows

        with Listing(self, _NOTHING, "events", kernel=False) as listing:
            image = options.image(self)
            names = options.symbolizer(self, image)
            lister = HandleLister(image, Databases(image, names.indexes))
            natives = lister.list_spaces()
            listing.nothing = advice(image, _NOTHING)
            rows = HandleRows(image, names, natives, self.config.get("fold", False))
            wanted = set(self.config.get("pid") or ())
            for space in listing.each(natives, _work, len(natives)):
                if wanted and space.pid not in wanted:
                    lister.pass_over(space)
                    continue
                for event in lister.list_events(space):
                    if event.event or event.handle is not None:
                        listing.found = True
                        listing.asked.saw("handle", event.handle)
                    else:
                        listing.unread = True
                    if self._takes(event):
                        frames = rows.frames(event)
                        if listing.selection.takes(frames):
                            listing.matched = listing.found
                            yield 0, rows.event(event, frames)
                            yield from rows.frame_rows(event, frames)

    def _takes(self, event: HandleEvent) -> bool:
        """Tells whether --handle and --leaks let an event through; a hole passes, as it may hide one."""
        if not event.event and event.handle is None:
            return True
        handles = self.config.get("handle") or ()
        # Every close is traced: that of an open handle which is gone may have been taken out of the ring.
        leak = event.leak or says(event.status, Word.NO_LONGER_OPEN)
        return (not handles or event.handle in handles) and (leak or not self.config.get("leaks", False))

    def run(self) -> interfaces.renderers.TreeGrid:
        from .stacktraces.rows.handles import HANDLES

        return tree(self, HANDLES, self._generator())


def _work(space: AddressSpace) -> str:
    return f"Reading the handle traces of process {space.pid}"
