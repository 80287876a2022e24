# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Sparse memory: what could be read of a range of addresses, and what could not."""

from __future__ import annotations

import bisect
from typing import Iterable, Iterator, List, Optional, Tuple


class Extents:
    """Immutable bytes by address, with holes.

    The caller chooses the form of the addresses; in this package all are canonical virtual addresses.
    Runs are sorted and disjoint; runs that touch are one run, so a structure that crosses a page border
    is read in one piece. Of two runs that overlap, the one that was given first keeps the common bytes.
    """

    __slots__ = ("_starts", "runs")

    def __init__(self, runs: Iterable[Tuple[int, bytes]]) -> None:
        self.runs: Tuple[Tuple[int, bytes], ...] = tuple(_merge(runs))
        self._starts = [start for start, _ in self.runs]

    def run_at(self, address: int) -> Optional[Tuple[int, bytes]]:
        """Returns the run (start, data) that holds the byte at an address, or None."""
        position = bisect.bisect_right(self._starts, address) - 1
        if position < 0:
            return None
        start, data = self.runs[position]
        return (start, data) if address < start + len(data) else None

    def read(self, address: int, length: int) -> Optional[memoryview]:
        """Returns length bytes at an address without copying them, or None unless all are present."""
        run = self.run_at(address)
        if run is None or length < 0:
            return None
        start, data = run
        offset = address - start
        return memoryview(data)[offset : offset + length] if offset + length <= len(data) else None

    def covered(self, start: int, end: int) -> Iterator[Tuple[int, int]]:
        """Yields the sub-ranges (start, end) of a range that are present, in order."""
        position = max(bisect.bisect_right(self._starts, start) - 1, 0)
        for run_start, data in self.runs[position:]:
            if run_start >= end:
                return
            low, high = max(run_start, start), min(run_start + len(data), end)
            if low < high:
                yield low, high

    def part(self, start: int, length: int) -> Extents:
        """Returns the present parts of a range."""
        ranges = self.covered(start, start + length)
        return Extents((low, bytes(self.read(low, high - low) or b"")) for low, high in ranges)

    def missing(self, start: int, end: int) -> int:
        """Returns how many bytes of a range are not present."""
        present = sum(high - low for low, high in self.covered(start, end))
        return max(end - start, 0) - present


def _merge(runs: Iterable[Tuple[int, bytes]]) -> Iterator[Tuple[int, bytes]]:
    """Sorts runs, cuts overlaps and joins what touches."""
    first, end = 0, 0
    pieces: List[bytes] = []
    for start, data in sorted(runs, key=lambda run: run[0]):
        if pieces and start <= end:
            fresh = data[end - start :]
        else:
            if pieces:
                yield first, b"".join(pieces)
            first, end, pieces, fresh = start, start, [], data
        if fresh:
            pieces.append(bytes(fresh))
            end += len(fresh)
    if pieces:
        yield first, b"".join(pieces)
