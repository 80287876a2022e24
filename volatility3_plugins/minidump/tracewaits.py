# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import tracewaits, winstacks_library

options = winstacks_library.options(__file__)


class TraceWaits(interfaces.plugins.PluginInterface):
    """Lists what every waiting thread of a process dump waits for in one flat table.

    Rows and columns are the same as for windows.tracewaits.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return list(options.dump(tracewaits.TraceWaits.get_requirements()))

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import tracewaits

        return tracewaits.TraceWaits(self).run()
