# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.trapframes`."""

from __future__ import annotations

from typing import Iterator

from volatility3.framework import interfaces

from ..memory.image import Image
from ..process.processlist import ProcessList
from ..rows import requested
from ..rows.columns import BRIEF_MEMBERS
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import Listing, tree
from ..rows.traps import GRID, TrapRows
from ..stacks.kernel import TrapUnwind
from ..traps.lister import TrapStates
from ..traps.state import State

_NOTHING = "No saved registers: no thread that the options select has a trap frame that is left"


class TrapFrames(Command):
    """What `windows.trapframes` does."""

    def _generator(self) -> Iterator[Row]:
        with Listing(self, _NOTHING) as listing:
            image = self.image
            names = requested.symbolizer(self.plugin, image)
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
        return len(set(self.config.get("pid") or ())) or len(image.service(ProcessList).processes())

    def run(self) -> interfaces.renderers.TreeGrid:
        kept = BRIEF_MEMBERS if self.config.get("members", False) else ()
        return tree(self.plugin, GRID, self._generator(), kept)


def _work(state: State) -> str:
    return f"Reading the trap frames of process {state.space.pid}"
