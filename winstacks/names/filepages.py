# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Fills gaps in a module's memory from its file, and finds differences between the two."""

from __future__ import annotations

from typing import Callable, Iterator, List, Tuple

from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import Extents
from ..memory.decode.records import NamedTuple
from .decode.peimage import PeImage

Load = Callable[[int, int], Extents]
"""Takes an RVA and a length; returns the present parts of the image in memory, by RVA."""


class FilePages(NamedTuple):
    """The pages of a module's file, relocated to the module's address in memory."""

    file: PeImage
    base: int

    def fill(self, found: Extents, rva: int, length: int) -> Extents:
        """Returns the present parts of a range, with the file's bytes in the gaps."""
        gaps = list(_gaps(found, rva, rva + length))
        if not gaps:
            return found
        runs = [run for low, high in gaps for run in self._runs(low, high)]
        return Extents([*found.runs, *runs])

    def differences(self, load: Load, rva: int) -> List[Tuple[int, int]]:
        """Returns (start, end) by RVA of the ranges of a page in which memory and file differ. `load` reads
        memory, without the file's bytes."""
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
        """Yields (RVA, bytes) of the parts of a range that the file determines."""
        for rva in range(low - low % PAGE_SIZE, high, PAGE_SIZE):
            page = self.file.page(rva, self.base)
            for first, last in () if page is None else page.known:
                start, end = max(rva + first, low), min(rva + last, high)
                if page is not None and start < end:
                    yield start, page.data[start - rva : end - rva]


def _gaps(extents: Extents, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Yields (start, end) of the parts of a range that are not present."""
    for low, high in extents.covered(start, end):
        if start < low:
            yield start, low
        start = high
    if start < end:
        yield start, end


def _unequal(in_memory: bytes, in_file: bytes, start: int) -> Iterator[Tuple[int, int]]:
    """Yields (start, end) of the ranges in which two pieces of equal length at an RVA differ."""
    first = -1
    for number, (memory_byte, file_byte) in enumerate(zip(in_memory, in_file)):
        if memory_byte != file_byte and first < 0:
            first = number
        elif memory_byte == file_byte and first >= 0:
            yield start + first, start + number
            first = -1
    if first >= 0:
        yield start + first, start + len(in_memory)
