# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.traces`."""

from functools import cached_property
from typing import Iterator, Sequence

from volatility3.framework import interfaces

from ..rows.flat import FlatCells, FlatDump, WaitCommand, files
from ..rows.grid import Row
from ..stacklist.frames import NamedFrame
from ..stacklist.stack import StackRecord


class StackTraces(WaitCommand):
    """The work of `windows.traces`."""

    table = "traces"

    @property
    def listing_waits(self) -> bool:  # type: ignore[override]
        """Whether the waits go into a file."""
        return self.option("dump")

    def divides(self) -> bool:
        # The files are written in the order of the stacks, with the waits of all threads.
        return not self.option("dump")

    @cached_property
    def _cells(self) -> FlatCells:
        return FlatCells(self.table)

    @cached_property
    def _dump(self) -> FlatDump:
        return FlatDump(self.plugin, self.tables)

    def rows(self, item: StackRecord, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        if self.option("dump"):
            self._dump.add(item)
        else:
            yield self._cells.row(self.tables.trace(item))

    def finish(self) -> Iterator[Row]:
        if self.option("dump"):
            yield from self._dump.finish(self.waits(), self.facts())

    def shown(self) -> interfaces.renderers.TreeGrid:
        return files(self.generate()) if self.option("dump") else super().shown()
