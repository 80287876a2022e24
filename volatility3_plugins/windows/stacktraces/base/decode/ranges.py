# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Ranges of addresses: overlapping ones are made disjoint, and a byte is claimed by one structure only."""

from __future__ import annotations

import bisect
import heapq
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

from .pagetable import PAGE_SIZE

Content = TypeVar("Content")
Other = TypeVar("Other")


def flatten(spans: Sequence[Tuple[int, int, Content]]) -> List[Tuple[int, int, Content]]:
    """Makes (start, end, content) spans disjoint. Where some overlap, the one given first stays.

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
    """Yields the disjoint pieces of two lists of disjoint, ascending spans, with what each list has there."""
    borders = sorted({border for start, end, _ in (*first, *second) for border in (start, end)})
    left = right = 0
    for start, end in zip(borders, borders[1:]):
        while left < len(first) and first[left][1] <= start:
            left += 1
        while right < len(second) and second[right][1] <= start:
            right += 1
        ours = first[left][2] if left < len(first) and first[left][0] <= start else None
        theirs = second[right][2] if right < len(second) and second[right][0] <= start else None
        if ours is not None or theirs is not None:
            yield start, end, ours, theirs


class Claims:
    """Ranges of addresses that are taken.

    They are kept by page, so that the time for a claim depends on its length only, not on earlier claims.
    """

    def __init__(self) -> None:
        self._pages: Dict[int, List[Tuple[int, int]]] = {}

    def claim(self, start: int, end: int) -> int:
        """Takes a range up to where the next one begins.

        Args:
            start: first address
            end: the address behind the last one

        Returns:
            The end of the part that was free and is now taken; `start` if the first byte was taken before.
        """
        position = start
        while position < end:
            stop = min(end, position - position % PAGE_SIZE + PAGE_SIZE)
            limit = self._claim(position, stop)
            if limit < stop:
                return limit
            position = stop
        return position

    def _claim(self, start: int, end: int) -> int:
        """Takes what is free of a range within one page."""
        taken = self._pages.setdefault(start // PAGE_SIZE, [])
        place = bisect.bisect_right(taken, (start, end))
        if place and taken[place - 1][1] > start:
            return start
        if place < len(taken):
            end = min(end, taken[place][0])
        if start < end:
            taken.insert(place, (start, end))
        return end
