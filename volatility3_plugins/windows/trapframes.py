# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

from typing import Iterator, List

from volatility3.framework import interfaces
from volatility3.plugins.windows import thrdscan

from .stacktraces.base.image import Image
from .stacktraces.base.processlist import ProcessList
from .stacktraces.names.symbolizer import Symbolizer
from .stacktraces.rows import options
from .stacktraces.rows.columns import BRIEF_MEMBERS
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing, tree
from .stacktraces.stacks.kernel import TrapUnwind
from .stacktraces.threads.lister import Threads
from .stacktraces.traps.lister import TrapStates
from .stacktraces.traps.state import State

_NOTHING = "No saved registers: no thread that the options select has a trap frame that is left"


class TrapFrames(interfaces.plugins.PluginInterface):
    """Lists every register state that the kernel saved; Unsure names registers that may not have been saved.

    A trap frame holds only what its kind of entry stores; what the stack held before is left out. NotSaved
    names these registers, and Unsure those of which the frame cannot say whether they were stored. Besides
    the frame to which a thread points, the fixed place at the top of its kernel stack is looked at;
    --scan-stacks looks further.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(threads=Threads, symbolizer=Symbolizer, states=TrapStates),
            options.version("thrdscan", thrdscan.ThrdScan),
            options.pid(zero_means="the processors"),
            options.tid(),
            options.offset(),
            options.switch(
                "scan_stacks", "Look for further frames on every kernel stack and on those of the processors"
            ),
            options.switch("processors", "Add the registers that stopped processors saved"),
            options.switch("scan_threads", "Add the threads that only a pool scan finds"),
            options.switch("members", "List every member of each structure with its validity"),
            options.switch(
                "unwind", "Add the non-volatile registers that walking the kernel stack tells (x64)"
            ),
            options.brief(),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        from .stacktraces.rows.traps import TrapRows

        with Listing(self, _NOTHING) as listing:
            image = options.image(self)
            names = options.symbolizer(self, image)
            rows = TrapRows(names)
            listed = TrapStates.list_states(
                image,
                names,
                pids=self.config.get("pid"),
                offset=self.config.get("offset"),
                tids=self.config.get("tid"),
                scan_stacks=self.config.get("scan_stacks", False),
                processors=self.config.get("processors", False),
                scan_threads=self.config.get("scan_threads", False),
                members=self.config.get("members", False),
                complete=TrapUnwind(image, names).complete if self.config.get("unwind", False) else None,
            )
            for state in listing.each(listed, _work, self._count(image), grouped=True):
                listing.matched = True
                listing.asked.saw("tid", state.tid)
                yield 0, rows.row(state)
                for member in state.members:
                    yield 1, rows.member_row(state, member)

    def _count(self, image: Image) -> int:
        """Returns how many processes there are to read, without a look at them that would warn twice."""
        if self.config.get("offset") is not None:
            return 1
        return len(set(self.config.get("pid") or ())) or len(image.part(ProcessList).processes())

    def run(self) -> interfaces.renderers.TreeGrid:
        from .stacktraces.rows.traps import GRID

        kept = BRIEF_MEMBERS if self.config.get("members", False) else ()
        return tree(self, GRID, self._generator(), kept)


def _work(state: State) -> str:
    return f"Reading the trap frames of process {state.space.pid}"
