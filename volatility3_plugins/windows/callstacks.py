# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import logging
from typing import Dict, Iterable, Iterator, List, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.configuration import requirements

from .stacktraces.base import spaces
from .stacktraces.names import symbolizer
from .stacktraces.rows import options
from .stacktraces.rows import stacks as callstackrows
from .stacktraces.stacks import lister as stacks
from .stacktraces.threads import lister

vollog = logging.getLogger(__name__)

Row = Tuple[int, Tuple[object, ...]]


class CallStacks(interfaces.plugins.PluginInterface):
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
            options.kernel(),
            *options.helpers(
                spaces=spaces.AddressSpaces,
                threads=lister.Threads,
                symbolizer=symbolizer.Symbolizer,
                stacks=stacks.CallStacks,
            ),
            options.pid(),
            options.numbers("tid", "Thread IDs to include (all other threads are excluded)"),
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
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        kernel_name = self.config["kernel"]
        names = options.symbolizer(self)
        rows = callstackrows.CallStackRows(
            self.context.layers[self.context.modules[kernel_name].layer_name],
            names,
            self.config.get("frames_to_skip", 0) or 0,
            self.config.get("frames_to_capture"),
        )
        listed = stacks.CallStacks.list_stacks(
            self.context,
            kernel_name,
            names,
            pids=self.config.get("pid"),
            offset=self.config.get("offset"),
            tids=self.config.get("tid"),
        )
        wanted = self._wanted(rows, listed)
        counted = _fold(wanted) if self.config.get("unique", False) else ((shown, 1) for shown in wanted)
        found = False
        for shown, count in counted:
            found = True
            yield 0, rows.stack(shown, count)
            for frame in rows.frames(shown):
                yield 1, frame
        if not found:
            vollog.warning("No stack: the options select no thread, or no stack of those that they select")

    def _wanted(
        self, rows: callstackrows.CallStackRows, listed: Iterable[stacks.CallStack]
    ) -> Iterator[callstackrows.Shown]:
        selection = options.selection(self)
        for stack in options.with_progress(self, listed, _work):
            shown = rows.shown(stack)
            if selection.everything or selection.takes(each.name for each in shown.frames):
                yield shown

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(callstackrows.COLUMNS, self._generator())


def _work(stack: stacks.CallStack) -> str:
    return f"Walking the stacks of process {stack.space.pid}"


def _fold(listed: Iterable[callstackrows.Shown]) -> Iterable[Tuple[callstackrows.Shown, int]]:
    """Returns stacks of which no two are equal, the first of each kind, and how many there are."""
    first: Dict[Tuple[object, ...], callstackrows.Shown] = {}
    counts: Dict[Tuple[object, ...], int] = {}
    for shown in listed:
        first.setdefault(shown.key, shown)
        counts[shown.key] = counts.get(shown.key, 0) + 1
    return [(shown, counts[key]) for key, shown in first.items()]
