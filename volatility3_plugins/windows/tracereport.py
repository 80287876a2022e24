# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

from typing import Iterator, List

from volatility3.framework import interfaces
from volatility3.plugins.windows import thrdscan

from .stacktraces.base.decode.status import Word
from .stacktraces.findings.registry import Findings
from .stacktraces.flat.imagefacts import Totals, Warnings, gather
from .stacktraces.flat.stack import FlatStack
from .stacktraces.flat.traces import FlatTraces
from .stacktraces.rows import flat as flat_rows
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing, collector_paused
from .stacktraces.threads.lister import Threads


class TraceReport(interfaces.plugins.PluginInterface):
    """Writes one page to read: what the image is, findings, flame graph, threads, locks and heaps.

    The page is one file that needs no network; it goes where -o says. Findings come first. Locks are shown
    with who holds them and who waits, and threads that wait for each other are named.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(findings=Findings, traces=FlatTraces, threads=Threads),
            options.version("thrdscan", thrdscan.ThrdScan),
            options.pid(zero_means="the kernel"),
            options.switch("scan", "Add processes and threads that only a pool scan finds"),
            flat_rows.sha256(),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        from .stacktraces.flat.waits import Waits
        from .stacktraces.locks.lister import LockLister
        from .stacktraces.pages import html
        from .stacktraces.pages.report import Report
        from .stacktraces.rows import graph
        from .stacktraces.tracedb.finder import Databases

        pids = tuple(self.config.get("pid") or ())
        report, totals = Report(), Totals()
        with Warnings() as warnings, Listing(self) as listing:
            image = options.image(self)
            symbolizer = options.symbolizer(self, image)
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
        written = graph.write(self, "tracereport.html", html.page(title, report.data(facts, found, waiting)))
        tree = report.drawn.tree
        said = (
            Word.STACKS_CUT if tree.cut or report.lists.cut else None,
            Word.SUM_LIMIT if tree.capped else None,
        )
        for kind, figures in report.drawn.kinds.items():
            yield graph.row(written, kind, figures, *said)

    def run(self) -> interfaces.renderers.TreeGrid:
        from .stacktraces.rows import graph

        options.check_tables(self)
        return graph.tree(self, self._generator())


def _work(stack: FlatStack) -> str:
    return f"Reading and checking the stacks of kind {stack.kind} of process {stack.space.pid}"
