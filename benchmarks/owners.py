# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images with as many as wanted of what owns a trace: locks, handles' events, traced objects, heap blocks."""

from __future__ import annotations

import pathlib
from typing import List

from tests.forge.handles import OPEN, HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources
from tests.forge.objecttraces import Event, ObjectTraces
from tests.support.heapimage import HEAP, HeapImage
from tests.support.tracedkernels import Trace, put_database

from .images import Image, new_kernel, save, save_image

_TRACES = 200
_PER_RECORD = 10


def locks(folder: pathlib.Path, count: int) -> Image:
    """A kernel with so many resources, whose creators' traces are in its database."""
    kernel = new_kernel()
    indices = put_database(kernel, "6.1", _traces(kernel))
    resources = Resources(kernel)
    for number in range(count):
        resources.add(index=indices[number % _TRACES])
    resources.link()
    return save(kernel, folder, f"locks-{count}")


def handles(folder: pathlib.Path, count: int) -> Image:
    """A process whose ring remembers so many openings of handles, all of which are open."""
    kernel = new_kernel()
    process = kernel.process("app.exe", pid=1000)
    process.module("ntdll.dll", exports={"NtClose": 0x1100})
    table = HandleTable(process, 2)
    opened = named(kernel, "_KEVENT", "Event", "Ready")
    for number in range(1, count + 1):
        table.add(4 * number, opened)
    table.finish()
    ring = Ring(table, 1 << count.bit_length())
    traces = _traces(kernel)
    for number in range(1, count + 1):
        ring.event(OPEN, 4 * number, 1000, 1004, traces[number % _TRACES])
    return save(kernel, folder, f"handles-{count}")


def objects(folder: pathlib.Path, count: int) -> Image:
    """A kernel that traces so many objects, each with two operations."""
    kernel = new_kernel()
    traces = ObjectTraces(kernel)
    stacks = [traces.stack(trace) for trace in _traces(kernel)]
    for number in range(count):
        first, second = stacks[number % _TRACES], stacks[(number + 1) % _TRACES]
        events = [Event(2 * number + 1, True, first), Event(2 * number + 2, False, second)]
        traces.object(named(kernel, "_KEVENT", "Event"), "app.exe", events)
    traces.finish()
    return save(kernel, folder, f"objects-{count}")


def blocks(folder: pathlib.Path, count: int) -> Image:
    """A process with a heap of so many blocks, ten for each trace."""
    image = HeapImage("win10-x64")
    heap = image.heap(pages=count // 16 + 16)
    for number in range(count):
        heap.extended(100, image.record(number // _PER_RECORD))
    image.put(heap.regions(), HEAP)
    return save_image(image.image(), folder, f"blocks-{count}")


def _traces(kernel: Kernel) -> List[Trace]:
    """Stacks of eight frames in the kernel and its drivers."""
    drivers = [module.base for module in kernel.modules[1:]]
    frames = [base + 0x101D + 0x80 * number for base in drivers for number in range(8)]
    return [
        tuple(frames[(number * 3 + step) % len(frames)] for step in range(8)) for number in range(_TRACES)
    ]
