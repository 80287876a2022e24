# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged NT heaps for tests of the decoders: made, read back, and with holes."""

from __future__ import annotations

from typing import Dict, Iterable, List, Tuple

from tests.forge import heap_layouts, heaps
from tests.support import heaptypes
from winstacks.heaps.decode.block import Block
from winstacks.heaps.decode.blockstack import Traces
from winstacks.heaps.decode.ntblocks import LostBlocks, heap_blocks
from winstacks.heaps.decode.ntheap import Heap, read_heap
from winstacks.memory.decode.memory import Memory
from winstacks.memory.decode.ranges import Extents
from winstacks.tracedb.decode.recorded import RecordedStack

BASE = 0x50000
LOG = 0x2000000
MODERN = ["6.0-x64", "6.0-x86", "6.2-x64", "6.2-x86"]
OLD = ["5.1-x86", "5.2-x64"]

Runs = List[Tuple[int, bytes]]


class Records:
    """Records of a heap's log, as many as asked for, each with other frames."""

    def __init__(self, form: str) -> None:
        self.pointer = heaptypes.pointer_size(form)
        self.data = bytearray()
        self.frames: Dict[int, Tuple[int, ...]] = {}

    def add(self, depth: int = 3) -> int:
        address = LOG + len(self.data)
        frames = [0x10000000 + 16 * len(self.data) + number for number in range(depth)]
        self.data += heaps.record(frames, self.pointer)
        self.frames[address] = tuple(frames)
        return address

    def trace(self, address: int) -> RecordedStack:
        return RecordedStack("log", address, 0, self.frames[address])

    def runs(self) -> Runs:
        return [(LOG, bytes(self.data))]


def new_heap(form: str, base: int = BASE, **options: int) -> heaps.NtHeap:
    return heaps.NtHeap(base, heap_layouts.LAYOUTS[form], **options)


def open_heap(form: str, runs: Iterable[Tuple[int, bytes]], candidates: List[int]) -> Tuple[Memory, Heap]:
    memory = Memory.over(Extents(runs), heaptypes.pointer_size(form))
    heap = read_heap(memory, BASE, heaptypes.layouts(form[-3:]).nt, candidates)
    assert heap is not None
    return memory, heap


def read(
    form: str, runs: Iterable[Tuple[int, bytes]], *candidates: int
) -> Tuple[List[Block], List[LostBlocks], Heap]:
    memory, heap = open_heap(form, runs, list(candidates))
    arch = form[-3:]
    stored = [RecordedStack("std", 0x900000, 7, (1, 2)), RecordedStack("std", 0x900100, 9, (3, 4))]
    traces = Traces(memory, heaptypes.LOG[arch], heaptypes.ENTRY[arch], lambda: stored)
    items = list(heap_blocks(memory, heap, traces, [heaptypes.page_heap(arch)]))
    blocks = [block for block in items if isinstance(block, Block)]
    return blocks, [block for block in items if isinstance(block, LostBlocks)], heap


def traced(blocks: Iterable[Block]) -> Dict[int, Tuple[int, RecordedStack, str]]:
    return {block.user: (block.size, block.trace, block.form) for block in blocks if block.trace is not None}


def without(runs: Runs, start: int, end: int) -> Runs:
    """Memory less a range."""
    kept = []
    for address, data in runs:
        kept.append((address, data[: max(start - address, 0)]))
        kept.append((max(end, address), data[max(end - address, 0) :]))
    return [(address, data) for address, data in kept if data]
