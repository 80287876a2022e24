# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pages of a module's file, relocated to the module's address: fills gaps, finds differences."""

from __future__ import annotations

from typing import Callable, Iterator, List, NamedTuple, Tuple

from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import Extents
from .decode.peimage import PeImage

Load = Callable[[int, int], Extents]
"""(RVA, length) -> the present parts of the image in memory."""


class FilePages(NamedTuple):
    """A module's file, and the canonical address of the module in memory."""

    file: PeImage
    base: int

    def fill(self, found: Extents, rva: int, length: int) -> Extents:
        """Returns the parts of a range that memory has, with the file's bytes in the gaps.

        Args:
            found: the present parts of the range, by RVA
            rva: start of the range
            length: bytes
        """
        gaps = list(_gaps(found, rva, rva + length))
        if not gaps:
            return found
        runs = [run for low, high in gaps for run in self._runs(low, high)]
        return Extents([*found.runs, *runs])

    def differences(self, load: Load, rva: int) -> List[Tuple[int, int]]:
        """Returns the ranges of a page in which memory and file differ; (start, end) by RVA.

        Args:
            load: reads memory, without the file's bytes
            rva: RVA of the page
        """
        page = self.file.page(rva, self.base)
        if page is None:
            return []
        extents = load(rva, PAGE_SIZE)
        changed: List[Tuple[int, int]] = []
        for low, high in page.compared:
            for start, end in extents.covered(rva + low, rva + high):
                in_memory = extents.read(start, end - start)
                in_file = page.data[start - rva : end - rva]
                if in_memory is not None and in_memory != in_file:
                    changed += _unequal(bytes(in_memory), in_file, start)
        return changed

    def compares(self, rva: int) -> bool:
        """Returns whether the file has bytes of a page with which memory can be compared."""
        page = self.file.page(rva, self.base)
        return page is not None and bool(page.compared)

    def _runs(self, low: int, high: int) -> Iterator[Tuple[int, bytes]]:
        for rva in range(low - low % PAGE_SIZE, high, PAGE_SIZE):
            page = self.file.page(rva, self.base)
            for first, last in () if page is None else page.known:
                start, end = max(rva + first, low), min(rva + last, high)
                if page is not None and start < end:
                    yield start, page.data[start - rva : end - rva]


def _gaps(extents: Extents, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Yields the parts of a range that are not present."""
    for low, high in extents.covered(start, end):
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
