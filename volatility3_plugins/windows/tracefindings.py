# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

from typing import Iterator, List

from volatility3.framework import interfaces
from volatility3.framework.configuration import requirements
from volatility3.plugins.windows import thrdscan

from .stacktraces.findings.finding import SEVERITIES
from .stacktraces.findings.registry import CHECKS, Findings
from .stacktraces.flat.stack import FlatStack
from .stacktraces.flat.traces import FlatTraces
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing, collector_paused, tree
from .stacktraces.threads.lister import Threads


class TraceFindings(interfaces.plugins.PluginInterface):
    """Says which stacks matter, and why: named checks, worst finding first, with evidence.

    Each finding has what a second examiner can check, and what else would explain it. A check that could not
    run is a row at the end. No rows: these checks found nothing.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(findings=Findings, traces=FlatTraces, threads=Threads),
            options.version("thrdscan", thrdscan.ThrdScan),
            requirements.ListRequirement(
                name="check",
                element_type=str,
                description=f"Run only these checks: {', '.join(CHECKS)}",
                optional=True,
            ),
            requirements.StringRequirement(
                name="severity",
                description=f"Show only findings that are so severe or more: {', '.join(SEVERITIES)}",
                optional=True,
            ),
            options.pid(zero_means="the kernel"),
            options.switch("scan", "Add processes and threads that only a pool scan finds"),
            requirements.StringRequirement(
                name="explain",
                description="Say what a check means, what else gives such findings, and what to do next",
                optional=True,
            ),
            options.brief(),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        from .stacktraces.rows import findings as rows

        checks = rows.chosen(self, "check", CHECKS)
        severities = rows.severities(self)
        pids = tuple(self.config.get("pid") or ())
        with Listing(self) as listing:
            image = options.image(self)
            symbolizer = options.symbolizer(self, image)
            findings = Findings(symbolizer, checks, pids, self.config.get("scan", False), collector_paused)
            for _ in listing.each(findings.examine(), _work):
                pass
            yield from rows.rows(image, findings.found(), severities)

    def run(self) -> interfaces.renderers.TreeGrid:
        from .stacktraces.rows import findings as rows

        check = self.config.get("explain")
        if check is not None:
            return rows.explained(check)
        return tree(self, rows.FINDINGS, self._generator())


def _work(stack: FlatStack) -> str:
    return f"Checking the stacks of kind {stack.kind} of process {stack.space.pid}"
