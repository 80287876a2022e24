# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import handletraces, winstacks_library

options = winstacks_library.options(__file__)


class HandleTraces(interfaces.plugins.PluginInterface):
    """Lists who opened and closed the handles of a process dump, as Application Verifier recorded it.

    Rows and columns are the same as for windows.handletraces.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return list(options.dump(handletraces.HandleTraces.get_requirements()))

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import handletraces

        return handletraces.HandleTraces(self).run()
