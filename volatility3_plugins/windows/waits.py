# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class WaitChains(interfaces.plugins.PluginInterface):
    """Lists the waiting threads, what each waits for, and who owns it; deadlocks come first.

    The column Known says how this is known. ChainEnd says where the chain ends that leads from the thread to
    the owner, to what the owner waits for, and so on; --chains shows its steps.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(),
            options.tid(),
            options.offset(),
            options.switch("chains", "Show the owners in the chain behind each thread, to its end"),
            *options.selecting("threads"),
            options.fold(),
            *options.shown("waits"),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import waits

        return waits.WaitChains(self).run()
