# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class TrapFrames(interfaces.plugins.PluginInterface):
    """Lists every register state that the kernel saved; Unsure names registers that may not have been saved.

    A trap frame holds only the registers that its kind of entry stores; old content of the stack is left out.
    NotSaved names the registers that were not stored, and Unsure the registers that may not have been.
    Besides the frame to which a thread points, the fixed place at the top of its kernel stack is searched;
    --scan-stacks searches further.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            options.thread_scan(),
            *options.processes(zero_means="the processors"),
            options.tid(),
            options.offset(),
            options.switch(
                "scan_stacks", "Look for further frames on every kernel stack and every processor's stacks"
            ),
            options.switch("processors", "Add the registers that stopped processors saved"),
            options.switch("scan_threads", "Add the threads that only a pool scan finds"),
            options.switch("members", "List every member of each structure with its validity"),
            options.switch(
                "unwind", "Add the non-volatile registers that walking the kernel stack restores (x64)"
            ),
            *options.shown("trapframes"),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import trapframes

        return trapframes.TrapFrames(self).run()
