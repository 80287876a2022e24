# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class Info(interfaces.plugins.PluginInterface):
    """Shows the streams and the exception of a process dump, or bug check and drivers of a small kernel dump.

    Names come from Microsoft's "minidumpapiset.h".
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        shown = [*options.dump_lists(), *options.shown("info")]
        return list(options.dump([*shown, options.fetch_symbols(), options.binaries()]))

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import info

        return info.Info(self).run()
