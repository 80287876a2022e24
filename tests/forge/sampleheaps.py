# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The heap of the sample's process: a leak of the program, and what code in private memory keeps there."""

from __future__ import annotations

from . import heap_layouts, heaplist
from .heaplog import HeapLog
from .heaps import NtHeap
from .module import Module
from .process import Process

HEAP = 0x1D290000000
LIST = 0x1D28F000000
LOG = 0x1D28D000070
LOG_POINTER_RVA = 0x7350
LEAKED = 24


def add(updater: Process, injected: int) -> None:
    """Gives the process its heap and the log of who allocated.

    Args:
        updater: the process
        injected: where the code in private memory is
    """
    program, kernel32, ntdll = (
        next(module for module in updater.modules if module.name == name)
        for name in ("updater.exe", "KERNEL32.DLL", "ntdll.dll")
    )
    ground = [kernel32.at("BaseThreadInitThunk") + 0x14, ntdll.at("RtlUserThreadStart") + 0x21]
    log = HeapLog("x64", address=LOG, zone=0x1D28D100040, lookaside=0x1D28D090000)
    leak = log.log([_at(program, "load_settings", 0x47), _at(program, "main", 0x31), *ground])
    hidden = log.log([injected + 0x2C4, injected + 0x11, *ground])
    done = log.log([_at(program, "open_store", 0x22), _at(program, "main", 0x31), *ground])
    heap = NtHeap(HEAP, heap_layouts.LAYOUTS["6.2-x64"], pages=64, segment_creator=0)
    for number in range(LEAKED):
        heap.extended(0x1000, leak)
        if number % 8 == 0:
            heap.extended(0x40, done)
    for size in (0x8000, 0x2200):
        heap.extended(size, hidden)
    heap.plain(0x30)
    for address, data in [*heap.regions(), *log.regions().items()]:
        updater.region(address, data)
    updater.space.write_int(ntdll.base + LOG_POINTER_RVA, log.address)
    heaplist.put(updater, updater, 8, [HEAP], LIST)


def _at(module: Module, name: str, offset: int) -> int:
    return module.at(name) + offset
