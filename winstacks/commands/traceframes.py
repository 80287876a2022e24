# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.traceframes`."""

from typing import Iterator

from volatility3.framework import interfaces

from ..flat.stack import FlatWanted
from ..flat.tables import FlatTables
from ..rows import flat as rows
from ..rows import requested
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import Listing


class TraceFrames(Command):
    """What `windows.traceframes` does."""

    def _generator(self, wanted: FlatWanted) -> Iterator[Row]:
        with Listing(self, rows.NOTHING, "stacks") as listing:
            image = self.image
            table = rows.FrameTable(FlatTables(image))
            for stack in rows.stacks(self.plugin, image, listing, wanted):
                yield from table.rows(stack)

    def run(self) -> interfaces.renderers.TreeGrid:
        requested.check(self.plugin)
        return rows.tree("traceframes", self._generator(rows.wanted(self.plugin)))
