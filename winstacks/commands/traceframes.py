# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.traceframes`."""

from functools import cached_property
from typing import Iterator, Sequence

from ..rows.flat import FlatCommand, FrameTable
from ..rows.grid import Row
from ..stacklist.frames import NamedFrame
from ..stacklist.stack import StackRecord


class TraceFrames(FlatCommand):
    """The work of `windows.traceframes`."""

    table = "traceframes"

    def divides(self) -> bool:
        return True

    @cached_property
    def _rows(self) -> FrameTable:
        return FrameTable(self.tables)

    def rows(self, item: StackRecord, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        return self._rows.rows(item)
