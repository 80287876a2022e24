# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class TraceFrames(interfaces.plugins.PluginInterface):
    """Lists the frames of every stack of the image in one table: the addresses, their modules and functions.

    TraceId names the row of windows.traces to which a frame belongs.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return options.stack_list("stacks", "traceframes")

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import traceframes

        return traceframes.TraceFrames(self).run()
