# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory of a process as the decoders of its heaps read it: values here and there, and whole ranges."""

from __future__ import annotations

import bisect
from typing import Iterable, Iterator, List, Optional, Tuple

from ...base.decode.extents import Extents
from ...base.decode.reading import CHUNK, Chunks, Reader

PAGE = 0x1000


class HeapMemory:
    """Memory that has holes.

    Args:
        reader: reads what is present of a range
        ranges: (start, end) of what may be present, such as the process's VADs: nothing else is read,
            whatever a structure claims
        pointer_size: 4 or 8
    """

    def __init__(self, reader: Reader, ranges: Iterable[Tuple[int, int]], pointer_size: int) -> None:
        self.pointer_size = pointer_size
        self._chunks = Chunks(reader)
        self._ranges = _join(ranges)
        self._starts = [start for start, _ in self._ranges]
        self._start, self._view = 0, memoryview(b"")

    @classmethod
    def over(cls, extents: Extents, pointer_size: int) -> HeapMemory:
        """Returns memory that is held already."""
        runs = [(start, start + len(data)) for start, data in extents.runs]
        return cls(lambda start, length: _cut(extents, start, length), runs, pointer_size)

    def read(self, address: int, length: int) -> Optional[memoryview]:
        """Returns length bytes (at most 64 KB) at an address, or None unless all are present."""
        offset = address - self._start
        if offset >= 0 and offset + length <= len(self._view):
            return self._view[offset : offset + length]
        position = bisect.bisect_right(self._starts, address) - 1
        if position < 0 or address + length > self._ranges[position][1]:
            return None
        self._look_at(address, *self._ranges[position])
        return self._chunks.read(address, length)

    def number(self, address: int, size: int) -> Optional[int]:
        """Returns an unsigned little-endian number of size bytes, or None when it is not present."""
        data = self.read(address, size)
        return None if data is None else int.from_bytes(data, "little")

    def pointer(self, address: int) -> Optional[int]:
        """Returns the pointer stored at an address, or None when it is not present."""
        return self.number(address, self.pointer_size)

    def links(self, address: int) -> Optional[Tuple[int, int]]:
        """Returns Flink and Blink of the _LIST_ENTRY at an address, or None when it is not present."""
        data = self.read(address, 2 * self.pointer_size)
        if data is None:
            return None
        half = self.pointer_size
        return int.from_bytes(data[:half], "little"), int.from_bytes(data[half:], "little")

    def _look_at(self, address: int, low: int, high: int) -> None:
        """Keeps what surrounds an address at hand: blocks lie side by side."""
        for size in (CHUNK, PAGE):
            start = address - address % size
            view = self._chunks.read(start, size) if low <= start and start + size <= high else None
            if view is not None:
                self._start, self._view = start, view
                return

    def pages(self, start: int, end: int) -> Iterator[Tuple[int, memoryview]]:
        """Yields (address, bytes) of what is present of a range, page by page; no header crosses a page."""
        position = max(bisect.bisect_right(self._starts, start) - 1, 0)
        for low, high in self._ranges[position:]:
            if low >= end:
                return
            low, high = max(low, start), min(high, end)
            while low < high:
                limit = min(low - low % PAGE + PAGE, high)
                data = self.read(low, limit - low)
                if data is not None:
                    yield low, data
                low = limit


def _cut(extents: Extents, start: int, length: int) -> Extents:
    pieces: List[Tuple[int, bytes]] = []
    for low, high in extents.covered(start, start + length):
        view = extents.read(low, high - low)
        if view is not None:
            pieces.append((low, bytes(view)))
    return Extents(pieces)


def _join(ranges: Iterable[Tuple[int, int]]) -> List[Tuple[int, int]]:
    joined: List[Tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
