# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Ranges of addresses: makes overlapping ranges disjoint, and lets one structure only claim a byte.

`Extents` is sparse memory: the readable bytes of a range of addresses, with holes where bytes are missing.
"""

from __future__ import annotations

import bisect
import heapq
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

from .pagetable import PAGE_SIZE


class Extents:
    """Immutable bytes by address, with holes.

    The caller chooses the form of the addresses; in this package all are canonical virtual addresses.
    Runs are sorted and disjoint; runs that touch are one run, so a structure that crosses a page border
    is read in one piece. If two runs overlap, the run given first keeps the common bytes.
    """

    __slots__ = ("_starts", "runs")

    def __init__(self, runs: Iterable[Tuple[int, bytes]]) -> None:
        self.runs: Tuple[Tuple[int, bytes], ...] = tuple(runs)
        if len(self.runs) == 1 and self.runs[0][1]:
            self._starts = [self.runs[0][0]]
            return
        self.runs = tuple(_merge(self.runs))
        self._starts = [start for start, _ in self.runs]

    def run_at(self, address: int) -> Optional[Tuple[int, bytes]]:
        """Returns the run (start, data) that holds the byte at an address, or None."""
        position = bisect.bisect_right(self._starts, address) - 1
        if position < 0:
            return None
        start, data = self.runs[position]
        return (start, data) if address < start + len(data) else None

    def read(self, address: int, length: int) -> Optional[memoryview]:
        """Returns `length` bytes at an address without copying them, or None unless all are present."""
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
    """Sorts runs, cuts overlaps and joins touching runs."""
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


Span = TypeVar("Span", bound=Tuple[Any, ...])


def span_at(spans: Sequence[Span], address: int) -> Optional[Span]:
    """Returns the span (start, end and more) that holds an address, None if none does; `spans` ascend."""
    place = bisect.bisect_left(spans, (address + 1,)) - 1
    return spans[place] if place >= 0 and address < spans[place][1] else None


Content = TypeVar("Content")
Other = TypeVar("Other")


def flatten(spans: Sequence[Tuple[int, int, Content]]) -> List[Tuple[int, int, Content]]:
    """Makes (start, end, content) spans disjoint. If spans overlap, the first given keeps the common part.

    Ends are exclusive; empty spans are left out. The time grows with n log n, however the spans overlap.
    """
    waiting = sorted((start, rank) for rank, (start, end, _) in enumerate(spans) if start < end)
    waiting.reverse()
    active: List[int] = []
    result: List[Tuple[int, int, Content]] = []
    position = 0
    while waiting or active:
        if not active:
            position = waiting[-1][0]
        while waiting and waiting[-1][0] <= position:
            heapq.heappush(active, waiting.pop()[1])
        while active and spans[active[0]][1] <= position:
            heapq.heappop(active)
        if not active:
            continue
        _, end, content = spans[active[0]]
        if waiting:
            end = min(end, waiting[-1][0])
        if result and result[-1][1] == position and result[-1][2] is content:
            result[-1] = (result[-1][0], end, content)
        else:
            result.append((position, end, content))
        position = end
    return result


def combine(
    first: Sequence[Tuple[int, int, Content]], second: Sequence[Tuple[int, int, Other]]
) -> Iterator[Tuple[int, int, Optional[Content], Optional[Other]]]:
    """Yields the pieces of two lists of disjoint, ascending spans, with the content of each list there."""
    borders = sorted({border for start, end, _ in (*first, *second) for border in (start, end)})
    left = right = 0
    for start, end in zip(borders, borders[1:]):
        while left < len(first) and first[left][1] <= start:
            left += 1
        while right < len(second) and second[right][1] <= start:
            right += 1
        first_content = first[left][2] if left < len(first) and first[left][0] <= start else None
        second_content = second[right][2] if right < len(second) and second[right][0] <= start else None
        if first_content is not None or second_content is not None:
            yield start, end, first_content, second_content


class Claims:
    """Claims ranges of addresses.

    Ranges are kept by page, so that the time for a claim depends on its length only, not on earlier claims.
    """

    def __init__(self) -> None:
        self._pages: Dict[int, List[Tuple[int, int]]] = {}

    def claim(self, start: int, end: int) -> int:
        """Claims a range up to the start of the next claimed range. Returns the end of the part that is now
        claimed; `start` if the first byte was claimed before."""
        position = start
        while position < end:
            stop = min(end, position - position % PAGE_SIZE + PAGE_SIZE)
            limit = self._claim(position, stop)
            if limit < stop:
                return limit
            position = stop
        return position

    def _claim(self, start: int, end: int) -> int:
        """Claims the free beginning of a range within one page."""
        taken = self._pages.setdefault(start // PAGE_SIZE, [])
        place = bisect.bisect_right(taken, (start, end))
        if place and taken[place - 1][1] > start:
            return start
        if place < len(taken):
            end = min(end, taken[place][0])
        if start < end:
            taken.insert(place, (start, end))
        return end
