# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The commands that texts for users name, in the form for dumps.

Dumps of one process and small kernel dumps have plugins of their own, and Volatility's plugins for images of
memory do not read them.
"""

from __future__ import annotations

import re

from .words import MEMORY_IMAGE

OF_DUMPS = (
    "callstacks", "gflags", "handletraces", "heaptraces", "info", "locks", "stacktracedb",
    "tracefindings", "traceframes", "tracegraph", "traceimage", "tracereport", "traces", "trapframes",
    "tracewaits", "waits",
)  # fmt: skip
"""The plugins of the folder `minidump`."""

_OURS = re.compile(rf"\bwindows\.({'|'.join(OF_DUMPS)})\b")

_IN_A_DEBUGGER = {
    "Dump the range with windows.vadinfo --dump": "Write the range to a file in a debugger (.writemem)",
    "Dump the module with windows.dlllist --dump, and compare it with the module of another process": (
        "Write the module to a file in a debugger (.writemem), and compare it with the file on disk"
    ),
    "Compare windows.ldrmodules with windows.vadinfo, and dump both: windows.vadinfo --dump": (
        "Compare the modules with the regions of memory in a debugger (lm, !address)"
    ),
    "Look at the memory of the start with windows.vadinfo": (
        "Look at the memory of the start in a debugger (!address)"
    ),
    "Look at the memory at the stack pointer with windows.vadinfo": (
        "Look at the memory at the stack pointer in a debugger (!address)"
    ),
    "dump it with windows.dlllist --dump": "write it to a file in a debugger (.writemem)",
    "compare windows.modules with windows.modscan": "compare the modules in a debugger (lm)",
    "windows.unloadedmodules shows when the driver was unloaded": (
        "a debugger shows the unloaded drivers (lm, at the end)"
    ),
}
"""Advice that needs Volatility's plugins for images, and what leads to the same in a dump."""


def for_input(words: str, kind: str) -> str:
    """Returns a text for users with the commands that read a kind of input.

    Args:
        words: the text, which names the commands for images of memory
        kind: a word of `words.INPUT_KINDS`
    """
    if kind == MEMORY_IMAGE:
        return words
    for advice, instead in _IN_A_DEBUGGER.items():
        words = words.replace(advice, instead)
    return _OURS.sub(r"minidump.\1", words)
