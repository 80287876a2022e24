# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.callstacks`."""

from __future__ import annotations

import datetime
import itertools
from typing import Iterator, List, Tuple, Union

from volatility3.framework import interfaces
from volatility3.plugins import timeliner

from ..flat.traces import started
from ..memory.decode.text import moment
from ..process.thread import Thread
from ..process.threads import Threads
from ..rows import requested
from ..rows import stacks as rows
from ..rows.command import Command
from ..rows.grid import UNREADABLE, Row
from ..rows.plugin import Listing, collector_paused, tree
from ..rows.stacks import GRID
from ..stacks.lister import CallStack, StackLister

_NOTHING = "No stack: no thread is left in the processes that are shown"


Event = Tuple[str, timeliner.TimeLinerType, Union[datetime.datetime, interfaces.renderers.BaseAbsentValue]]


class CallStacks(Command):
    """What `windows.callstacks` does."""

    def _generator(self) -> Iterator[Row]:
        with Listing(self, _NOTHING, "stacks", kernel=False) as listing:
            image = self.image
            names = requested.symbolizer(self.plugin, image)
            skip, capture = self.config.get("frames_to_skip", 0) or 0, self.config.get("frames_to_capture")
            made = rows.CallStackRows(names, skip, capture, self.config.get("fold", False))
            lister = StackLister(image, names)
            wanted_threads = (self.config.get(name) for name in ("pid", "offset", "tid"))
            threads = list(Threads.list_threads(image, *wanted_threads))
            stacks = self._stacks(lister, threads, listing)
            wanted = rows.selected(map(made.shown, stacks), listing.selection)
            unique = self.config.get("unique", False)
            for stack, count in rows.counted(wanted) if unique else ((each, 1) for each in wanted):
                listing.matched = True
                yield 0, made.stack(stack, count)
                yield from made.frame_rows(stack)

    def _stacks(self, lister: StackLister, threads: List[Thread], listing: Listing) -> Iterator[CallStack]:
        told = listing.each(threads, _work, len(threads))
        for _, listed in itertools.groupby(told, _process):
            with collector_paused():
                for thread in listed:
                    listing.asked.saw("tid", thread.tid)
                    for stack in lister.of_thread(thread):
                        listing.found = True
                        yield stack

    def generate_timeline(self) -> Iterator[Event]:
        """Yields when processes and threads were started, for Volatility's timeliner."""
        names = requested.symbolizer(self.plugin, self.image)
        wanted = (self.config.get(name) for name in ("pid", "offset", "tid"))
        for each in started(names, *wanted):
            time = None if each.time is None else moment(each.time)
            yield each.description, timeliner.TimeLinerType.CREATED, time or UNREADABLE

    def run(self) -> interfaces.renderers.TreeGrid:
        return tree(self.plugin, GRID, self._generator())


def _process(thread: Thread) -> int:
    return thread.space.eprocess


def _work(thread: Thread) -> str:
    return f"Walking the stacks of process {thread.space.pid}"
