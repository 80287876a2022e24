# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import logging
from typing import Iterator, List, Tuple

from volatility3.framework import interfaces, renderers

from .stacktraces.base import spaces, tables
from .stacktraces.handles import lister as handletraces
from .stacktraces.handles.event import HandleEvent
from .stacktraces.names import symbolizer
from .stacktraces.rows import options
from .stacktraces.rows.frames import names_of
from .stacktraces.rows.handles import COLUMNS, HandleRows
from .stacktraces.tracedb import finder as databases

vollog = logging.getLogger(__name__)

Row = Tuple[int, Tuple[object, ...]]


class HandleTraces(interfaces.plugins.PluginInterface):
    """Lists who opened and closed each handle, with the stack, where a process's handles are traced.

    On XP and 2003 with gflags +kst also who created each handle, and with +otl in any version each object.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            options.kernel(),
            *options.helpers(
                spaces=spaces.AddressSpaces,
                databases=databases.Databases,
                handletraces=handletraces.HandleTraces,
                symbolizer=symbolizer.Symbolizer,
            ),
            options.pid(),
            options.numbers("handle", "Show only the events of these handles"),
            options.switch("leaks", "Show only handles that were opened and never closed"),
            *options.selecting("events"),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        kernel_name = self.config["kernel"]
        naming = options.symbolizer(self)
        finder = databases.Databases(self.context, kernel_name, self.config_path, naming.indexes)
        kernel, *natives = [
            space for space in spaces.AddressSpaces.list_spaces(self.context, kernel_name) if not space.wow64
        ]
        lister = handletraces.HandleTraces(self.context, kernel_name, finder, kernel)
        rows = HandleRows(self.context.layers[kernel.layer_name], naming, kernel, natives)
        wanted = set(self.config.get("pid") or ())
        found = False
        try:
            for space in natives:
                if not wanted or space.pid in wanted:
                    self._progress_callback(0, f"Reading the handle traces of process {space.pid}")
                    for event in lister.list_events(space):
                        found = True
                        yield from self._event(event, rows)
        except tables.MissingTableError as error:
            vollog.error(error)
            return
        if not found:
            vollog.warning(
                "No handle traces: a process has them after '!htrace -enable', under Application Verifier's "
                "Handles, or after NtSetInformationProcess(ProcessHandleTracing); creators of handles are "
                "kept on XP and 2003 when NtGlobalFlag has +kst 0x2000, of objects with +otl 0x4000 as well"
            )

    def _event(self, event: HandleEvent, rows: HandleRows) -> Iterator[Row]:
        if not self._takes(event):
            return
        frames = rows.frames(event)
        selection = options.selection(self)
        if selection.everything or selection.takes(names_of(frames)):
            yield 0, rows.event(event)
            for cells in rows.frame_rows(event, frames):
                yield 1, cells

    def _takes(self, event: HandleEvent) -> bool:
        """Tells whether an event is wanted by --handle and --leaks; a hole may hide one that is."""
        if not event.event and event.handle is None:
            return True
        handles = set(self.config.get("handle") or ())
        return (not handles or event.handle in handles) and (
            event.leak or not self.config.get("leaks", False)
        )

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(COLUMNS, self._generator())
