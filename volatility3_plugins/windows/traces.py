# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class StackTraces(interfaces.plugins.PluginInterface):
    """Lists every stack of the image in one table, from every source, with keys equal on every machine.

    One row each for stacks of threads and for traces of databases, heap blocks, locks, handles and traced
    objects; all rows are at top level and have the same columns. windows.traceframes has their frames, and
    windows.traceimage describes the image.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.stack_list("stacks", "traces"),
            *options.dumping("Write stacks, frames and image as JSON lines, and show the files only"),
            options.sha256(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import traces

        return traces.StackTraces(self).run()
