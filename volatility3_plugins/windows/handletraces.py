# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class HandleTraces(interfaces.plugins.PluginInterface):
    """Lists who opened and closed each handle, with the stack, for processes whose handles are traced.

    It also lists the creator of each handle on XP and 2003 with gflags +kst, and of each object with +otl.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(),
            options.numbers("handle", "Show only the events of these handles"),
            options.switch("leaks", "Show only handles that were opened and have no traced close"),
            *options.selecting("events"),
            options.fold(),
            *options.shown("handletraces"),
            options.fetch_symbols(),
            options.binaries(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import handletraces

        return handletraces.HandleTraces(self).run()
