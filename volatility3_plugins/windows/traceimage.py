# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class TraceImage(interfaces.plugins.PluginInterface):
    """Describes an image in one row, with the share of its stacks that could be read.

    The row has the files of the image, the kernel, its clock, the computer's name, and the numbers of
    processes, threads, stacks and databases that were found and that could be read. ImageId identifies the
    image in all flat tables. With the same options windows.traces counts the same.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.stack_list("stacks", "traceimage"),
            options.sha256(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import traceimage

        return traceimage.TraceImage(self).run()
