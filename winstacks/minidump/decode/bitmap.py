# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Bitmap dumps of a kernel: the physical pages in the file, and their offsets.

Dumps of types 5 (complete), 6 (kernel) and 7 (automatic and active) have a _SUMMARY_DUMP after the header: a
bit for each physical page, and from HeaderSize on the pages whose bits are set, in order.

Source: _SUMMARY_DUMP of Volatility's `crash_common.json` (type 5). That types 6 and 7 have the same bitmap is
described (Microsoft, "Automatic Memory Dump"; kdmp-parser, of type 6), and was read from forged dumps only.
"""

from __future__ import annotations

import re
import struct
from typing import Iterator, List, Optional, Tuple

from ...memory.decode.memory import ReadFile
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple

TYPES = (5, 6, 7)
"""DumpType of bitmap dumps: complete, kernel, automatic and active."""

_SIGNATURES = (b"SDMP", b"FDMP")
_VALID = b"DUMP"
_SUMMARY = struct.Struct("<4s4s24xQQQ")
_STRETCH = re.compile(rb"\xff+|[\x01-\xfe]", re.DOTALL)
_BITS = 8
_CHUNK = 1 << 20
_NO_BITS = bytes(_CHUNK)

MAX_BITMAP = 1 << 29
"""Greatest number of bytes of a bitmap that are read: 16 TB of memory."""

MAX_RUNS = 1 << 20
"""Greatest number of runs of pages that are kept. A dump of a machine of 16 GB has some ten thousand."""

Pages = Tuple[int, int]
"""Number of the first page, and number of pages."""


class BitmapError(ValueError):
    """The file has no readable bitmap; the text is a sentence for users."""


class PageRun(NamedTuple):
    """Consecutive pages, both in memory and in the file; all numbers are bytes."""

    address: int
    offset: int
    length: int


class Bitmap(NamedTuple):
    """The content of a bitmap dump.

    Attributes:
        lost: number of pages that the bitmap has beyond the end of the file
        left_out: number of pages in the file beyond MAX_RUNS; 0 with a bitmap of usual size
        cut: number of bytes of the bitmap beyond MAX_BITMAP
        stated: number of pages that the file itself states; None if it states none
    """

    runs: List[PageRun]
    lost: int
    left_out: int = 0
    cut: int = 0
    stated: Optional[int] = None

    @property
    def counted(self) -> int:
        """Number of all pages, wherever they are."""
        return sum(run.length for run in self.runs) // PAGE_SIZE + self.lost + self.left_out


def read_bitmap(read: ReadFile, size: int, start: int) -> Bitmap:
    """Reads the bitmap of a dump. It never returns more pages than the file has room for. Raises BitmapError
    if there is no bitmap."""
    data = read(start, _SUMMARY.size)
    if len(data) < _SUMMARY.size:
        raise BitmapError("The dump ends before its bitmap (_SUMMARY_DUMP)")
    signature, valid, header_size, stated, bits = _SUMMARY.unpack(data)
    first = start + _SUMMARY.size
    if signature not in _SIGNATURES or valid != _VALID:
        raise BitmapError("Behind the header there is no bitmap (_SUMMARY_DUMP has no SDMP or FDMP, DUMP)")
    if not first < header_size < size:
        raise BitmapError(f"HeaderSize of the bitmap is {header_size:#x}: no page lies there in the file")
    claimed = min(-(-bits // _BITS), header_size - first)
    room = min(claimed, MAX_BITMAP)
    present, offset, known = (size - header_size) // PAGE_SIZE, header_size, 0
    runs: List[PageRun] = []
    for number, count in _joined(_stretches(read, first, room)):
        known += count
        complete = min(count, present)
        present -= complete
        if complete:
            runs.append(PageRun(number * PAGE_SIZE, offset, complete * PAGE_SIZE))
            offset += complete * PAGE_SIZE
        if not present or len(runs) == MAX_RUNS:
            # Pages that no run can have are only counted.
            kept, all_pages = known - (count - complete), _count(read, first, room)
            left_out = min(present, all_pages - kept)
            return Bitmap(runs, all_pages - kept - left_out, left_out, claimed - room, stated)
    return Bitmap(runs, 0, 0, claimed - room, stated)


def _count(read: ReadFile, start: int, length: int) -> int:
    """Returns the number of set bits of a bitmap."""
    chunks = (data for _, data in _chunks(read, start, length))
    return sum(bin(int.from_bytes(data, "little")).count("1") for data in chunks)


def _chunks(read: ReadFile, start: int, length: int) -> Iterator[Tuple[int, bytes]]:
    """Yields the parts of a bitmap that have set bits, with their offsets; the file may be sparse."""
    for place in range(0, length, _CHUNK):
        data = read(start + place, min(_CHUNK, length - place))
        if data != _NO_BITS[: len(data)]:
            yield place, data


def _stretches(read: ReadFile, start: int, length: int) -> Iterator[Pages]:
    """Yields the set bits of a bitmap as runs, possibly adjacent."""
    for place, data in _chunks(read, start, length):
        for match in _STRETCH.finditer(data):
            low = (place + match.start()) * _BITS
            if data[match.start()] == 0xFF:
                yield low, (match.end() - match.start()) * _BITS
            else:
                yield from ((low + bit, 1) for bit in range(_BITS) if data[match.start()] >> bit & 1)


def _joined(stretches: Iterator[Pages]) -> Iterator[Pages]:
    """Yields runs after merging adjacent ones."""
    first, count = 0, 0
    for number, more in stretches:
        if count and number == first + count:
            count += more
            continue
        if count:
            yield first, count
        first, count = number, more
    if count:
        yield first, count
