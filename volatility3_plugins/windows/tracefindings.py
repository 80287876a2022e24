# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class TraceFindings(interfaces.plugins.PluginInterface):
    """Lists suspicious stacks, with the reasons: named checks, worst finding first, with evidence.

    Each finding states evidence that a second examiner can check, and innocent explanations. A check that
    could not run has a row at the end. A row says what was examined if nothing was found.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            options.thread_scan(),
            options.words("check", options.CHECKS, f"Run only these checks: {', '.join(options.CHECKS)}"),
            options.word("severity", options.SEVERITIES, "Show only findings of at least this severity"),
            *options.processes(zero_means="the kernel"),
            options.switch("scan", "Add processes and threads that only a pool scan finds"),
            options.switch(
                "summary", "Begin with a row for each process: its worst finding, and the checks that agree"
            ),
            options.switch(
                "unchecked",
                "With --brief: show everything that was not checked, and not a count for each reason",
            ),
            options.CheckedRequirement(
                options.checked(options.one_of(options.CHECKS)),
                name="explain",
                description="Explain a check: meaning, innocent causes of its findings, and next step",
                optional=True,
            ),
            *options.shown("tracefindings"),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import tracefindings

        return tracefindings.TraceFindings(self).run()
