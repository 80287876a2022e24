# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The commands that are run on the images: plugins with their options, as they are typed behind `vol`."""

from __future__ import annotations

import pathlib
import shlex
from typing import Dict, List, Tuple

PLUGINS = (
    *("callstacks", "gflags", "handletraces", "heaptraces", "locks", "minidump", "objecttraces"),
    *("stacktracedb", "tracefindings", "traceframes", "tracegraph", "traceimage", "tracereport", "traces"),
    *("trapframes", "waits"),
)
"""All plugins, by the names of their files: each is run without options."""

EARLIER_LOG, EARLIER_FOLDED = "earlier.log", "earlier.folded"

INPUTS: Dict[str, str] = {
    EARLIER_LOG: """\
// Loaded modules:
//     Base Size Module
//    000007FE00000000 00009000 \\Windows\\System32\\updater.exe
//    000007FE00020000 00009000 \\Windows\\System32\\KERNEL32.DLL
//    000007FE00040000 00009000 \\Windows\\System32\\ntdll.dll
//
*- - - - - - - - - - Start of data for heap @ 1D290000000 - - - - - - - - - -
REQUESTED bytes + OVERHEAD at ADDRESS by BackTraceID
     STACK if not already dumped.
*- - - - - - - - - - Heap 1D290000000 Hogs - - - - - - - - - -
1000 bytes + 30 at 1D2900002D0 by BackTrace1D28D100040

\t7FE00001147
\t7FE00001031
\t7FE00021014
\t7FE00041121

500 bytes + 30 at 1D290001370 by BackTrace1D28D100010

\t7FE00001555
\t7FE00001031

*- - - - - - - - - - End of data for heap @ 1D290000000 - - - - - - - - - -
""",
    EARLIER_FOLDED: """\
heap;updater.exe (4312);ntdll!RtlUserThreadStart;KERNEL32!BaseThreadInitThunk;updater!main;updater!gone 700
heap;updater.exe (4312);ntdll!RtlUserThreadStart;KERNEL32!BaseThreadInitThunk;updater!main 9
""",
}
"""Files of an earlier state of the sample, for --baseline."""

SELECTED = ("--brief", "--fold", "--unbacked", "--find nt!*")
"""Options of most plugins that list stacks."""

ALL = "--carve --scan-stacks --scan-threads --processors"

SAMPLE: Dict[str, Tuple[str, ...]] = {
    "callstacks": (
        *(*SELECTED, "--unique", "--frames-to-skip 1 --frames-to-capture 2", "--pid 999"),
        *("--offset 0xe00010009040", "--scan-processes --pid 5120 6200"),
    ),
    "gflags": ("--brief", "--carve"),
    "handletraces": (*SELECTED, "--leaks", "--handle 0x8c"),
    "heaptraces": (*SELECTED[:3], "--blocks", "--summary", "--dump", f"--baseline {{folder}}/{EARLIER_LOG}"),
    "locks": (*SELECTED[:3], "--held", "--contended", "--dump", "--columns Lock,OwnerTID"),
    "minidump": ("--brief", "--format wow64"),
    "objecttraces": SELECTED[:3],
    "stacktracedb": (*SELECTED[:3], "--index 1 --pid 0", "--dump"),
    "tracefindings": (
        *("--brief", "--scan", "--check unbacked hidden", "--severity high"),
        *("--pid 6200", "--pid 999"),
        *("--explain unbacked", "--explain nothing"),
    ),
    "traceframes": ("--brief", "--kinds lock handle", ALL),
    "tracegraph": (
        "--format folded speedscope --weight bytes",
        f"--kinds heap --weight bytes --baseline {{folder}}/{EARLIER_FOLDED}",
    ),
    "traceimage": (
        "--brief",
        f"--sha256 {ALL}",
    ),
    "tracereport": ("--scan --sha256",),
    "traces": ("--brief", "--dump", "--unbacked --find nt!*", f"{ALL} --scan-processes"),
    "trapframes": (
        "--brief",
        "--members",
        "--unwind --scan-stacks --processors --scan-threads",
        "--tid 4320",
    ),
}
"""What the plugins are run with on the sample."""


def words_of(words: str, folder: pathlib.Path) -> List[str]:
    """The words of a command: `{folder}` is that of the image."""
    return [word.replace("{folder}", str(folder)) for word in shlex.split(words)]


def every(options: Dict[str, Tuple[str, ...]]) -> Tuple[str, ...]:
    """Each plugin without options, then with each of these."""
    return (*PLUGINS, *(f"{plugin} {word}" for plugin, words in options.items() for word in words))
