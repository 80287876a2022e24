# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

import datetime
import itertools
from typing import Iterator, List, Tuple, Union

from volatility3.framework import interfaces
from volatility3.framework.configuration import requirements
from volatility3.plugins import timeliner

from .stacktraces.base.decode.text import moment
from .stacktraces.flat.traces import started
from .stacktraces.names.symbolizer import Symbolizer
from .stacktraces.rows import options
from .stacktraces.rows.grid import UNREADABLE, Row
from .stacktraces.rows.plugin import Listing, collector_paused, tree
from .stacktraces.stacks.lister import CallStack, StackLister
from .stacktraces.threads.lister import Thread, Threads

_NOTHING = "No stack: no thread is left in the processes that are shown"


Event = Tuple[str, timeliner.TimeLinerType, Union[datetime.datetime, interfaces.renderers.BaseAbsentValue]]


class CallStacks(interfaces.plugins.PluginInterface, timeliner.TimeLinerInterface):
    """Lists the call stacks of every thread, in the kernel, in user mode and in 32-bit mode.

    The column How says how each address was found: trap (a saved register state), unwind (unwind data), leaf
    (the top of the stack), framepointer (the chain of frame pointers) or scan (a guess); what follows a guess
    is marked unsure. Depth and BackTraceHash are what RtlCaptureStackBackTrace would have returned; with a
    guess among the frames captured or skipped the stack's Status says `hash unsure`.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(threads=Threads, symbolizer=Symbolizer, stacks=StackLister),
            requirements.VersionRequirement(
                name="timeliner", component=timeliner.TimeLinerInterface, version=(1, 0, 0)
            ),
            options.pid(),
            options.tid(),
            options.offset(),
            requirements.IntRequirement(
                name="frames_to_skip",
                description="Leave out so many of the innermost return addresses",
                default=0,
                optional=True,
            ),
            requirements.IntRequirement(
                name="frames_to_capture",
                description="Show so many return addresses at most",
                optional=True,
            ),
            *options.selecting("stacks"),
            options.switch("unique", "Show equal stacks once, and count them"),
            options.fold(),
            options.brief(),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        from .stacktraces.rows import stacks as rows

        with Listing(self, _NOTHING, "stacks", kernel=False) as listing:
            image = options.image(self)
            names = options.symbolizer(self, image)
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
        names = options.symbolizer(self, options.image(self))
        wanted = (self.config.get(name) for name in ("pid", "offset", "tid"))
        for each in started(names, *wanted):
            time = None if each.time is None else moment(each.time)
            yield each.description, timeliner.TimeLinerType.CREATED, time or UNREADABLE

    def run(self) -> interfaces.renderers.TreeGrid:
        from .stacktraces.rows.stacks import GRID

        return tree(self, GRID, self._generator())


def _process(thread: Thread) -> int:
    return thread.space.eprocess


def _work(thread: Thread) -> str:
    return f"Walking the stacks of process {thread.space.pid}"
