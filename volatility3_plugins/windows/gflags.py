# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import logging
from typing import Iterator, List, Optional, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from .stacktraces.base import bulk, globalflag, spaces, tables
from .stacktraces.base.decode import globalflags
from .stacktraces.names import moduleindex, pdbsymbols
from .stacktraces.rows import options
from .stacktraces.tracedb import finder as databases
from .stacktraces.tracedb.found import Database

vollog = logging.getLogger(__name__)

Row = Tuple[int, Tuple[object, ...]]

_NONE = renderers.NotApplicableValue()


class GFlags(interfaces.plugins.PluginInterface):
    """Lists NtGlobalFlag of the kernel and of every process, and the trace databases that each has.

    Below each address space stand its databases, with a self-check of each: what the index array, the hash
    chains and the blocks of the database say of its traces.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            options.kernel(),
            *options.helpers(spaces=spaces.AddressSpaces, databases=databases.Databases),
            options.pid("the kernel"),
            options.switch("carve", "Also show databases that no pointer leads to"),
        ]

    def _generator(self) -> Iterator[Row]:
        kernel_name = self.config["kernel"]
        indexes = moduleindex.ModuleIndexes(self.context, pdbsymbols.PdbSymbols(self.context))
        finder = databases.Databases(self.context, kernel_name, self.config_path, indexes)
        try:
            for space in spaces.AddressSpaces.list_spaces(self.context, kernel_name, self.config.get("pid")):
                self._progress_callback(0, f"Checking the databases of process {space.pid}")
                flags = globalflag.read(self.context, kernel_name, space)
                found = finder.search(space, self.config.get("carve", False))
                yield 0, self._space_row(space, flags, finder.missing(space, found, flags))
                for each in found.databases:
                    yield 1, self._database_row(finder, each)
        except tables.MissingTableError as error:
            vollog.error(error)

    def _space_row(
        self, space: spaces.AddressSpace, flags: Optional[int], missing: str
    ) -> Tuple[object, ...]:
        status = space.status or missing
        if flags is None and not status:
            status = "flags unreadable" if space.peb or space.kernel else "no PEB"
        unread = renderers.UnreadableValue()
        return (
            space.pid,
            space.process,
            space.arch,
            unread if flags is None else format_hints.Hex(flags),
            unread if flags is None else globalflags.abbreviate(flags),
            *(_NONE,) * 10,
            status,
            _NONE,
        )

    def _database_row(self, finder: databases.Databases, each: Database) -> Tuple[object, ...]:
        space = each.space
        layer = self.context.layers[space.layer_name]
        opened = finder.open(each)
        cells: Tuple[object, ...] = (renderers.UnparsableValue(),) * 6
        orphans: object = renderers.UnparsableValue()
        status = [each.status]
        if opened is not None:
            status.append(opened.status)
            figures = opened.figures()
            cells = (
                figures.indexed,
                figures.chained,
                figures.freed,
                figures.unindexed,
                figures.mismatched,
                figures.unreadable,
            )
            orphans = figures.orphans
        return (
            space.pid,
            space.process,
            space.arch,
            _NONE,
            _NONE,
            each.kind,
            format_hints.Hex(bulk.masked(layer, each.address)),
            each.located_by,
            each.layout or renderers.UnparsableValue(),
            *cells,
            ", ".join(filter(None, status)),
            orphans,
        )

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(
            [
                ("PID", int),
                ("Process", str),
                ("Arch", str),
                ("NtGlobalFlag", format_hints.Hex),
                ("Flags", str),
                ("Kind", str),
                ("Database", format_hints.Hex),
                ("LocatedBy", str),
                ("Layout", str),
                ("Indexed", int),
                ("Chained", int),
                ("Freed", int),
                ("Unindexed", int),
                ("Mismatched", int),
                ("Unreadable", int),
                ("Status", str),
                ("Orphans", int),
            ],
            self._generator(),
        )
