# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Crash dumps of a kernel that list ranges of pages: complete dumps (type 1) and live dumps (8, 9 and 10).

The pages of all ranges follow each other in the file, in the order of the list. A complete dump has its list
in the header (PhysicalMemoryBlockBuffer), a live dump behind the header (RDMP).

Source: `crash.json` and `crash64.json` of Volatility (type 1); the structures of kdmp-parser, which reads
live dumps (RDMP_HEADER64, KERNEL_RDMP_HEADER64, FULL_RDMP_HEADER64, PFN_RANGE). Live dumps were read from
forged dumps only; kdmp-parser reads the same pages there.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Iterable, List, Sequence

from ...memory.decode.memory import ReadFile
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.ranges import flatten
from ...memory.decode.records import NamedTuple
from .bitmap import MAX_RUNS, Bitmap, BitmapError, PageRun, Pages
from .kernelheader import FILLERS

LIVE = (8, 9, 10)
"""DumpType of live dumps: of the kernel, of the kernel and the processes, complete."""

_LIVE = struct.Struct("<I4s4s4xQQ")
_BEFORE_RANGES = _LIVE.size + 16
"""Bytes before the ranges; kdmp-parser does not use the last 16 of a partial dump."""
_MARKER, _SIGNATURES = 0x40, (b"RDMP", b"DUMP")
_RANGE = struct.Struct("<QQ")

_BLOCK_SIZE = 700
"""Size of PhysicalMemoryBlockBuffer in bytes (Volatility's `crash.json` and `crash64.json`)."""
_BLOCKS = {
    True: (0x88, struct.Struct("<I4xQ"), struct.Struct("<QQ")),
    False: (0x64, struct.Struct("<II"), struct.Struct("<II")),
}
"""Offset of the block, the form of its NumberOfRuns and NumberOfPages, and of a run; by whether the header is
DUMP_HEADER64."""


class PageBlock(NamedTuple):
    """PhysicalMemoryBlockBuffer of a complete dump.

    Attributes:
        listed: the runs before the first that Windows did not write
        room: number of runs that the header has room for
    """

    NumberOfRuns: int
    NumberOfPages: int
    listed: List[Pages]
    room: int

    @property
    def consistent(self) -> bool:
        """Whether there are runs, as Windows writes them: ascending, with as many pages as NumberOfPages."""
        named = self.listed[: self.NumberOfRuns]
        ends = [0, *(first + count for first, count in named)]
        ascending = all(end <= first for end, (first, _) in zip(ends, named))
        return 0 < len(named) == self.NumberOfRuns and ascending and _count(named) == self.NumberOfPages


def read_block(read: ReadFile, wide: bool) -> PageBlock:
    """Reads the list of a complete dump; a file that ends before it has none. `wide` says whether the header
    is DUMP_HEADER64."""
    place, head, run = _BLOCKS[wide]
    data = read(place, _BLOCK_SIZE).ljust(_BLOCK_SIZE, b"\0")
    room = (_BLOCK_SIZE - head.size) // run.size
    listed: List[Pages] = []
    runs, pages = head.unpack(data[: head.size])
    for first, count in run.iter_unpack(data[head.size : head.size + room * run.size]):
        if (not count and len(listed) >= runs) or first in FILLERS or count in FILLERS:
            break
        listed.append((first, count))
    return PageBlock(runs, pages, listed, room)


def read_live(read: ReadFile, size: int, start: int) -> Bitmap:
    """Reads the list of a live dump. It never returns more pages than the file has room for. Raises
    BitmapError if there is no list.

    Args:
        size: size of the file
        start: size of the header
    """
    data = read(start, _LIVE.size)
    if len(data) < _LIVE.size:
        raise BitmapError("The dump ends before its list of pages (RDMP)")
    marker, *signatures, metadata, first_page = _LIVE.unpack(data)
    begin = start + _BEFORE_RANGES
    if marker != _MARKER or tuple(signatures) != _SIGNATURES:
        raise BitmapError("Behind the header there is no list of pages (RDMP, DUMP)")
    if not begin < first_page < size:
        raise BitmapError(f"FirstPageOffset of the list of pages is {first_page:#x}: no page lies there")
    claimed = min(first_page - begin, metadata) // _RANGE.size
    data = read(begin, min(claimed, MAX_RUNS) * _RANGE.size)
    ranges: List[Pages] = []
    for first, count in _RANGE.iter_unpack(data):
        if not first and not count:
            return placed(ranges, first_page, size)
        ranges.append((first, count))
    return placed(ranges, first_page, size)._replace(cut=(claimed - len(ranges)) * _RANGE.size)


def believed_pages(block: PageBlock, offset: int, size: int) -> Bitmap:
    """Returns the pages of a complete dump whose list contradicts itself; see `placed`.

    The runs that count are the first that together have NumberOfPages. If none have, these are NumberOfRuns
    runs, or all that are listed if the header has no room for so many.
    """
    sums = [*accumulate((count for _, count in block.listed), initial=0)]
    runs = block.NumberOfRuns if block.NumberOfRuns <= block.room else len(block.listed)
    if block.NumberOfPages in sums[1:]:
        runs = sums.index(block.NumberOfPages)
    return placed(block.listed[:runs], offset, size)


def placed(ranges: Sequence[Pages], offset: int, size: int) -> Bitmap:
    """Returns the pages of ranges whose first page lies at `offset` of a file of `size` bytes, sorted by
    address; of ranges that share pages the first counts."""
    present = max(size - offset, 0) // PAGE_SIZE
    starts = accumulate((count for _, count in ranges), initial=0)
    spans = [
        (first, first + min(count, present - before), before - first)
        for before, (first, count) in zip(starts, ranges)
        if before < present
    ]
    runs = [
        PageRun(low * PAGE_SIZE, offset + (low + shift) * PAGE_SIZE, (high - low) * PAGE_SIZE)
        for low, high, shift in flatten(spans)
    ]
    return Bitmap(runs, max(_count(ranges) - present, 0))


def _count(ranges: Iterable[Pages]) -> int:
    return sum(count for _, count in ranges)
