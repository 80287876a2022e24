# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The images on which the work of each plugin is counted, and the limits of that work.

The limits are for the image of size 2. They were set about 15 % above the counts of that time; a change that
needs more may raise them. Whatever is listed, they hold three fixed parts:

- where a kernel address is named, a page of each kernel module (about 150 reads, page walks and pages), whose
  SizeOfImage its entry in the loader's list is compared with (`KernelModules`);
- the pages of PspCidTable, of the objects in it, of the processors' _KPRCBs and of the handle tables: each
  once, for what these witnesses know of processes and threads (`process_list`, `CidTable`);
- the page of each _EPROCESS that holds ThreadListHead: threads behind the end of the file show that the file
  is cut (`file_length`).
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any, Callable, Dict, NamedTuple, Tuple

from volatility3.plugins.windows import (
    callstacks,
    gflags,
    handletraces,
    heaptraces,
    locks,
    objecttraces,
    stacktracedb,
    traces,
    trapframes,
)

from benchmarks import images, owners, stacks
from benchmarks.images import Image

from .costs import Counts, Opened

KINDS = ("reads", "bytes", "page walks", "page tables", "objects", "layers", "modules", "VAD trees")
"""What the bounds are of."""


class Case(NamedTuple):
    """A plugin, what makes an image of a size for it, what size 1 is, and the bounds of KINDS at size 2."""

    plugin: Any
    make: Callable[[pathlib.Path, int], Image]
    one: int
    most: Tuple[int, ...]
    options: Dict[str, Any] = {}


def _threads(folder: pathlib.Path, count: int) -> Image:
    return stacks.threads(folder, 2, count)


def _processes_of_threads(folder: pathlib.Path, count: int) -> Image:
    return stacks.threads(folder, count, 5)


_PROCESSES = functools.partial(images.processes, entries=64)

CASES = {
    "stacktracedb, entries": Case(
        stacktracedb.StackTraceDb, images.database, 100, (740, 2600000, 320, 30, 42, 2, 36, 1)
    ),
    "stacktracedb, processes": Case(
        stacktracedb.StackTraceDb, _PROCESSES, 5, (1700, 7300000, 1300, 115, 220, 11, 15, 10)
    ),
    "stacktracedb, one index": Case(
        stacktracedb.StackTraceDb, images.database, 100, (490, 1900000, 210, 37, 42, 2, 14, 1), {"index": [5]}
    ),
    "gflags, processes": Case(gflags.GFlags, _PROCESSES, 5, (1000, 5400000, 610, 92, 160, 11, 2, 10)),
    "trapframes, processes": Case(
        trapframes.TrapFrames, _processes_of_threads, 2, (420, 1450000, 145, 28, 110, 5, 3, 4)
    ),
    "trapframes, threads": Case(trapframes.TrapFrames, _threads, 5, (370, 1300000, 105, 28, 61, 3, 3, 2)),
    # The threads of all processes are listed before their stacks are walked: of more processes than have
    # their layers kept, the pages of TEBs are read twice.
    "callstacks, processes": Case(
        callstacks.CallStacks, _processes_of_threads, 4, (1000, 3400000, 430, 28, 110, 9, 20, 8)
    ),
    "callstacks, threads": Case(callstacks.CallStacks, _threads, 5, (620, 2050000, 500, 37, 61, 3, 20, 2)),
    "locks": Case(locks.Locks, owners.locks, 100, (1000, 2350000, 1200, 25, 22, 1, 88, 0)),
    "handletraces": Case(
        handletraces.HandleTraces, owners.handles, 100, (960, 2150000, 1100, 24, 42, 2, 89, 1)
    ),
    "objecttraces": Case(
        objecttraces.ObjectTraces, owners.objects, 100, (1100, 2300000, 1300, 33, 0, 0, 88, 0)
    ),
    "heaptraces": Case(heaptraces.HeapTraces, owners.blocks, 100, (135, 460000, 120, 24, 42, 2, 3, 3)),
    # ImageId reads 4,096 blocks of the files.
    "traces, entries": Case(
        traces.StackTraces, images.database, 100, (2300, 17500000, 420, 55, 72, 3, 36, 2)
    ),
    "traces, processes": Case(
        traces.StackTraces, _PROCESSES, 5, (3700, 27500000, 1500, 350, 440, 13, 16, 11)
    ),
}


class Measured:
    """What plugins do on the images of the cases, each of which is made and measured once."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.opened = functools.lru_cache(maxsize=None)(self._opened)
        self.cost = functools.lru_cache(maxsize=None)(self._cost)

    def _opened(self, name: str, size: int) -> Opened:
        case = CASES[name]
        return Opened(case.make(self._folder, case.one * size))

    def _cost(self, name: str, size: int) -> Counts:
        """What the plugin of a case does on its image of some size."""
        case = CASES[name]
        return self.opened(name, size).cost(case.plugin, **case.options)
