# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracereport`."""

from __future__ import annotations

import datetime
import shlex
import sys
from functools import cached_property, partial
from typing import Any, Iterable, Iterator, List, Tuple

from volatility3.framework import interfaces

from ..html import htmlpage
from ..html.report import Report
from ..html.waitpart import HeldLocks, waits_part
from ..locks.lister import LockLister
from ..locks.lock import Listed
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..process.spaces import AddressSpaces
from ..rows import graph, requested
from ..rows.checking import CheckingCommand
from ..rows.divided import WorkerPortion
from ..rows.grid import Row
from ..stacklist.imagefacts import Warnings, gather, identity
from ..stacklist.stack import StackRecord
from ..stacklist.threadwaits import ThreadWaits
from ..stacklist.traces import ThreadWatch
from ..tracedb.finder import Databases
from ..tracedb.gap import gap


class TraceReport(CheckingCommand):
    """The work of `windows.tracereport`."""

    grid = graph.GRID
    doing = "Reading and checking the stacks"

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._report, self._warnings, self._held = Report(), Warnings(), HeldLocks()

    @property
    def watch(self) -> ThreadWatch:
        return self._waits.add

    @cached_property
    def _waits(self) -> ThreadWaits:
        return ThreadWaits(self.symbolizer, self.named, self.pids)

    @cached_property
    def _locks(self) -> LockLister:
        return LockLister(self.image, Databases(self.image, self.symbolizer.indexes))

    @cached_property
    def _spaces(self) -> List[AddressSpace]:
        return list(AddressSpaces.list_spaces(self.image, self.pids))

    def items(self, step: StackRecord) -> Iterable[StackRecord]:
        self._report.add(step)
        return ()

    def portions(self) -> List[WorkerPortion]:
        if self.image.kernel in self._spaces:
            # Waits of each process ask for the kernel's locks: every worker has them, and none lists them.
            self._list_locks(self.image.kernel)
        return super().portions() + [
            WorkerPortion(
                f"Reading the locks of process {space.pid_text}",
                f"the locks of process {space.pid_text}",
                partial(self._hold, space),
                partial(self._lose_locks, space),
            )
            for space in self._spaces
        ]

    def _list_locks(self, space: AddressSpace) -> List[Listed]:
        return list(self.image.possible(self._locks.list_locks(space)))

    def _hold(self, space: AddressSpace) -> Iterable[StackRecord]:
        """Adds the locks of an address space. No stack belongs to them."""
        self._held.add(self._list_locks(space))
        return ()

    def _lose_locks(self, space: AddressSpace) -> Iterable[StackRecord]:
        self._held.add([gap(space, StatusCode.WORKER_ENDED)])
        return ()

    def steps(self) -> Iterator[StackRecord]:
        yield from super().steps()
        for space in self._spaces:
            yield from self._hold(space)

    def take(self) -> Any:
        held, self._held = self._held, HeldLocks()
        return self._report.take(), self._waits.take(), held, super().take()

    def merge(self, counted: Any) -> None:
        report, waits, held, others = counted
        super().merge(others)
        self._report.merge(report)
        self._waits.merge(waits)
        self._held.merge(held)

    def generate(self) -> Iterator[Row]:
        with self._warnings:
            yield from super().generate()

    def finish(self) -> Iterator[Row]:
        report = self._report
        found = self.findings.found()
        waiting = waits_part(self._waits.rows(), self._waits.chains, self._held)
        facts = gather(self.image, self.totals, self._warnings, self.option("sha256"))
        paths = [file.shown for file in self.image.service(identity).files]
        title = htmlpage.page_title("report on its stacks", paths, facts["ComputerName"])
        parts = report.data(facts, found, waiting, _made(), self.findings.examined.in_words)
        written = graph.write(self.plugin, "tracereport.html", htmlpage.page(title, parts))
        tree = report.drawn.tree
        limits = (
            StatusCode.STACKS_CUT if tree.cut or report.lists.cut else None,
            StatusCode.SUM_LIMIT if tree.capped else None,
        )
        for kind, figures in report.drawn.kinds.items():
            yield graph.row(written, kind, figures, *limits)

    def run(self) -> interfaces.renderers.TreeGrid:
        requested.check_tables(self.plugin)
        return graph.tree(self.plugin, self.generate())


def _made() -> List[Tuple[str, str]]:
    """Returns what the head of the page says about the report itself."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return [
        ("Command line", " ".join(map(shlex.quote, sys.argv))),
        ("Report made", f"{now:%Y-%m-%d %H:%M:%S} UTC"),
    ]
