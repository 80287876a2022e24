# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracereport`."""

from __future__ import annotations

from functools import cached_property
from typing import Iterable, Iterator

from volatility3.framework import interfaces

from ..html import htmlpage
from ..html.report import Report
from ..locks.lister import LockLister
from ..memory.decode.statuscodes import StatusCode
from ..rows import graph, requested
from ..rows.checking import CheckingCommand
from ..rows.grid import Row
from ..stacklist.imagefacts import Warnings, gather, identity
from ..stacklist.stack import StackRecord
from ..stacklist.waits import Waits
from ..waits.userside import UserSides


class TraceReport(CheckingCommand):
    """The work of `windows.tracereport`."""

    grid = graph.GRID
    joins = True

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._report, self._warnings = Report(), Warnings()

    @cached_property
    def _waits(self) -> Waits:
        return Waits(self.image, UserSides(self.image, self.symbolizer, self.databases.ntdlls))

    def describe(self, step: StackRecord) -> str:
        return f"Reading and checking the stacks of kind {step.kind} of process {step.space.pid_text}"

    def items(self, step: StackRecord) -> Iterable[StackRecord]:
        self._report.add(step)
        self._waits.add_stack(step)
        return ()

    def generate(self) -> Iterator[Row]:
        with self._warnings:
            yield from super().generate()

    def finish(self) -> Iterator[Row]:
        report = self._report
        found = self.findings.found()
        waiting = self._waits.graph(LockLister(self.image, self.databases), self.pids)
        facts = gather(self.image, self.totals, self._warnings, self.option("sha256"))
        paths = [file.shown for file in self.image.service(identity).files]
        title = htmlpage.page_title("report on its stacks", paths, facts.computer_name)
        written = graph.write(
            self.plugin, "tracereport.html", htmlpage.page(title, report.data(facts, found, waiting))
        )
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
