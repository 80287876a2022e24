# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of processes against the images that hold the same processes, and a sparse dump of 60 GB."""

from __future__ import annotations

import os
import pathlib
import shutil
from functools import partial
from typing import List, Sequence, Tuple

from tests.forge import context, sample
from tests.support.heapimage import PID as HEAP_PROCESS
from tests.support.processdumps import dump_of

from . import images, owners, results, stacks
from .images import Image
from .listing import FULL, cost
from .measure import in_turns
from .results import Line

BLOCKS, THREADS = 1_000_000, 1_000
RANGES, RANGE = 20_000, 3 << 20
"""The memory of a large process: so many ranges of so many bytes."""
MOST_MEMORY = 300

_UPDATER, _RAISED = 4312, 4316
_SPARSE = 0x10000000000

PLUGINS = (
    *("info", "callstacks", "stacktracedb", "locks", "heaptraces", "handletraces", "gflags", "traces"),
    *("traceframes", "traceimage", "tracefindings", "tracegraph", "tracereport"),
)


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures what reads dumps."""
    return [*_compared(folder), *_sparse(folder)]


def _compared(folder: pathlib.Path) -> List[Line]:
    """Measures a process in a dump against the same in an image."""
    works: Sequence[Tuple[Image, int, str, str]] = (
        (images.database(folder, FULL), images.PID, "stacktracedb --fold", f"{FULL:,} traces"),
        (owners.blocks(folder, BLOCKS), HEAP_PROCESS, "heaptraces", f"{BLOCKS:,} blocks"),
        (stacks.threads(folder, 1, THREADS), images.PID, "callstacks", f"{THREADS:,} threads"),
    )
    found = []
    for image, pid, command, amount in works:
        dump = dump_of_process(image, pid)
        ours, theirs = in_turns(
            [
                partial(cost, dump, f"minidump.{command}"),
                partial(cost, image, f"windows.{command} --pid {pid}"),
            ],
            3,
        )
        what = f"`minidump.{command}`, {amount}"
        found.append(results.ratio(what, "the process in an image", ours.seconds, theirs.seconds, 1.1))
        found.append(results.memory("the same", "memory", ours.memory, None, f"MB / {theirs.memory:.0f} MB"))
    return found


def dump_of_process(image: Image, pid: int) -> Image:
    """Writes the dump of a process of an image beside the image."""
    shutil.copytree(image.symbols, context.symbol_directory(), dirs_exist_ok=True)
    path = image.file.with_name(f"{pid}.dmp")
    path.write_bytes(dump_of(context.open_file(image.file), pid))
    return image._replace(file=path)


def _sparse(folder: pathlib.Path) -> List[Line]:
    dump = sparse_dump(folder)
    size = f"{dump.file.stat().st_size >> 30} GB"
    found = []
    for plugin in PLUGINS:
        measured = cost(dump, f"minidump.{plugin}")
        details = f"MB; {measured.seconds:.2g} s"
        what = f"`minidump.{plugin}`, sparse dump of {size}"
        found.append(results.memory(what, "memory", measured.memory, MOST_MEMORY, details))
    return found


def sparse_dump(folder: pathlib.Path) -> Image:
    """A process of the sample with so much private memory more, which takes no room on the disk."""
    image = images.save(sample.build(), folder, "sparse")
    shutil.copytree(image.symbols, context.symbol_directory(), dirs_exist_ok=True)
    unwritten = [(_SPARSE + 2 * RANGE * number, RANGE) for number in range(RANGES)]
    path = image.file.with_name("sparse.dmp")
    opened = context.open_file(image.file)
    path.write_bytes(dump_of(opened, _UPDATER, raised=_RAISED, unwritten=unwritten))
    os.truncate(path, path.stat().st_size + RANGE * RANGES)
    return image._replace(file=path)
