# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracefindings`."""

from __future__ import annotations

from typing import Iterator

from volatility3.framework import interfaces

from ..findings.registry import Findings
from ..flat.stack import FlatStack
from ..options import CHECKS
from ..rows import findings as rows
from ..rows import requested
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import Listing, collector_paused, tree


class TraceFindings(Command):
    """What `windows.tracefindings` does."""

    def _generator(self) -> Iterator[Row]:
        checks = rows.chosen(self.plugin, "check", CHECKS)
        severities = rows.severities(self.plugin)
        pids = tuple(self.config.get("pid") or ())
        with Listing(self) as listing:
            image = self.image
            symbolizer = requested.symbolizer(self.plugin, image)
            findings = Findings(symbolizer, checks, pids, self.config.get("scan", False), collector_paused)
            for _ in listing.each(findings.examine(), _work):
                pass
            yield from rows.rows(image, findings.found(), severities)

    def run(self) -> interfaces.renderers.TreeGrid:
        check = self.config.get("explain")
        if check is not None:
            return rows.explained(check)
        return tree(self.plugin, rows.FINDINGS, self._generator())


def _work(stack: FlatStack) -> str:
    return f"Checking the stacks of kind {stack.kind} of process {stack.space.pid}"
