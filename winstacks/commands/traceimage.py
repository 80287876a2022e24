# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.traceimage`."""

from typing import Iterator

from ..rows.flat import FlatCells, FlatCommand
from ..rows.grid import NOT_AVAILABLE, Row
from ..stacklist.tables import image_values


class TraceImage(FlatCommand):
    """The work of `windows.traceimage`."""

    table = "traceimage"

    def divides(self) -> bool:
        return True

    def finish(self) -> Iterator[Row]:
        yield FlatCells(self.table, NOT_AVAILABLE).row(image_values(self.facts()))
