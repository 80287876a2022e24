# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The cases: an image, the commands that are run on it, and how much of their output is kept.

What is about one kind of stack is run with the plugins that show it; the others would say that there is none.
"""

from __future__ import annotations

import enum
import pathlib
from typing import Callable, Dict, Mapping, NamedTuple, Tuple

from tests.conftest import SHARED
from tests.forge import sample

from . import images
from .images import ImageFiles, forged, subject, undamaged
from .matrix import INPUTS, PLUGINS, SAMPLE, every


class Keeps(enum.Enum):
    """What is kept of an output: its text, a digest of each row, or a digest of all."""

    TEXT = "text"
    ROWS = "rows"
    DIGEST = "digest"


class Case(NamedTuple):
    """A case.

    Attributes:
        make: puts the image and its symbols into a folder
        runs: the commands
        keeps: how much is kept
        needs: the folder of reference data that it is made of, none for a forged image
        inputs: files beside the image, by name
        plugins: the folder of the plugins
    """

    make: Callable[[pathlib.Path], ImageFiles]
    runs: Tuple[str, ...] = PLUGINS
    keeps: Keeps = Keeps.TEXT
    needs: str = ""
    inputs: Mapping[str, str] = {}
    plugins: str = "windows"

    def missing(self) -> str:
        """Why it cannot be run; empty if it can."""
        if self.needs and not (SHARED / self.needs).is_dir():
            return f"the reference data is not at {SHARED / self.needs}"
        return ""


ENTRIES = ("stacktracedb", "locks", "handletraces", "objecttraces")
SOURCES = (*ENTRIES, "callstacks", "trapframes", "traces")
RECORDED = (*ENTRIES, *(f"{plugin} --brief --fold" for plugin in ENTRIES[:3]), "gflags --carve", "traces")
STACKS = ("callstacks", "callstacks --fold --unique", "trapframes --unwind --scan-stacks", "traces")
THREADS = (
    *(*STACKS, "traceframes", "tracefindings", "trapframes --members --scan-threads --processors"),
    "traces --scan-stacks --scan-threads --processors",
)
HEAPS = ("gflags", "heaptraces", "heaptraces --blocks --fold", "heaptraces --dump", "traces")
TRAPS = ("callstacks", "trapframes --members --unwind --scan-stacks --processors", "traces")
FINDINGS = ("callstacks --unbacked", "handletraces", "stacktracedb", "tracefindings --scan", "tracereport")
CLEAN = ("callstacks", "trapframes", "traces", "tracefindings --scan", "tracereport")
DATABASES = ("gflags --carve", "stacktracedb", "stacktracedb --carve --fold", "stacktracedb --dump", "traces")
DAMAGED = (*SOURCES, "traceimage", "tracefindings")
REAL = ("stacktracedb", "stacktracedb --dump")
REAL_HEAPS = ("stacktracedb --carve --fold", "heaptraces", "heaptraces --dump")
SYSTEM = ("callstacks", "locks", "gflags", "trapframes --members", "traces", "tracefindings", "traceimage")


SMALL = ("info", "callstacks", "trapframes --members", "tracefindings", "traces", "traceimage", "locks")


def _small(make: Callable[[pathlib.Path], ImageFiles]) -> Case:
    return Case(make, SMALL, plugins="minidump")


def _std(name: str, kernel: str, *runs: str) -> Case:
    return Case(forged(images.real_database(name, kernel)), runs or REAL, Keeps.TEXT, "real_std")


def _frame(build: str, mode: str) -> Case:
    make = forged(images.real_frame(build, mode))
    return Case(make, ("trapframes --members --scan-stacks", "callstacks"), Keeps.DIGEST, "real_trapframes")


CASES: Dict[str, Case] = {
    "sample-win10-x64": Case(forged(lambda: sample.build().image()), every(SAMPLE), inputs=INPUTS),
    "sample-win11-x64": Case(forged(undamaged("sample-win11-x64")), SOURCES),
    "traced-xp-x86": Case(forged(undamaged("traced-xp-x86")), RECORDED),
    "traced-2003-x64": Case(forged(undamaged("traced-2003-x64")), (*ENTRIES, "traces")),
    "traced-vista-x64": Case(forged(images.vista), DATABASES),
    "traced-win7-x86": Case(forged(undamaged("traced-win7-x86")), (*ENTRIES, "traces")),
    "traced-win7-x64": Case(forged(undamaged("traced-win7-x64")), ENTRIES),
    "traced-win10-x86": Case(forged(undamaged("traced-win10-x86")), ENTRIES),
    "stacks-win7-x86": Case(forged(undamaged("stacks-win7-x86")), STACKS),
    "stacks-2003-x64": Case(forged(undamaged("stacks-2003-x64")), STACKS),
    "stacks-wow64-win10-x64": Case(forged(undamaged("stacks-wow64-win10-x64")), THREADS),
    "callbacks-win11-x64": Case(forged(undamaged("callbacks-win11-x64")), STACKS),
    "callbacks-xp-x86": Case(forged(undamaged("callbacks-xp-x86")), STACKS),
    "heaps-win10-x64": Case(forged(subject("heaps-win10-x64")), HEAPS),
    "heaps-wow64-win7-x64": Case(forged(subject("heaps-wow64")), HEAPS),
    "heaps-xp-x86": Case(forged(subject("heaps-xp-x86")), HEAPS),
    "segment-heap-win10-x64": Case(forged(undamaged("segment-heap-win10-x64")), HEAPS),
    "page-heap-win7-x86": Case(forged(undamaged("page-heap-win7-x86")), HEAPS),
    "traps-win10-x64": Case(forged(undamaged("traps-win10-x64")), TRAPS),
    "traps-xp-x86": Case(forged(undamaged("traps-xp-x86")), TRAPS),
    "implant-win10-x64": Case(forged(images.implant("win10-x64")), FINDINGS),
    "implant-win7-x86": Case(forged(images.implant("win7-x86")), ("callstacks", "tracefindings --scan")),
    "named-win10-x64": Case(
        forged(subject("named-win10-x64")), ("callstacks", "stacktracedb", "tracefindings")
    ),
    "clean-win10-x64": Case(forged(images.clean("win10-x64")), CLEAN),
    "clean-win7-x86": Case(forged(images.clean("win7-x86")), STACKS),
    "missing-win7-x64": Case(forged(images.clean("win7-x64", missing=True)), STACKS),
    "deadlock-win10-x64": Case(forged(images.deadlock), ("callstacks --fold", "locks", "traces")),
    "damaged-database": Case(forged(images.damaged_database), DATABASES),
    "damaged-lists": Case(forged(images.damaged_lists), PLUGINS),
    "truncated": Case(images.truncated, DAMAGED),
    "smeared": Case(forged(images.smeared), SOURCES),
    "plain-win11-x64": Case(forged(undamaged("plain-win11-x64")), (*SOURCES, "heaptraces", "gflags")),
    "real-2600-x86": _std("2600.5512-x86", "xp-x86"),
    "real-2600-x86-kernel": _std("2600.5512-x86-kernel", "xp-x86"),
    "real-2600-x86-heap": _std("2600.5512-x86-heap", "xp-x86", *REAL_HEAPS),
    "real-3790-x64": _std("3790.3959-x64", "win7-x64"),
    "real-7601-x64-lazy": _std(
        "7601.24384-x64-lazy", "win7-x64", *REAL, "stacktracedb --carve --fold", "traces"
    ),
    "real-7601-x64-heap-inline": _std("7601.17514-x64-heap-inline", "win7-x64", *REAL_HEAPS),
    "real-7601-x64-heap-lfh": _std("7601.17514-x64-heap-lfh", "win7-x64", *REAL_HEAPS),
    "real-9600-x64": _std("9600.16384-x64", "win7-x64"),
    "real-16299-x86": _std("16299.15-x86", "win10-x86"),
    "real-16299-x86-heap-wow64": _std("16299.15-x86-heap", "win10-x64", *REAL_HEAPS, "locks --fold"),
    "real-19044-x64-heap": _std("19044.1766-x64-heap", "win10-x64", *REAL_HEAPS),
    "real-22000-x64": _std("22000.778-x64", "win11-x64"),
    "kernel-win8.1-x64": Case(
        forged(images.windows_8_1), ("gflags", "stacktracedb", "callstacks"), Keeps.TEXT, "isf"
    ),
    "frame-2600-x86": _frame("5.1.2600.5512up-x86", "user"),
    "frame-3790-x86": _frame("5.2.3790.3959pa-x86", "kernel"),
    "frame-3790-x64": _frame("5.2.3790.3959up-x64", "kernel"),
    "small-win10-x64": _small(images.small_of_sample),
    "small-xp-x86": _small(images.small_of_xp),
    "reactos-idle": Case(images.reactos("ros-idle"), SYSTEM, Keeps.DIGEST, "reactos"),
    "reactos-running": Case(images.reactos("ros-running"), ("callstacks",), Keeps.DIGEST, "reactos"),
}
