# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.callstacks`."""

from __future__ import annotations

import datetime
from functools import cached_property
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

from volatility3.framework import interfaces
from volatility3.plugins import timeliner

from ..memory.decode.text import moment
from ..memory.image import AddressSpace
from ..process.thread import Thread
from ..process.threads import Threads
from ..rows.command import Command
from ..rows.grid import UNREADABLE, Row
from ..rows.stacks import GRID, CallStackRows, ShownStack
from ..stacklist.frames import NamedFrame
from ..stacklist.traces import started
from ..stacks.lister import StackLister

Event = Tuple[str, timeliner.TimeLinerType, Union[datetime.datetime, interfaces.renderers.BaseAbsentValue]]


class CallStacks(Command[Thread, ShownStack]):
    """The work of `windows.callstacks`."""

    grid = GRID
    things = "stacks"
    nothing = "No stack: the selected processes have no thread"
    kernel = False

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._unique: Dict[Tuple[object, ...], Tuple[ShownStack, int]] = {}

    @cached_property
    def _lister(self) -> StackLister:
        return StackLister(self.image, self.symbolizer)

    @cached_property
    def _rows(self) -> CallStackRows:
        return CallStackRows(self)

    def _wanted_threads(self) -> List[Any]:
        """Returns the selected processes, and the values of --offset and --tid."""
        return [self.pids, *(self.config.get(name) for name in ("offset", "tid"))]

    def steps(self) -> List[Thread]:
        return list(Threads.list_threads(self.image, *self._wanted_threads()))

    def divides(self) -> bool:
        # --unique counts equal stacks of all processes.
        return not self.option("unique")

    def space(self, step: Thread) -> AddressSpace:
        return step.space

    def describe(self, step: Thread) -> str:
        return f"Walking the stacks of process {step.space.pid_text}"

    def items(self, step: Thread) -> Iterator[ShownStack]:
        self.requested.mark_seen("tid", step.tid)
        return map(self._rows.shown, self._lister.thread_stacks(step))

    def frames(self, item: ShownStack) -> Sequence[NamedFrame]:
        return item.named

    def rows(self, item: ShownStack, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        if not self.option("unique"):
            return self._rows.stack(item)
        first, count = self._unique.get(item.key, (item, 0))
        self._unique[item.key] = first, count + 1
        return iter(())

    def finish(self) -> Iterator[Row]:
        for shown, count in self._unique.values():
            yield from self._rows.stack(shown, count)

    def generate_timeline(self) -> Iterator[Event]:
        """Yields the creation times of processes and threads, for Volatility's timeliner."""
        for start in started(self.symbolizer, *self._wanted_threads()):
            time = None if start.time is None else moment(start.time)
            yield start.description, timeliner.TimeLinerType.CREATED, time or UNREADABLE
