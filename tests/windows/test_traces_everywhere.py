# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The flat tables and the plugins have the same stacks and frames, with none and with all options."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict

import pytest
from volatility3.plugins.windows import trapframes

from tests.forge import context, sample
from tests.forge.context import Opened
from tests.support import flattables, grid, poolscans
from tests.support.callstackimages import StackImage
from tests.support.callstackimages86 import StackImage86
from tests.support.heapimage import HEAP, HeapImage
from tests.support.tracedkernels import KERNELS, new_kernel, put_database, traces_of
from winstacks.columns import words

from .test_traces_gaps import holes

Opens = Callable[[pathlib.Path], Opened]

ALL = dict.fromkeys(("carve", "scan_stacks", "scan_threads", "scan_processes", "processors"), True)
SHARED_OPTIONS: Dict[str, Any] = {"scan_processes": True}
"""Options that the plugin of a source has as well; stacktracedb also has --carve."""


def open_truncated(folder: pathlib.Path) -> Opened:
    return context.open_truncated(sample.build().image(), folder)


def open_holes(folder: pathlib.Path) -> Opened:
    kernel = holes()
    image = kernel.image()
    kernel.space.write_int(kernel.symbol("PsActiveProcessHead"), 0)
    return context.open_image(image, folder)


def open_stacks(folder: pathlib.Path) -> Opened:
    image = StackImage()
    image.waiting(1004)
    image.interrupted(1008)
    image.preempted(1012, "interrupt", True, True)
    return context.open_image(image.kernel.image(), folder)


def open_stacks86(folder: pathlib.Path) -> Opened:
    image = StackImage86("win10-x86")
    image.waiting(1004, interrupted=True)
    return context.open_image(image.kernel.image(), folder)


def open_heap(name: str, wow64: bool) -> Opens:
    def opens(folder: pathlib.Path) -> Opened:
        forged = HeapImage(name, wow64)
        heap = forged.heap(HEAP, segment_creator=forged.index(3))
        for number in range(20):
            heap.extended(100, forged.record(number % 5))
        forged.put(heap.regions(), HEAP)
        return context.open_image(forged.image(), folder)

    return opens


def open_kernel(name: str, generation: str) -> Opens:
    def opens(folder: pathlib.Path) -> Opened:
        kernel = new_kernel(name)
        put_database(kernel, generation, traces_of(kernel))
        kernel.process("app.exe", pid=1000).thread(1004)
        return context.open_image(kernel.image(), folder)

    return opens


IMAGES: Dict[str, Opens] = {
    "sample": lambda folder: context.open_image(sample.build().image(), folder),
    "truncated": open_truncated,
    "holes": open_holes,
    "stacks": open_stacks,
    "stacks x86": open_stacks86,
    "heap": open_heap("win10-x64", False),
    "heap wow64": open_heap("win7-x64", True),
    **{name: open_kernel(name, generation) for name, generation in KERNELS},
}


@pytest.fixture(scope="module", params=IMAGES)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return IMAGES[request.param](tmp_path_factory.mktemp("everywhere"))


def check(opened: Opened, options: Dict[str, Any]) -> None:
    """Asserts that the tables have what the plugins print with these options, and nothing else."""
    with poolscans.made_once():
        _check(opened, options)


def _check(opened: Opened, options: Dict[str, Any]) -> None:
    rows, frames = (run(opened, **options) for run in (flattables.stacks, flattables.frames))
    assert len({row["TraceId"] for row in rows}) == len(rows)
    below = flattables.by_trace(frames)
    assert set(below) <= {row["TraceId"] for row in rows if row["Count"] is not None}
    shared = {name: value for name, value in options.items() if name in SHARED_OPTIONS}
    for source in flattables.SOURCES:
        requests = {**shared, "carve": True} if source == "database" and "carve" in options else shared
        found = flattables.of_tables(rows, frames, source)
        plugin = flattables.of_plugin(opened, source, **requests)
        if source != "thread" or not options:
            assert found == plugin, source
        else:
            # windows.callstacks has no left-over stacks, idle processors and threads of a pool scan.
            remaining = iter(found)
            assert all(stack in remaining for stack in plugin), source


def test_with_no_options(opened: Opened) -> None:
    check(opened, {})


def test_with_all_options(opened: Opened) -> None:
    check(opened, ALL)


def test_threads_are_those_of_the_trap_frames(opened: Opened) -> None:
    """windows.trapframes takes its threads from the same lists; it has no row for one without registers."""
    for options in ({}, {"scan_threads": True}):
        known = {
            (node.row["PID"], node.row["TID"])
            for node in grid.run(opened, trapframes.TrapFrames, **options)
            if node.row["TrapFrame"] is not None
        }
        rows = flattables.stacks(opened, kinds=list(words.THREAD_KINDS), **options)
        assert known <= {(row["PID"], row["TID"]) for row in rows}
