# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class ObjectTraces(interfaces.plugins.PluginInterface):
    """Lists who referenced and dereferenced traced objects, like the debugger's !obtrace.

    Objects are traced by pool tag or process if gflags enabled it (ObTracePoolTags, ObTraceProcessName).
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.selecting("events"),
            options.fold(),
            *options.shown("objecttraces"),
            options.fetch_symbols(),
            options.binaries(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import objecttraces

        return objecttraces.ObjectTraces(self).run()
