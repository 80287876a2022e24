# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Makes sure that no byte is decoded as part of two structures: whoever claims memory first has it."""

from __future__ import annotations

import bisect
from typing import Dict, List, Tuple

from .pagetable import PAGE_SIZE


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
