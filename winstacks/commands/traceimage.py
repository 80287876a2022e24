# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.traceimage`."""

from typing import Iterator

from volatility3.framework import interfaces

from ..flat.imagefacts import Totals, Warnings, gather
from ..flat.stack import FlatWanted
from ..flat.tables import image_values
from ..rows import flat as rows
from ..rows import requested
from ..rows.command import Command
from ..rows.grid import NOT_AVAILABLE, Row
from ..rows.plugin import Listing


class TraceImage(Command):
    """What `windows.traceimage` does."""

    def _generator(self, wanted: FlatWanted) -> Iterator[Row]:
        with Warnings() as warnings:
            image, totals = self.image, Totals()
            with Listing(self, rows.NOTHING, "stacks") as listing:
                for _ in rows.stacks(self.plugin, image, listing, wanted, totals):
                    pass
            facts = gather(image, totals, warnings, self.config.get("sha256", False))
            yield rows.FlatCells("traceimage", NOT_AVAILABLE).row(image_values(facts))

    def run(self) -> interfaces.renderers.TreeGrid:
        requested.check(self.plugin)
        return rows.tree("traceimage", self._generator(rows.wanted(self.plugin)))
