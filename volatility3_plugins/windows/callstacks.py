# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import datetime
from typing import Iterator, List, Tuple, Union

from volatility3.framework import interfaces
from volatility3.framework.configuration import requirements
from volatility3.plugins import timeliner
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)

Event = Tuple[str, timeliner.TimeLinerType, Union[datetime.datetime, interfaces.renderers.BaseAbsentValue]]


class CallStacks(interfaces.plugins.PluginInterface, timeliner.TimeLinerInterface):
    """Lists the call stacks of every thread, in the kernel, in user mode and in 32-bit mode.

    The column How says how each address was found; a guess (scan) and all frames after it are marked unsure.
    Depth and BackTraceHash are the values that RtlCaptureStackBackTrace would have returned; if a guess is
    among the captured or skipped frames, the stack's Status says `hash unsure`.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.kernel(),
            requirements.VersionRequirement(
                name="timeliner", component=timeliner.TimeLinerInterface, version=(1, 0, 0)
            ),
            *options.processes(),
            options.tid(),
            options.offset(),
            options.frames("frames_to_skip", "Leave out this number of innermost return addresses", 0),
            options.frames("frames_to_capture", "Show at most this number of return addresses"),
            *options.selecting("stacks"),
            options.switch("unique", "Show equal stacks once, and count them"),
            options.fold(),
            options.switch(
                "candidates",
                "Add further values on the stacks that may be return addresses; they are no frames",
            ),
            *options.shown("callstacks"),
            options.fetch_symbols(),
            options.binaries(),
            options.workers(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import callstacks

        return callstacks.CallStacks(self).run()

    def generate_timeline(self) -> Iterator[Event]:
        """Yields the creation times of processes and threads, for Volatility's timeliner."""
        from winstacks.commands import callstacks

        return callstacks.CallStacks(self).generate_timeline()
