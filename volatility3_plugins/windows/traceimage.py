# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import Iterator, List

from volatility3.framework import interfaces

from .stacktraces.flat.imagefacts import Totals, Warnings, gather
from .stacktraces.flat.stack import FlatWanted
from .stacktraces.flat.tables import image_values
from .stacktraces.rows import flat as rows
from .stacktraces.rows import options
from .stacktraces.rows.grid import NOT_AVAILABLE, Row
from .stacktraces.rows.plugin import Listing


class TraceImage(interfaces.plugins.PluginInterface):
    """Tells in one row what an image is, and how much of its stacks could be read.

    The row has the files of the image, the kernel, its clock, the name of the computer, and how many
    processes, threads, stacks and databases were found and could be read. ImageId is the name of the image
    in all flat tables. With the same options the counts are those of windows.traces.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *rows.requirements_of_flat("stacks"),
            rows.sha256(),
        ]

    def _generator(self, wanted: FlatWanted) -> Iterator[Row]:
        with Warnings() as warnings:
            image, totals = options.image(self), Totals()
            with Listing(self, rows.NOTHING, "stacks") as listing:
                for _ in rows.stacks(self, image, listing, wanted, totals):
                    pass
            facts = gather(image, totals, warnings, self.config.get("sha256", False))
            yield rows.FlatCells("traceimage", NOT_AVAILABLE).row(image_values(facts))

    def run(self) -> interfaces.renderers.TreeGrid:
        options.check(self)
        return rows.tree("traceimage", self._generator(rows.wanted(self)))
