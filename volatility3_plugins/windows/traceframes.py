# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import Iterator, List

from volatility3.framework import interfaces

from .stacktraces.flat.stack import FlatWanted
from .stacktraces.flat.tables import FlatTables
from .stacktraces.rows import flat as rows
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing


class TraceFrames(interfaces.plugins.PluginInterface):
    """Lists the frames of every stack of the image in one table: the addresses, their modules and functions.

    TraceId says to which row of windows.traces a frame belongs.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return rows.requirements_of_flat("stacks")

    def _generator(self, wanted: FlatWanted) -> Iterator[Row]:
        with Listing(self, rows.NOTHING, "stacks") as listing:
            image = options.image(self)
            table = rows.FrameTable(FlatTables(image))
            for stack in rows.stacks(self, image, listing, wanted):
                yield from table.rows(stack)

    def run(self) -> interfaces.renderers.TreeGrid:
        options.check(self)
        return rows.tree("traceframes", self._generator(rows.wanted(self)))
