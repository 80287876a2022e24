# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class TraceWaits(interfaces.plugins.PluginInterface):
    """Lists what every waiting thread waits for in one table: the rows of windows.waits for pipelines.

    TraceId names the row of windows.traces with the stack that shows the wait.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(),
            options.tid(),
            *options.shown("tracewaits"),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import tracewaits

        return tracewaits.TraceWaits(self).run()
