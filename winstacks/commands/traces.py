# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.traces`."""

from typing import Iterator

from volatility3.framework import interfaces

from ..flat.imagefacts import Totals, Warnings
from ..flat.stack import FlatWanted
from ..flat.tables import FlatTables
from ..rows import flat as rows
from ..rows import requested
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import Listing


class StackTraces(Command):
    """What `windows.traces` does."""

    def _generator(self, wanted: FlatWanted) -> Iterator[Row]:
        with Listing(self, rows.NOTHING, "stacks") as listing:
            image = self.image
            tables, cells = FlatTables(image), rows.FlatCells("traces")
            for stack in rows.stacks(self.plugin, image, listing, wanted):
                yield cells.row(tables.trace(stack))

    def _files(self, wanted: FlatWanted) -> Iterator[Row]:
        with Warnings() as warnings:
            image, totals = self.image, Totals()
            dump = rows.FlatDump(self.plugin, image)
            with Listing(self, rows.NOTHING, "stacks") as listing:
                for stack in rows.stacks(self.plugin, image, listing, wanted, totals):
                    dump.add(stack)
            yield from dump.finish(totals, warnings)

    def run(self) -> interfaces.renderers.TreeGrid:
        requested.check(self.plugin)
        wanted = rows.wanted(self.plugin)
        if self.config.get("dump", False):
            return rows.files(self._files(wanted))
        return rows.tree("traces", self._generator(wanted))
