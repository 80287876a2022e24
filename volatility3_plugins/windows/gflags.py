# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class GFlags(interfaces.plugins.PluginInterface):
    """Lists NtGlobalFlag of the kernel and of every process, with their stack trace databases.

    The databases of an address space are shown below it, each with a self-check that compares its index
    array, its hash chains and its blocks.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(zero_means="the kernel"),
            options.switch("carve", "Also show databases without a pointer to them"),
            *options.shown("gflags"),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import gflags

        return gflags.GFlags(self).run()
