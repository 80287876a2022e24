# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracewaits`."""

from functools import cached_property
from typing import Any, Iterator

from ..columns.words import THREAD_KINDS
from ..rows.flat import FlatCells, WaitCommand
from ..rows.grid import Row
from ..stacklist.stack import StackFilter
from ..stacklist.threadwaits import NO_WAIT, unknown_waits, why_no_wait


class TraceWaits(WaitCommand):
    """The work of `windows.tracewaits`."""

    table = "tracewaits"
    things = "waits"
    nothing = NO_WAIT

    @cached_property
    def stacks_wanted(self) -> StackFilter:
        return StackFilter(THREAD_KINDS, self.pids, self.config.get("tid") or None)

    def divides(self) -> bool:
        # With --tid all threads are read once more, after those whose rows are shown.
        return self.stacks_wanted.tids is None

    def take(self) -> Any:
        return self._waits.take(), super().take()

    def merge(self, counted: Any) -> None:
        waits, others = counted
        super().merge(others)
        self._waits.merge(waits)

    def finish(self) -> Iterator[Row]:
        cells = FlatCells(self.table)
        waits = list(self.waits())
        yield from map(cells.row, map(self.tables.wait, waits))
        unknown = unknown_waits(self._waits.chains, self.stacks_wanted.tids)
        if unknown:
            self.log.warning(unknown)
        elif self.matched and not waits:
            # The loop has seen stacks, and did not warn.
            self.log.warning(why_no_wait(self.image))
