# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class TraceReport(interfaces.plugins.PluginInterface):
    """Writes a one-page report: facts about the image, findings, flame graph, threads, locks and heaps.

    The page is one file that works offline, in the folder of -o. Findings come first. Locks are shown with
    owners and waiting threads, and deadlocked threads are named.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            options.thread_scan(),
            *options.processes(zero_means="the kernel"),
            options.switch("scan", "Add processes and threads that only a pool scan finds"),
            options.sha256(),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
            options.OutputFolderRequirement(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import tracereport

        return tracereport.TraceReport(self).run()
