# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pages of a module's file, moved to where the module lies: what memory lacks, what it has otherwise."""

from __future__ import annotations

from typing import Callable, Iterator, List, NamedTuple, Tuple

from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import Extents
from .decode.peimage import PeImage

Load = Callable[[int, int], Extents]
"""(RVA, length) -> the present parts of the image there, as memory has them."""


class FilePages(NamedTuple):
    """A module's file, and the canonical address at which memory has the module."""

    file: PeImage
    base: int

    def fill(self, found: Extents, rva: int, length: int) -> Extents:
        """Returns what memory has of a range, and in the gaps what the file has.

        Args:
            found: the present parts of the range, by RVA
            rva: start of the range
            length: in bytes
        """
        gaps = list(_gaps(found, rva, rva + length))
        if not gaps:
            return found
        runs = [run for low, high in gaps for run in self._runs(low, high)]
        return Extents([*found.runs, *runs])

    def differences(self, load: Load, rva: int) -> List[Tuple[int, int]]:
        """Returns the ranges of a page that memory has otherwise than the file; (start, end) by RVA.

        Args:
            load: reads memory, without what the file would add
            rva: of the page
        """
        page = self.file.page(rva, self.base)
        if page is None:
            return []
        found = load(rva, PAGE_SIZE)
        changed: List[Tuple[int, int]] = []
        for low, high in page.compared:
            for start, end in found.covered(rva + low, rva + high):
                mine = found.read(start, end - start)
                theirs = page.data[start - rva : end - rva]
                if mine is not None and mine != theirs:
                    changed += _unequal(bytes(mine), theirs, start)
        return changed

    def compares(self, rva: int) -> bool:
        """Returns whether the file has anything of a page with which memory can be compared."""
        page = self.file.page(rva, self.base)
        return page is not None and bool(page.compared)

    def _runs(self, low: int, high: int) -> Iterator[Tuple[int, bytes]]:
        for rva in range(low - low % PAGE_SIZE, high, PAGE_SIZE):
            page = self.file.page(rva, self.base)
            for first, last in () if page is None else page.known:
                start, end = max(rva + first, low), min(rva + last, high)
                if page is not None and start < end:
                    yield start, page.data[start - rva : end - rva]


def _gaps(found: Extents, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Yields the sub-ranges of a range that are not present."""
    for low, high in found.covered(start, end):
        if start < low:
            yield start, low
        start = high
    if start < end:
        yield start, end


def _unequal(one: bytes, other: bytes, start: int) -> Iterator[Tuple[int, int]]:
    """Yields the ranges in which two pieces of equal length differ."""
    first = -1
    for number, (mine, theirs) in enumerate(zip(one, other)):
        if mine != theirs and first < 0:
            first = number
        elif mine == theirs and first >= 0:
            yield start + first, start + number
            first = -1
    if first >= 0:
        yield start + first, start + len(one)
