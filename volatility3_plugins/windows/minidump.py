# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class MiniDump(interfaces.plugins.PluginInterface):
    """Writes processes as minidumps for debuggers: memory, modules, handles, threads with registers.

    Registers are those with which threads will continue in user mode. The rows list the content of each dump,
    its unknown registers, and data missing from the image. Only --dump writes files, into the folder of -o.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(),
            options.offset(),
            options.word(
                "format",
                options.DUMP_FORMATS,
                "Half of a WoW64 process to write: native (64 bits, with the memory of both; the default) or "
                "wow64 (32 bits)",
                default="native",
            ),
            *options.dumping("Write the dumps; without this option the rows show their content only"),
            options.sha256(),
            *options.shown("minidump"),
            options.fetch_symbols(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import minidump

        return minidump.MiniDump(self).run()
