# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class Locks(interfaces.plugins.PluginInterface):
    """Lists the kernel's ERESOURCEs and the critical sections of processes, with their creators and owners.

    Below a lock are the owners of a resource, the threads that wait for it with their stacks, and the frames
    of the stack that created the lock, from the stack trace database of the kernel (gflags +kst) or of the
    process (+ust).
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            *options.processes(zero_means="the kernel"),
            options.switch("held", "Show only locks that are owned (or whose owner cannot be read)"),
            options.switch(
                "contended", "Show only locks with waiters now or before (or whose waiters cannot be read)"
            ),
            *options.selecting("locks created"),
            *options.dumping("Write the locks of each address space as RTL_PROCESS_LOCKS"),
            options.fold(),
            *options.shown("locks"),
            options.fetch_symbols(),
            options.binaries(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import locks

        return locks.Locks(self).run()
