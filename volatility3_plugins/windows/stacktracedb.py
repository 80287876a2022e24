# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class StackTraceDb(interfaces.plugins.PluginInterface):
    """Lists the stack trace databases of the kernel and of processes, their back traces and frames.

    The row of a database has the header of RTL_PROCESS_BACKTRACES, the row of a back trace has the members of
    RTL_PROCESS_BACKTRACE_INFORMATION; its frames are below it, innermost first.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(zero_means="the kernel"),
            options.numbers("index", "Show only the back traces with these indices, and check no others"),
            *options.selecting("back traces"),
            options.fold(),
            options.switch(
                "carve", "Also show freed and orphan entries, and databases without a pointer to them"
            ),
            *options.dumping("Write each database as RTL_PROCESS_BACKTRACES; show only the database rows"),
            *options.shown("stacktracedb"),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import stacktracedb

        return stacktracedb.StackTraceDb(self).run()
