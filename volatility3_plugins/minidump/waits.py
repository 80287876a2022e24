# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import waits, winstacks_library

options = winstacks_library.options(__file__)


class WaitChains(interfaces.plugins.PluginInterface):
    """Lists the waiting threads of a process dump, what each waits for, and who owns it.

    Rows and columns are the same as for windows.waits.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return list(options.dump(waits.WaitChains.get_requirements()))

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import waits

        return waits.WaitChains(self).run()
