# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.handletraces`."""

from __future__ import annotations

from typing import Iterator

from volatility3.framework import interfaces

from ..handles.lister import HandleLister
from ..handles.rings import HandleEvent
from ..memory.decode.status import Word, says
from ..memory.image import AddressSpace
from ..rows import requested
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.handles import HANDLES, HandleRows
from ..rows.plugin import Listing, advice, tree
from ..tracedb.finder import Databases

_NOTHING = (
    "No handle traces: a process has them after '!htrace -enable', under Application Verifier's Handles, or "
    "after NtSetInformationProcess(ProcessHandleTracing); creators of handles are kept on 32-bit XP and 2003 "
    "when NtGlobalFlag has +kst 0x2000, of objects with +otl 0x4000 as well"
)


class HandleTraces(Command):
    """What `windows.handletraces` does."""

    def _generator(self) -> Iterator[Row]:
        with Listing(self, _NOTHING, "events", kernel=False) as listing:
            image = self.image
            names = requested.symbolizer(self.plugin, image)
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
        return tree(self.plugin, HANDLES, self._generator())


def _work(space: AddressSpace) -> str:
    return f"Reading the handle traces of process {space.pid}"
