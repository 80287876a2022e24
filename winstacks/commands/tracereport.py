# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracereport`."""

from __future__ import annotations

from typing import Iterator

from volatility3.framework import interfaces

from ..findings.registry import Findings
from ..flat.imagefacts import Totals, Warnings, gather
from ..flat.stack import FlatStack
from ..flat.waits import Waits
from ..locks.lister import LockLister
from ..memory.decode.status import Word
from ..pages import html
from ..pages.report import Report
from ..rows import graph, requested
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import Listing, collector_paused
from ..tracedb.finder import Databases


class TraceReport(Command):
    """What `windows.tracereport` does."""

    def _generator(self) -> Iterator[Row]:
        pids = tuple(self.config.get("pid") or ())
        report, totals = Report(), Totals()
        with Warnings() as warnings, Listing(self) as listing:
            image = self.image
            symbolizer = requested.symbolizer(self.plugin, image)
            waits = Waits(image)
            findings = Findings(symbolizer, (), pids, self.config.get("scan", False), collector_paused)
            for stack in listing.each(findings.examine(totals), _work):
                report.add(stack)
                waits.see(stack)
            locks = LockLister(image, Databases(image, symbolizer.indexes))
            found = findings.found()
            waiting = waits.graph(locks, pids)
            facts = gather(image, totals, warnings, self.config.get("sha256", False))
        title = f"Stacks of {facts.computer_name}" if facts.computer_name else "Stacks of the image"
        written = graph.write(
            self.plugin, "tracereport.html", html.page(title, report.data(facts, found, waiting))
        )
        tree = report.drawn.tree
        said = (
            Word.STACKS_CUT if tree.cut or report.lists.cut else None,
            Word.SUM_LIMIT if tree.capped else None,
        )
        for kind, figures in report.drawn.kinds.items():
            yield graph.row(written, kind, figures, *said)

    def run(self) -> interfaces.renderers.TreeGrid:
        requested.check_tables(self.plugin)
        return graph.tree(self.plugin, self._generator())


def _work(stack: FlatStack) -> str:
    return f"Reading and checking the stacks of kind {stack.kind} of process {stack.space.pid}"
