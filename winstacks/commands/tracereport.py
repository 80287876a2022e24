# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracereport`."""

from __future__ import annotations

import datetime
import shlex
import sys
from functools import cached_property
from typing import Iterable, Iterator, List, Tuple

from volatility3.framework import interfaces

from ..findings.registry import Findings
from ..html import htmlpage
from ..html.report import Report
from ..html.waitpart import held_locks, waits_part
from ..locks.lister import LockLister
from ..memory.decode.statuscodes import StatusCode
from ..rows import graph, requested
from ..rows.checking import CheckingCommand
from ..rows.grid import Row
from ..stacklist.imagefacts import Warnings, gather, identity
from ..stacklist.stack import StackRecord
from ..stacklist.threadwaits import ThreadWaits


class TraceReport(CheckingCommand):
    """The work of `windows.tracereport`."""

    grid = graph.GRID
    doing = "Reading and checking the stacks"

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._report, self._warnings = Report(), Warnings()

    @cached_property
    def findings(self) -> Findings:
        return Findings(self.symbolizer, (), self.pids, self.option("scan"), self._waits.add)

    @cached_property
    def _waits(self) -> ThreadWaits:
        return ThreadWaits(self.symbolizer, self.named, self.pids)

    def divides(self) -> bool:
        # A chain of waits can lead through any process: it needs the threads of all of them.
        return False

    def items(self, step: StackRecord) -> Iterable[StackRecord]:
        self._report.add(step)
        return ()

    def generate(self) -> Iterator[Row]:
        with self._warnings:
            yield from super().generate()

    def finish(self) -> Iterator[Row]:
        report = self._report
        found = self.findings.found()
        held = held_locks(self.image, LockLister(self.image, self.databases), self.pids)
        waiting = waits_part(self._waits.rows(), self._waits.chains, held)
        facts = gather(self.image, self.totals, self._warnings, self.option("sha256"))
        paths = [file.shown for file in self.image.service(identity).files]
        title = htmlpage.page_title("report on its stacks", paths, facts["ComputerName"])
        written = graph.write(
            self.plugin, "tracereport.html", htmlpage.page(title, report.data(facts, found, waiting, _made()))
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


def _made() -> List[Tuple[str, str]]:
    """Returns what the head of the page says about the report itself."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return [
        ("Command line", " ".join(map(shlex.quote, sys.argv))),
        ("Report made", f"{now:%Y-%m-%d %H:%M:%S} UTC"),
    ]
