# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class HeapTraces(interfaces.plugins.PluginInterface):
    """Lists who allocated the heap blocks of processes: each trace with the count and bytes of its blocks.

    The heaps must record stacks (gflags +ust, on XP and 2003 also +hpc; or page heap with traces). First come
    the traces, most bytes first. Below a trace are its frames, innermost first, and with --blocks its blocks,
    which have no frames of their own. Then come the heaps, their segments and the containers of the
    low-fragmentation heap, with their creators.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(),
            options.switch("blocks", "Also show each block"),
            options.address("Show only the block that holds this address, and the blocks beside it"),
            *options.selecting("traces"),
            options.file_name(
                "baseline", "File of an earlier UMDH log: show the growth of each trace, greatest first"
            ),
            *options.dumping("Write the blocks of each process as a UMDH log"),
            options.fold(),
            options.switch(
                "summary",
                "Show one row for each process: the sums of its traces, the process with most bytes first",
            ),
            *options.shown("heaptraces"),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import heaptraces

        return heaptraces.HeapTraces(self).run()
