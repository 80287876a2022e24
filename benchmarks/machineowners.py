# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the processes of a forged machine own: databases, heaps, locks, handles with their rings, objects."""

from __future__ import annotations

import dataclasses
import random
import struct
from typing import Dict, List, Sequence, Tuple

from tests.forge import heap_layouts, heaplist
from tests.forge.handles import OPEN, HandleTable, Ring, header_of
from tests.forge.heaplog import HeapLog
from tests.forge.heaps import NtHeap
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources, Sections
from tests.forge.obj import Obj
from tests.forge.objecttraces import Event, ObjectTraces
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.process import Process
from tests.forge.std import Std
from tests.forge.thread import Thread
from tests.forge.vad import Vad
from tests.support.tracedkernels import put_database

from .machinefiles import MISSING, File, packed

DEPTH = 16
DATABASE, HEAP, HEAP_LIST = 0x1D2A0000000, 0x10000000, 0x1000000
_SETS = 4
"""Databases and heaps that differ: processes that load the same libraries may have the same traces."""
_KERNEL_TRACES = 1500
_BLOCKS_PER_RECORD = 10
_RINGS, _EVENTS, _TRACED = 10, 1024, 1000
"""Processes with a ring of handle traces, its events, and objects whose references are traced."""
_SECTIONS = 200
_KINDS = (("_KEVENT", "Event"), ("_KMUTANT", "Mutant"), ("_KSEMAPHORE", "Semaphore"), ("_KTIMER", "Timer"))
_NAME = "Ready{:08}"
_NAME_SIZE = 0x20
_ALL_ACCESS = 0x1F0003


@dataclasses.dataclass
class Set:
    """The memory of a database, of a heap's log and of the heap, as (address, bytes)."""

    database: Std
    regions: List[Tuple[int, bytes]]
    log: HeapLog
    heap: List[Tuple[int, bytes]]


class Owners:
    """Adds what processes own.

    Args:
        kernel: the kernel
        processes, threads: all of them
        ntdll, libraries: files through which all processes call
        generator: decides who owns what
    """

    def __init__(
        self,
        kernel: Kernel,
        processes: Sequence[Process],
        threads: Sequence[Thread],
        ntdll: File,
        libraries: Sequence[File],
        generator: random.Random,
    ) -> None:
        self._kernel = kernel
        self._processes = processes
        self._threads = threads
        self._ntdll = ntdll
        self._libraries = libraries
        self._random = generator

    def traces(self, processes: Sequence[Process], traces: int, blocks: int) -> None:
        """Gives processes databases and heaps whose blocks remember who allocated them."""
        sets = [self._set(traces, blocks) for _ in range(min(_SETS, len(processes)))]
        for number, process in enumerate(processes):
            self._give(process, sets[number % len(sets)])

    def resources(self, count: int) -> None:
        """Makes locks of the kernel, whose creators are in its database; one in a hundred is owned."""
        indices = put_database(self._kernel, "6.1", self._kernel_traces())
        resources = Resources(self._kernel)
        for number in range(count):
            owner = self._random.choice(self._threads) if number % 100 == 0 else None
            index = self._random.choice(indices)
            resources.add(index=index, active=1 if owner else 0, exclusive=owner, contention=number % 7)
        resources.link()

    def handles(self, count: int, objects: int) -> None:
        """Opens handles to objects of some kinds, to threads and to processes."""
        headers = [header for kind in _KINDS for header in self._objects(*kind, objects // len(_KINDS))]
        headers += [header_of(thread.ethread) for thread in self._threads]
        headers += [header_of(process.eprocess) for process in self._processes]
        for number, process in enumerate(self._processes):
            table = HandleTable(process, 1)
            share = count // len(self._processes) + (number < count % len(self._processes))
            table.fill(self._random.choices(headers, k=share), _ALL_ACCESS)
            if number < _RINGS:
                self._ring(table, process)

    def objects(self, count: int = _TRACED) -> None:
        """Traces the references to objects."""
        traces = ObjectTraces(self._kernel)
        stacks = [traces.stack(trace) for trace in self._kernel_traces()]
        for number in range(min(count, len(self._threads))):
            first, second = self._random.choices(stacks, k=2)
            events = [Event(2 * number + 1, True, first), Event(2 * number + 2, False, second)]
            traces.object(self._threads[number].ethread, "app.exe", events)
        traces.finish()

    def _kernel_traces(self) -> List[Tuple[int, ...]]:
        """Stacks of eight frames in drivers."""
        sites = [
            module.base + 0x101D + 0x80 * number for module in self._kernel.modules[1:] for number in range(8)
        ]
        return [tuple(self._random.choices(sites, k=8)) for _ in range(_KERNEL_TRACES)]

    def _set(self, traces: int, blocks: int) -> Set:
        files = [self._ntdll, *self._libraries]
        sites = [site for file in files for site in file.sites(self._random, 200)]
        # A call tree: each level further in, twice as many places may be calling.
        levels = [self._random.sample(sites, min(4 << level, len(sites))) for level in reversed(range(DEPTH))]
        database, log = Std("6.1", "x64", DATABASE), HeapLog("x64")
        while len(database.slots) < traces:
            database.log([self._random.choice(level) for level in levels])
        heap = NtHeap(HEAP, heap_layouts.LAYOUTS["6.2-x64"], pages=blocks // 16 + 16)
        records = [
            log.log([self._random.choice(level) for level in levels])
            for _ in range(-(-blocks // _BLOCKS_PER_RECORD))
        ]
        for number in range(blocks):
            heap.extended(self._random.randrange(16, 160), records[number % len(records)])
        return Set(database, [*database.regions().items()], log, [*_joined(log.regions()), *heap.regions()])

    def _give(self, process: Process, contents: Set) -> None:
        space, data = process.space, self._ntdll.base + self._ntdll.private.start
        process.vads.append(Vad(contents.database.base, contents.database.reserve))
        for address, held in [*contents.regions, *contents.heap]:
            process.region(address, held)
            for page in range(address + PAGE, address + len(held), PAGE):
                if self._random.random() < MISSING:
                    space.set_state(page, PAGE, State.PAGEFILE)
        space.write(data + 0x40, struct.pack("<QQQ", contents.database.base, 0, contents.log.address))
        heaplist.put(process, process, 8, [HEAP], HEAP_LIST)
        ntdll = next(module for module in process.modules if module.base == self._ntdll.base)
        sections = Sections(ntdll, data + 0x80)
        for number in range(_SECTIONS):
            sections.add(index=1 + number % len(contents.database.slots))
        sections.link()

    def _ring(self, table: HandleTable, process: Process) -> None:
        ring, thread = Ring(table, _EVENTS), process.threads[0]
        traces = self._kernel_traces()
        for number in range(1, _EVENTS):
            ring.event(OPEN, 4 * number, process.pid, thread.tid, traces[number % len(traces)])

    def _objects(self, type_name: str, object_type: str, count: int) -> List[int]:
        """Makes named objects page by page; returns the addresses of their headers."""
        kernel, isf = self._kernel, self._kernel.isf
        pool, before = isf.size("_POOL_HEADER"), isf.size("_OBJECT_HEADER_NAME_INFO")
        size = pool + before + isf.offset("_OBJECT_HEADER", "Body") + isf.size(type_name)
        size = -(-(size + _NAME_SIZE) // 16) * 16
        name = _NAME.format(0).encode("utf-16-le")
        info = {"Name.Length": len(name), "Name.MaximumLength": len(name) + 2}
        block = packed(isf, "_POOL_HEADER", {"BlockSize": size // 16, "PoolType": 2, "PoolTag": 0x65764500})
        block += packed(isf, "_OBJECT_HEADER_NAME_INFO", info)
        block += packed(isf, "_OBJECT_HEADER", {"PointerCount": 1, "HandleCount": 1, "InfoMask": 2})
        start = size - _NAME_SIZE
        buffer = pool + isf.offset("_OBJECT_HEADER_NAME_INFO", "Name.Buffer")
        headers: List[int] = []
        per_page = PAGE // size
        for first in range(0, count, per_page):
            address = kernel.space.allocate(PAGE, PAGE)
            page = bytearray()
            for number in range(first, min(first + per_page, count)):
                data = bytearray(block.ljust(size, b"\0"))
                data[start : start + len(name)] = _NAME.format(number).encode("utf-16-le")
                struct.pack_into("<Q", data, buffer, address + len(page) + start)
                headers.append(address + len(page) + pool + before)
                page += data
            kernel.space.write(address, bytes(page))
        for header in headers:
            kernel.pool.set_type(Obj(kernel.space, isf, "_OBJECT_HEADER", header), object_type)
        return headers


def _joined(pages: Dict[int, bytes]) -> List[Tuple[int, bytes]]:
    """Pages that follow one another as one piece."""
    pieces: List[Tuple[int, bytearray]] = []
    for address, data in pages.items():
        if pieces and pieces[-1][0] + len(pieces[-1][1]) == address:
            pieces[-1][1].extend(data)
        else:
            pieces.append((address, bytearray(data)))
    return [(address, bytes(data)) for address, data in pieces]
