# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The memory of a process in an image: the pages that its page tables map, and pages of image sections.

    memory = ResidentMemory(image, space, regions, user_end)
    for data in memory.content(): ...        # the bytes of all ranges, in order

A process of 60 GB has 15 million pages: only the bounds of ranges are kept, not data of single pages.
"""

from __future__ import annotations

import array
import bisect
from typing import Dict, Iterator, Sequence, Tuple

from volatility3.framework import exceptions
from volatility3.framework.layers import intel

from ..memory import bulk, pagetables
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.image import AddressSpace, Image
from ..process.regions import Region
from ..process.sections import ImageSections
from .decode.memory import MAX_RANGES

CHUNK = 0x100000
"""Number of bytes that are read and yielded at once."""

MOST_OF_THE_IMAGE = 4
"""Greatest ratio of a process's memory to the size of the image. Forged page tables map the same pages over
and over; Windows maps some a few times."""

_Bounds = Sequence[int]


class ResidentMemory:
    """The resident memory of a process. `space` is the native half of a process that has page tables.

    Attributes:
        ranges: start and size of each range, alternating; ascending and never adjacent
        from_sections: bytes that the process itself does not map and that come from image sections
        cut: the address from which a limit ended the listing; 0 without a cut
        unread: number of bytes that `content` could not read so far and returned as zeros
    """

    def __init__(self, image: Image, space: AddressSpace, regions: Sequence[Region], end: int) -> None:
        self._image, self._space, self._end = image, space, end
        self._layer = image.context.layers[space.layer_name]
        self._most = MOST_OF_THE_IMAGE * image.page_count * PAGE_SIZE
        self.cut = self.unread = self.from_sections = 0
        self._sections: Dict[int, Tuple[int, int]] = {}
        own = self._own()
        self._add_sections(own, regions)
        self.ranges = self._merged(own, sorted(self._sections))
        self.size = sum(self.ranges[1::2])
        self._places = self._sums()

    def _own(self) -> array.array[int]:
        """Returns the bounds of the mapped ranges in the page tables: start, end, start, end and so on."""
        found = array.array("Q")
        if not isinstance(self._layer, intel.Intel):
            return found
        context, layer, total = self._image.context, self._layer, 0
        for low, high in pagetables.PageTables(context, layer).leaves(0, self._end):
            for start, size, _, _ in pagetables.mapping(context, layer, low, high - low):
                total += size
                adjacent = bool(found) and found[-1] == start
                if total > self._most or (len(found) >= 2 * MAX_RANGES and not adjacent):
                    self.cut = start
                    return found
                _append(found, start, start + size)
        return found

    def _add_sections(self, own: _Bounds, regions: Sequence[Region]) -> None:
        """Finds the pages of images that only their sections have."""
        sections, layer = self._image.service(ImageSections), self._layer
        end = self.cut or self._end
        if not isinstance(layer, intel.Intel):
            return
        for region in regions:
            view = sections.section_of(region)
            high = min(region.end, end)
            if view is None or region.start >= high:
                continue
            for start, size, place, _ in view.mapping(
                self._image.context, layer, region.start, high - region.start
            ):
                if not covered(own, start) and len(self._sections) < MAX_RANGES:
                    self._sections[start] = size, place
                    self.from_sections += size

    def _merged(self, own: _Bounds, more: Sequence[int]) -> array.array[int]:
        """Returns start and size of the ranges of both kinds of memory merged."""
        found = array.array("Q")
        place = 0
        for start in more:
            while place < len(own) and own[place] < start:
                _append(found, own[place], own[place + 1])
                place += 2
            _append(found, start, start + self._sections[start][0])
        for number in range(place, len(own), 2):
            _append(found, own[number], own[number + 1])
        for number in range(0, len(found), 2):
            found[number + 1] -= found[number]
        if len(found) > 2 * MAX_RANGES:
            self.cut = found[2 * MAX_RANGES]
            del found[2 * MAX_RANGES :]
        return found

    def _sums(self) -> array.array[int]:
        sums, total = array.array("Q"), 0
        for size in self.ranges[1::2]:
            sums.append(total)
            total += size
        return sums

    def run_at(self, address: int) -> Tuple[int, int]:
        """Returns the rest of a range from an address on: number of bytes that follow from the address on
        without a gap (0: none), and the offset of the first in `content`."""
        number = bisect.bisect_right(_Starts(self.ranges), address) - 1
        if number < 0:
            return 0, 0
        start, size = self.ranges[2 * number], self.ranges[2 * number + 1]
        return max(start + size - address, 0), self._places[number] + address - start

    def within(self, start: int, end: int) -> Iterator[Tuple[int, int]]:
        """Yields (start, end) of the resident parts of an address range, in order."""
        number = max(bisect.bisect_right(_Starts(self.ranges), start) - 1, 0)
        while 2 * number < len(self.ranges):
            low, size = self.ranges[2 * number], self.ranges[2 * number + 1]
            if low >= end:
                return
            if low + size > start:
                yield max(low, start), min(low + size, end)
            number += 1

    def content(self) -> Iterator[bytes]:
        """Yields the bytes of all ranges in order, at most CHUNK at once."""
        for number in range(0, len(self.ranges), 2):
            start, size = self.ranges[number], self.ranges[number + 1]
            while size:
                length = min(size, CHUNK - start % CHUNK)
                yield self._read(start, length)
                start, size = start + length, size - length

    def _read(self, start: int, length: int) -> bytes:
        data = bytearray(length)
        found = bulk.read_extents(self._image.context, self._space.layer_name, start, length)
        missing = length
        for low, run in found.runs:
            data[low - start : low - start + len(run)] = run
            missing -= len(run)
        if missing:
            missing -= self._read_sections(data, start)
        self.unread += missing
        return bytes(data)

    def _read_sections(self, data: bytearray, start: int) -> int:
        """Copies the pages of sections into a chunk, and returns the number of bytes copied."""
        below, count = self._image.context.layers[self._layer.config["memory_layer"]], 0
        for address in range(start - start % PAGE_SIZE, start + len(data), PAGE_SIZE):
            size, place = self._sections.get(address, (0, 0))
            if size:
                try:
                    data[address - start : address - start + size] = below.read(place, size)
                    count += size
                except exceptions.InvalidAddressException:
                    continue
        return count


class _Starts(Sequence[int]):
    """The starts in an array of starts and sizes."""

    def __init__(self, ranges: array.array[int]) -> None:
        self._ranges = ranges

    def __len__(self) -> int:
        return len(self._ranges) // 2

    def __getitem__(self, number):  # type: ignore[no-untyped-def]
        return self._ranges[2 * number]


def covered(bounds: _Bounds, address: int) -> bool:
    """Returns whether an address lies in one of the ranges with these bounds, in order."""
    return bool(bisect.bisect_right(bounds, address) % 2)


def _append(found: array.array[int], start: int, end: int) -> None:
    if found and found[-1] == start:
        found[-1] = end
    else:
        found.extend((start, end))
