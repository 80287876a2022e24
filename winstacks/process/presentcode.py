# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The protection of a page of code now, the pages that a process has changed, the bytes around an address.

    pages = image.service(PresentCode)
    pages.protection(space, region, address), pages.private_bytes(space, region), pages.around(space, address)

A VAD has the first protection of an allocation: page table entries show whether code can be written or run
there now. In an image section, they show which pages are the process's own.
"""

from __future__ import annotations

import logging
from array import array
from typing import Dict, Optional, Tuple

from volatility3.framework.layers import intel

from ..memory import bulk
from ..memory.decode import pagetable
from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace, Image
from .regions import Region, protection_name
from .sections import MAX_PAGES, UNREAD, ImageSections, PageTable, SectionView

vollog = logging.getLogger(__name__)

BYTES = 32
"""The most bytes on each side of an address."""

MOST_REGIONS = 1 << 16
"""Regions whose private bytes are counted and kept."""

MOST_PAGES = 1 << 24
"""The most pages that are counted, of all regions together: forged tables map the same few over and over."""

_SECTIONS_KEPT = 1 << 8
"""Sections whose prototype PTEs are kept: processes share most of them."""

_WIDE = 8
"""Bytes of an entry that has a bit which forbids execution."""


class CodeHere(NamedTuple):
    """Facts that the pages at the address of a frame show; None if a fact is unknown, or was not asked.

    Attributes:
        private_bytes: bytes of the allocation that are executable and the process's own
        leading, trailing: the bytes before the address, and those from it on, in hexadecimal
    """

    protection: Optional[str] = None
    private_bytes: Optional[int] = None
    leading: Optional[str] = None
    trailing: Optional[str] = None


class PresentCode:
    """Reads pages of code. Made as `image.service(PresentCode)`."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._sections = image.service(ImageSections)
        self._targets: Memo[Tuple[int, int, int], array[int]] = Memo(self._sections.targets, _SECTIONS_KEPT)
        self._private: Dict[Tuple[str, int], Optional[int]] = {}
        self._pages = 0

    def protection(self, space: AddressSpace, region: Optional[Region], address: int) -> Optional[str]:
        """Returns the protection of the page at an address now; None if it is not in memory, or unknown."""
        if not self._image.table_name:
            pages = None if region is None else span_at(region.pages, address)
            return None if pages is None else pages.protection_name
        layer = self._image.layer_of(space) if space.layer_name else None
        if not isinstance(layer, intel.Intel) or not self._image.machine.is_canonical(address):
            return None
        masked = bulk.masked(layer, address)
        table = self._sections.table(layer, masked)
        if not table.data or not table.present or table.entry_size != _WIDE:
            return None
        (entry,) = pagetable.entries(table.data, _WIDE, masked // PAGE_SIZE % table.pages, 1)
        found = pagetable.protection(entry)
        return None if found is None else protection_name(found)

    def private_bytes(self, space: AddressSpace, region: Optional[Region]) -> Optional[int]:
        """Returns how many bytes of a region are executable and no page that processes share."""
        if region is None:
            return None
        key = space.layer_name, region.start
        if key not in self._private:
            if self._pages > MOST_PAGES or len(self._private) >= MOST_REGIONS:
                return None
            self._private[key] = self._count(space, region)
            if self._pages > MOST_PAGES or len(self._private) >= MOST_REGIONS:
                vollog.warning("Too many pages: the private bytes of further allocations are not counted")
        return self._private[key]

    def around(self, space: AddressSpace, address: int) -> Tuple[Optional[str], Optional[str]]:
        """Returns the bytes before an address, and those from it on: fewer where the next page is absent."""
        if not space.layer_name:
            return None, None
        memory, within = self._image.memory(space), address % PAGE_SIZE
        parts = []
        for size, start in ((within, -1), (PAGE_SIZE - within, 0)):
            data = None
            for length in (BYTES, min(BYTES, size)):
                if data is None and length:
                    data = memory.read(address + start * length, length)
            parts.append(None if data is None else data.hex())
        return parts[0], parts[1]

    def _count(self, space: AddressSpace, region: Region) -> Optional[int]:
        if not self._image.table_name:
            if region.control_area or not region.pages:
                return None
            return sum(pages.end - pages.start for pages in region.pages if pages.executable)
        layer = self._image.layer_of(space) if space.layer_name else None
        view = self._sections.section_of(region)
        if not isinstance(layer, intel.Intel) or (region.control_area and view is None):
            return None
        if region.end - region.start > MAX_PAGES * PAGE_SIZE:
            return None
        address, count = region.start, 0
        while address < region.end:
            table = self._sections.table(layer, address)
            stop = min(region.end, (address // PAGE_SIZE // table.pages + 1) * table.pages * PAGE_SIZE)
            counted = self._of_table(table, layer, view, address, stop)
            if counted is None:
                return None
            count, address = count + counted, stop
        return count * PAGE_SIZE

    def _of_table(
        self, table: PageTable, layer: intel.Intel, view: Optional[SectionView], start: int, end: int
    ) -> Optional[int]:
        """Returns the private executable pages in a range that one page table maps; None if one is unsure.
        `view` is the section that the range maps; None for private memory."""
        if table.data is None or not table.present or table.entry_size != _WIDE:
            return None
        pages, count = (end - start) // PAGE_SIZE, 0
        first = start // PAGE_SIZE % table.pages
        pointer_size = layer.bits_per_register // 8
        targets = () if view is None else self._targets[view.key]
        # Of an absent table no page was ever touched.
        entries = pagetable.entries(table.data, _WIDE, first, pages) if table.data else ()
        self._pages += len(entries)
        for address, entry in zip(range(start, end, PAGE_SIZE), entries):
            if not entry:
                continue
            if entry & pagetable.PRESENT:
                if not pagetable.executable(entry, _WIDE):
                    continue
                number = 0 if view is None else (address - view.start) // PAGE_SIZE
                shared = targets[number] if number < len(targets) else 0
                if shared == UNREAD:
                    return None
                count += shared != pagetable.target(entry, _WIDE)
            elif entry & pagetable.PROTOTYPE:
                # A page of the section. In private memory: one of several equal pages, of unknown protection.
                if view is None or not view.shares(entry, address, pointer_size):
                    return None
            else:
                count += pagetable.executable(entry, _WIDE)
        return count
