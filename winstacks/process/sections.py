# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pages of image sections: the content of a mapped image where the process has no page of its own.

All processes that map a file as an image share the pages of its section. A process that writes to such a page
gets its own copy. It can write to the section's page only if the file marks the page as shared
(IMAGE_SCN_MEM_SHARED). Prototype PTEs have the addresses of the section's pages, and the VAD of each mapping
leads to them.

Source: Windows' public symbols (_MMVAD, _CONTROL_AREA, _SEGMENT, _MMPTE). Windows Internals, "Prototype
PTEs", describes how a process's page table leads to a prototype PTE, and when a process gets its own copy.
"""

from __future__ import annotations

from array import array
from typing import Dict, Iterator, Optional, Tuple

from volatility3.framework import interfaces
from volatility3.framework.layers import intel, linear

from ..memory import bulk, pagetables
from ..memory.decode import pagetable
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Windows
from ..memory.decode.pagetable import PAGE_SHIFT, PAGE_SIZE
from ..memory.decode.ranges import Extents
from ..memory.decode.records import NamedTuple
from ..memory.image import Image
from ..memory.pagetables import Piece
from .regions import Region

MAX_PAGES = 1 << 19
"""Maximum number of pages of one section: no image is larger than 2 GB."""

MAX_KEPT = 1 << 20
"""Pages of sections whose addresses are kept; the oldest section goes first."""

UNREAD = (1 << 64) - 1
"""Stands for the address of a page whose prototype PTE is not in the image."""

_TABLES_KEPT = 256
"""Page tables of processes that are kept: the one process that is being read has up to about 200."""

MAX_WINDOW_BYTES = 1 << 26
"""Bytes of sections that are kept for all processes that map them."""

_VIEWS_KEPT = 4096
"""Views of sections that are at hand: a process has some 100."""

_SPACES_KEPT = 8
"""Address spaces whose page tables are at hand."""


class ImageSections:
    """Finds the pages of image sections. Made as `image.service(ImageSections)`.

    If the kernel's symbol table lacks a needed member, no image has a section: a warning names the member.
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._memory = image.memory(image.kernel)
        self._found: Dict[Tuple[int, int, int], array[int]] = {}
        self._kept_pages = 0
        self.windows: Windows[Tuple[Tuple[int, int, int], int, int]] = Windows(
            self._read_window, MAX_WINDOW_BYTES
        )
        self._spaces: Memo[str, pagetables.PageTables] = Memo(self._tables_of, _SPACES_KEPT)
        self._tables: Memo[Tuple[str, int], PageTable] = Memo(self._read_table, _TABLES_KEPT)
        self._views: Memo[Region, Optional[SectionView]] = Memo(self._view_of, _VIEWS_KEPT)
        self._form = image.attempt(lambda: _SectionLayout(image))

    def section_of(self, vad: Optional[Region]) -> Optional[SectionView]:
        """Returns the section that a VAD maps; None if it maps no image, or if its structures disagree."""
        if vad is None or not vad.image or not isinstance(self._image.layer, intel.Intel):
            return None
        return self._views[vad]

    def lacks_pages(self, vad: Optional[Region]) -> bool:
        """Returns whether a VAD maps an image whose section cannot be read, or ends before the VAD."""
        if (
            self._form is None
            or vad is None
            or not vad.image
            or not isinstance(self._image.layer, intel.Intel)
        ):
            return False
        view = self._views[vad]
        return view is None or view.end < vad.end

    def _view_of(self, vad: Region) -> Optional[SectionView]:
        form = self._form
        if form is None:
            return None
        segment = self._memory.pointer(vad.control_area + form.segment)
        if not segment or self._memory.pointer(segment + form.control_area) != vad.control_area:
            return None
        base = self._memory.pointer(segment + form.entries)
        count = self._memory.number(segment + form.count, 4)
        first = self._memory.pointer(vad.address + form.first)
        if not base or not count or not first:
            return None
        # The loader maps whole images: another first page shows that one of the pointers was written.
        if first != base:
            return None
        count = min(count, vad.end - vad.start >> PAGE_SHIFT, MAX_PAGES)
        return SectionView(self, vad.start, first, count, form.size)

    def page_addresses(self, control: SectionView) -> array[int]:
        """Returns the physical address of each page of a view, 0 for a page that is not in memory."""
        key = control.key
        addresses = self._found.get(key)
        if addresses is None:
            addresses = self._found[key] = self._read(control)
            self._kept_pages += len(addresses)
            while self._kept_pages > MAX_KEPT and len(self._found) > 1:
                self._kept_pages -= len(self._found.pop(next(iter(self._found))))
        return addresses

    def table(self, layer: intel.Intel, address: int) -> PageTable:
        name = str(layer.name)
        return self._tables[name, address // self._spaces[name].span]

    def tables(self, layer: intel.Intel) -> pagetables.PageTables:
        return self._spaces[str(layer.name)]

    def entry(self, address: int, size: int) -> Optional[int]:
        """Returns a prototype PTE, None if it is not in the image or leads to no page in memory."""
        entry = self._memory.number(address, size)
        return None if entry is None or pagetable.in_section(entry, size) is None else entry

    def is_here(self, place: int) -> bool:
        """Returns whether a physical page is in the image."""
        return self.below.is_valid(place, PAGE_SIZE)

    @property
    def below(self) -> interfaces.layers.DataLayerInterface:
        """The physical layer."""
        return self._image.context.layers[self._image.layer.config["memory_layer"]]

    @property
    def context(self) -> interfaces.context.ContextInterface:
        return self._image.context

    def _read_window(self, key: Tuple[Tuple[int, int, int], int, int]) -> Extents:
        """Returns the content of the section of a view's key in a range (offset, length), by offset."""
        of_view, offset, length = key
        return SectionView(self, 0, *of_view).load(offset, length)

    def _tables_of(self, layer_name: str) -> pagetables.PageTables:
        layer = self.context.layers[layer_name]
        assert isinstance(layer, intel.Intel)
        return self._image.page_tables(layer)

    def _read_table(self, key: Tuple[str, int]) -> PageTable:
        tables = self._spaces[key[0]]
        data, present = tables.entries(key[1] * tables.span)
        return PageTable(data, present, tables.entry_size, tables.span // PAGE_SIZE)

    def _read(self, view: SectionView) -> array[int]:
        addresses = self.targets(view.key)
        for number, address in enumerate(addresses):
            if address and (address == UNREAD or not self.is_here(address)):
                addresses[number] = 0
        return addresses

    def targets(self, key: Tuple[int, int, int]) -> array[int]:
        """Returns where each prototype PTE of a view leads, whether or not the image has the page: physical
        addresses; 0 for a page that is not in memory, UNREAD where the image lacks the entry."""
        prototypes, count, size = key
        addresses = array("Q", [UNREAD]) * count
        for start, data in self._memory.load(prototypes, count * size).runs:
            first = -(-(start - prototypes) // size)
            skip = first * size - (start - prototypes)
            whole = max(len(data) - skip, 0) // size * size
            for number, entry in enumerate(pagetable.entries(data[skip : skip + whole], size), first):
                addresses[number] = (pagetable.in_section(entry, size) if entry else None) or 0
        return addresses


class PageTable(NamedTuple):
    """A page table of a process; `data` and `present` are the result of `PageTables.entries`.

    `pages` is the number of its entries, each of `entry_size` bytes.
    """

    data: Optional[bytes]
    present: bool
    entry_size: int
    pages: int


class SectionView:
    """A section as a process maps it. `prototypes` is the canonical address of the prototype PTE of the first
    page."""

    __slots__ = ("_sections", "count", "entry_size", "prototypes", "start")

    def __init__(
        self, sections: ImageSections, start: int, prototypes: int, count: int, entry_size: int
    ) -> None:
        self._sections = sections
        self.start = start
        self.prototypes = prototypes
        self.count = count
        self.entry_size = entry_size

    @property
    def key(self) -> Tuple[int, int, int]:
        """Key that views of the same pages share."""
        return self.prototypes, self.count, self.entry_size

    @property
    def end(self) -> int:
        """The first address behind the section."""
        return self.start + self.count * PAGE_SIZE

    def load(self, start: int, length: int) -> Extents:
        """Returns the section's own content in a range of the process's addresses."""
        context, below = self._sections.context, self._sections.below
        pieces = self.pieces(max(start, self.start), min(start + length, self.end))
        return bulk.of_pieces(
            context, ((low, size, address, str(below.name)) for low, size, address in pieces)
        )

    def shared(
        self, layer: interfaces.layers.DataLayerInterface, start: int, length: int
    ) -> Optional[Extents]:
        """Returns a process's content in a range of its addresses, by address, if the section's own is proven
        to be there (`mapped_by`), else None. All such processes share the bytes."""
        if not self.mapped_by(layer, start, start + length):
            return None
        extents = self._sections.windows[self.key, start - self.start, length]
        return Extents((self.start + offset, data) for offset, data in extents.runs)

    def pieces(self, start: int, end: int) -> Iterator[Tuple[int, int, int]]:
        """Yields (address, size, physical address) of the section's pages in a range of addresses."""
        if start >= end:
            return
        addresses = self._sections.page_addresses(self)
        for low in range(start - start % PAGE_SIZE, end, PAGE_SIZE):
            address = addresses[(low - self.start) // PAGE_SIZE]
            if address:
                first, last = max(low, start), min(low + PAGE_SIZE, end)
                yield first, last - first, address + first - low

    def shares(self, entry: int, address: int, pointer_size: int) -> bool:
        """Returns whether a page table entry of the process means the section's page at its address."""
        prototype = self.prototypes + (address - self.start) // PAGE_SIZE * self.entry_size
        return pagetable.leads_to_section(entry, self.entry_size, pointer_size, prototype)

    def constant(self, start: int, length: int) -> bool:
        """Returns whether no process can write the section's pages of a range that it covers."""
        pages = range((start - self.start) // PAGE_SIZE, (start + length - 1 - self.start) // PAGE_SIZE + 1)
        entries = [
            self._sections.entry(self.prototypes + number * self.entry_size, self.entry_size)
            for number in pages
        ]
        return all(entry is not None and not pagetable.writable(entry) for entry in entries)

    def mapping(
        self,
        context: interfaces.context.ContextInterface,
        layer: linear.LinearlyMappedLayer,
        start: int,
        length: int,
    ) -> Iterator[Piece]:
        """Yields the present pieces of a range as `pagetables.mapping` does, with the section's pages in the
        gaps."""
        end = start
        tables = self._sections.tables(layer) if isinstance(layer, intel.Intel) else None
        for piece in pagetables.mapping(context, layer, start, length, tables):
            yield from self._fill(context, layer, end, piece[0])
            yield piece
            end = piece[0] + piece[1]
        yield from self._fill(context, layer, end, start + length)

    def _fill(
        self,
        context: interfaces.context.ContextInterface,
        layer: linear.LinearlyMappedLayer,
        start: int,
        end: int,
    ) -> Iterator[Piece]:
        """Yields the section's pages where the process has no page of its own."""
        start, end = max(start, self.start), min(end, self.end)
        if start >= end or not isinstance(layer, intel.Intel):
            return
        below, pointer_size = layer.config["memory_layer"], layer.bits_per_register // 8
        for low, length, address in self.pieces(start, end):
            table = self._sections.table(layer, low)
            if table.data is None:
                continue
            if table.data:
                size = table.entry_size
                (entry,) = pagetable.entries(table.data, size, low // PAGE_SIZE % table.pages, 1)
                if not self.shares(entry, low, pointer_size):
                    continue
            yield low, length, address, below

    def mapped_by(self, layer: interfaces.layers.DataLayerInterface, start: int, end: int) -> bool:
        """Returns whether the page tables prove that a process has the section's pages in a range.

        Then each entry leads to the section's page, or to no page, so that the section's page is used. False:
        this does not hold for some page, or its entry is not enough to decide.
        """
        low, last = start // PAGE_SIZE, -(-end // PAGE_SIZE)
        if not isinstance(layer, intel.Intel) or start < self.start or end > self.end:
            return False
        addresses, pointer_size = self._sections.page_addresses(self), layer.bits_per_register // 8
        while low < last:
            table = self._sections.table(layer, low * PAGE_SIZE)
            high = min(last, (low // table.pages + 1) * table.pages)
            if table.data is None or not table.present:
                return False
            number, size = low - self.start // PAGE_SIZE, table.entry_size
            # An absent table has no page of its own: none in its range was ever touched.
            entries = pagetable.entries(table.data, size, low % table.pages, high - low) if table.data else ()
            for address, entry in zip(addresses[number : number + high - low], entries):
                if entry & pagetable.PRESENT:
                    if not address or pagetable.target(entry, size) != address:
                        return False
                elif entry:
                    prototype = self.prototypes + number * self.entry_size
                    if not pagetable.leads_to_section(entry, size, pointer_size, prototype):
                        return False
                number += 1
            low = high
        return True


class _SectionLayout:
    """The members that lead from a VAD to the prototype PTEs of its section. Raises MissingMemberError if the
    kernel's table lacks one of them."""

    def __init__(self, image: Image) -> None:
        types = image.types
        self.first = types["_MMVAD"].offset("FirstPrototypePte")
        self.segment = types["_CONTROL_AREA"].offset("Segment")
        self.control_area = types["_SEGMENT"].offset("ControlArea")
        self.entries = types["_SEGMENT"].offset("PrototypePte")
        self.count = types["_SEGMENT"].offset("TotalNumberOfPtes")
        self.size = types["_MMPTE"].size
