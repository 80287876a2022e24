# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import Iterator, List

from volatility3.framework import interfaces

from .stacktraces.flat.imagefacts import Totals, Warnings
from .stacktraces.flat.stack import FlatWanted
from .stacktraces.flat.tables import FlatTables
from .stacktraces.rows import flat as rows
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing


class StackTraces(interfaces.plugins.PluginInterface):
    """Lists every stack of the image in one table, whoever remembered it, with keys equal on every machine.

    Stacks of threads, traces of databases, of heap blocks, locks, handles and traced objects: one row each,
    all rows at one level, always with the same columns. windows.traceframes has their frames, and
    windows.traceimage says what the image is.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *rows.requirements_of_flat("stacks"),
            options.switch("dump", "Write stacks, frames and image as JSON lines, and show the files only"),
            rows.sha256(),
        ]

    def _generator(self, wanted: FlatWanted) -> Iterator[Row]:
        with Listing(self, rows.NOTHING, "stacks") as listing:
            image = options.image(self)
            tables, cells = FlatTables(image), rows.FlatCells("traces")
            for stack in rows.stacks(self, image, listing, wanted):
                yield cells.row(tables.trace(stack))

    def _files(self, wanted: FlatWanted) -> Iterator[Row]:
        with Warnings() as warnings:
            image, totals = options.image(self), Totals()
            dump = rows.FlatDump(self, image)
            with Listing(self, rows.NOTHING, "stacks") as listing:
                for stack in rows.stacks(self, image, listing, wanted, totals):
                    dump.add(stack)
            yield from dump.finish(totals, warnings)

    def run(self) -> interfaces.renderers.TreeGrid:
        options.check(self)
        wanted = rows.wanted(self)
        if self.config.get("dump", False):
            return rows.files(self._files(wanted))
        return rows.tree("traces", self._generator(wanted))
