# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory regions of a process of an image in the form of VirtualQuery, as far as the image has them.

A VAD is the range of an allocation; the page tables show which of its pages are committed, and whether code
can run there. A page in the
image is committed. A page not in the image may be committed and paged out, or was never touched: it is shown
as reserved, and `Absence` counts it. Free and reserved ranges have the values that Windows returns for them.

Source of the constants: winnt.h (PAGE_*, MEM_*).
"""

from __future__ import annotations

import itertools
from typing import Iterator, Sequence

from ..memory.decode.records import NamedTuple
from ..process.regions import Region
from .decode.memory import MAX_RANGES, MemoryInfo
from .presentprotection import PresentProtection
from .regions import FREE, PAGES, TYPE_IMAGE, TYPE_MAPPED
from .resident import ResidentMemory

_COMMIT, _RESERVE, _PRIVATE = 0x1000, 0x2000, 0x20000
_NO_ACCESS = 1
_MODIFIERS = (0, 0x200, 0x100, 0x400)
"""PAGE_NOCACHE, PAGE_GUARD and PAGE_WRITECOMBINE by the upper 2 bits of VadFlags.Protection."""


class Absence(NamedTuple):
    """A region not wholly in the image: its range, and the number of missing bytes."""

    start: int
    end: int
    missing: int


class RegionRecords:
    """Makes the regions of a dump.

    Attributes:
        absences: the VADs that are not wholly in the image
        cut: whether there are more regions than a dump may have
    """

    def __init__(
        self, regions: Sequence[Region], memory: ResidentMemory, present: PresentProtection, end: int
    ) -> None:
        self._regions, self._memory, self._present, self._end = regions, memory, present, end
        self.absences = [
            Absence(region.start, region.end, missing)
            for region in regions
            for missing in (self._missing(region),)
            if missing
        ]
        self.cut = False

    def _missing(self, region: Region) -> int:
        there = sum(high - low for low, high in self._memory.within(region.start, region.end))
        return region.end - region.start - there

    def outside(self) -> int:
        """Returns the number of resident bytes outside all VADs."""
        inside = sum(region.end - region.start for region in self._apart()) - sum(
            absence.missing for absence in self.absences
        )
        return self._memory.size - inside

    def _apart(self) -> Iterator[Region]:
        """Yields the regions, without the parts that an earlier region covers."""
        position = 0
        for region in self._regions:
            if region.end > position:
                yield region._replace(start=max(region.start, position))
                position = region.end

    def infos(self) -> Iterator[MemoryInfo]:
        """Yields all regions from address 0 on; what is between the VADs and not resident is free."""
        position = count = 0
        for region in self._apart():
            for info in itertools.chain(self._between(position, region.start), self._region(region)):
                count += 1
                yield info
            position = region.end
            # Near the limit a region is yielded whole.
            self.cut = self.cut or 2 * count >= MAX_RANGES
        yield from self._between(position, self._end)

    def _between(self, start: int, end: int) -> Iterator[MemoryInfo]:
        """Yields the regions of a range in which no VAD is.

        Windows maps some pages there itself, such as KUSER_SHARED_DATA in old versions, and a hidden
        allocation has no VAD either. Each range of resident memory begins a region, as in dumps of Windows.
        """
        position = start
        for low, high in iter(()) if self.cut else self._memory.within(start, end):
            if position < low:
                yield MemoryInfo(position, 0, 0, low - position, FREE, _NO_ACCESS, 0)
            for first, last, now in self._present.runs(low, high, None):
                yield MemoryInfo(first, low, PAGES[now], last - first, _COMMIT, PAGES[now], _PRIVATE)
            position = high
        if position < end:
            yield MemoryInfo(position, 0, 0, end - position, FREE, _NO_ACCESS, 0)

    def _region(self, region: Region) -> Iterator[MemoryInfo]:
        kind = TYPE_IMAGE if region.image else TYPE_MAPPED if region.control_area else _PRIVATE
        protection = region.protection or 0
        low, modifier = protection & 7, _MODIFIERS[protection >> 3 & 3]
        protect = PAGES[low] | (modifier if low else 0)
        base, position = region.start, region.start
        runs = iter(()) if self.cut else self._memory.within(region.start, region.end)
        for start, end in runs:
            if position < start:
                yield MemoryInfo(position, base, protect, start - position, _RESERVE, 0, kind)
            for first, last, now in self._present.runs(start, end, low):
                present = PAGES[now] | (modifier if now else 0)
                yield MemoryInfo(first, base, protect, last - first, _COMMIT, present, kind)
            position = end
        if position < region.end:
            yield MemoryInfo(position, base, protect, region.end - position, _RESERVE, 0, kind)
