# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads a module's image by RVA, and proves that a process has the same content as the image section.

The image section is the memory that all processes with the module share. Each page comes from the process
itself or, if the process has no page of its own, from the section. If neither is in memory, the page comes
from the module's file, if the examiner gave the file. Private pages of other processes are never used. A
result that was derived from the section is true for a process if the process has the same content in all
parts from which the result was derived: the same physical pages, or equal bytes.
"""

from __future__ import annotations

import functools
import weakref
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ..memory import bulk, pagetables
from ..memory.decode.memo import Kept
from ..memory.decode.memory import Memory, ReadWindows
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import Extents
from ..memory.decode.status import NOTHING, Status, naming, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..process.sections import SectionView
from .decode.peimage import PeImage
from .decode.unwindinfo import LONGEST as LONGEST_RECORD
from .filepages import FilePages

WINDOW = 0x4000
"""Bytes that are read at once."""
_PAGES_KEPT = 1 << 10
"""Pages whose differences from the file are kept."""

_HEAD = 16
"""Bytes of a page that are looked at first: few pages begin with so many zeros."""

_Page = Tuple[int, int, int]
"""Address, size and physical address of a page, or of a part of one."""

_DIFFERS = {
    None: "headers",
    StatusCode.EXPORTS_DIFFER_FROM_THE_SECTION: "exports",
    StatusCode.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION: "function table",
    StatusCode.UNWIND_DATA_DIFFERS_FROM_THE_SECTION: "unwind data",
}
"""Names of the parts of an image in the status `differs from the file`, by the status word of a part that
differs from the section."""


class ImageReader:
    """Reads the image of a module, as one process has it or as the section has it.

    Args:
        layer_name: name of the virtual layer of the process; empty if it has none
        size: bytes of the module; memory beyond is not read
        view: the module's section; if it is None, only the layer's own pages are read
        pristine: whether to read only the section, and not the pages of the process
        file: the module's file, whose pages fill the gaps of memory; None if there is none
    """

    def __init__(
        self,
        image: Image,
        layer_name: str,
        base: int,
        size: int,
        view: Optional[SectionView] = None,
        pristine: bool = False,
        file: Optional[PeImage] = None,
    ) -> None:
        self.layer_name = layer_name
        self.base = base
        self.size = size
        self._image = image
        self.view = view
        self._pristine = pristine
        self._file = None if file is None else FilePages(file, base)
        self._changed: Kept[int, List[Tuple[int, int]]] = Kept(_PAGES_KEPT)
        self._proven: Dict[int, bool] = {}

    @functools.cached_property
    def _memory(self) -> Memory:
        """The windows that are kept, made at the first `read`: many readers only compare pages."""
        # A bound method would refer to the reader, and the reader would stay alive until Python's collector
        # runs.
        proxy = weakref.proxy(self)
        windows = ReadWindows(lambda rva, length: proxy.load_window(rva, length), WINDOW)
        return Memory(windows, self._image.pointer_size, [(0, self.size)])

    @property
    def file(self) -> Optional[PeImage]:
        """The module's file, None if there is none."""
        return None if self._file is None else self._file.file

    def with_file(self, file: PeImage) -> ImageReader:
        """Returns a reader of the same image that takes pages from a file where memory has none."""
        return ImageReader(
            self._image, self.layer_name, self.base, self.size, self.view, self._pristine, file
        )

    def load(self, rva: int, length: int) -> Extents:
        """Returns the present parts of a range by RVA. They are not kept."""
        extents = self._in_memory(rva, length)
        length = max(min(length, self.size - rva), 0)
        return extents if self._file is None else self._file.fill(extents, rva, length)

    def load_window(self, rva: int, length: int) -> Extents:
        """Returns the present parts of a window, as `load` does; processes share what is proven equal."""
        length = max(min(length, self.size - rva), 0)
        shared = None
        if self.view is not None and self.layer_name and not self._pristine:
            layer = self._image.context.layers[self.layer_name]
            shared = self.view.shared(layer, self.base + rva, length)
        self._proven[rva] = shared is not None
        if shared is None:
            return self.load(rva, length)
        extents = Extents((start - self.base, data) for start, data in shared.runs)
        return extents if self._file is None else self._file.fill(extents, rva, length)

    def has(self, rva: int) -> bool:
        """Returns whether the whole page at an RVA is in memory; the file does not count."""
        return not self._in_memory(rva, PAGE_SIZE).missing(rva, min(rva + PAGE_SIZE, self.size))

    def adds(self, rva: int, length: int) -> bool:
        """Returns whether the file has bytes of a range that memory lacks."""
        if self._file is None:
            return False
        length = max(min(length, self.size - rva), 0)
        extents = self._in_memory(rva, length)
        return self._file.fill(extents, rva, length) is not extents

    def compares(self, rva: int) -> bool:
        """Returns whether there is a file whose page at an RVA can be compared with memory."""
        return self._file is not None and self._file.compares(rva)

    def differences(self, rva: int, length: int) -> Tuple[Tuple[int, int], ...]:
        """Returns the parts of a range in which memory differs from the file: (start, end) by RVA.

        The result is empty without a file. It leaves out parts that the file does not determine, such as
        writable sections and imports.
        """
        if self._file is None:
            return ()
        parts = (
            (max(low, rva), min(high, rva + length))
            for page in range(rva - rva % PAGE_SIZE, rva + length, PAGE_SIZE)
            for low, high in self._differing(page)
        )
        return tuple((low, high) for low, high in parts if low < high)

    def _differing(self, page: int) -> List[Tuple[int, int]]:
        """Returns the parts of a page that differ from the file; _PAGES_KEPT pages are kept."""
        if page not in self._changed and self._file is not None:
            self._changed.keep(page, self._file.differences(self._in_memory, page))
        return self._changed.get(page, [])

    def _in_memory(self, rva: int, length: int) -> Extents:
        """Returns the parts of a range that are in memory, by RVA."""
        base, length = self.base, max(min(length, self.size - rva), 0)
        if self.view is not None and self._pristine:
            extents = self.view.load(base + rva, length)
        elif not self.layer_name:
            extents = Extents(())
        else:
            mapping = pagetables.mapping if self.view is None else self.view.mapping
            extents = bulk.read_extents(self._image.context, self.layer_name, base + rva, length, mapping)
        return Extents((start - base, data) for start, data in extents.runs)

    def read(self, rva: int, length: int) -> Optional[bytes]:
        """Returns the bytes of a short range, None if any of them is missing. Windows of memory are kept."""
        return self._memory.read(rva, length)

    def shows_section(self, low: int, high: int) -> bool:
        """Returns whether the windows of a range of RVAs are proven to be the section's own: `read` has then
        the same bytes in all such processes. The proof is made where a window is read, and costs no more."""
        for window in range(low - low % WINDOW, high, WINDOW):
            if window not in self._proven:
                self.read(window, 1)
            if not self._proven.get(window):
                return False
        return True

    def same_pages(self, rva: int, length: int) -> bool:
        """Returns whether the process has the same physical pages as the section in a range."""
        view, length = self.view, min(length, self.size - rva)
        if view is None or length <= 0:
            return view is not None
        if not self.layer_name:
            return False
        if self.maps_section(rva, length):
            return True
        process_pages, section_pages = self._pages(view, rva, length)
        return process_pages == section_pages

    def maps_section(self, rva: int, length: int) -> bool:
        """Returns whether page tables prove that the process has no page of its own in a range. The section's
        pages need not be in memory."""
        if self.view is None or not self.layer_name:
            return False
        start, layer = self.base + rva, self._image.context.layers[self.layer_name]
        return self.view.mapped_by(layer, start, start + min(length, self.size - rva))

    def has_other_pages(self, rva: int, length: int) -> bool:
        """Returns whether the process has another physical page than the section, where both are known."""
        if self.view is None or not self.layer_name:
            return False
        process_pages, section_pages = self._pages(self.view, rva, min(length, self.size - rva))
        starts = {start for start, _, _ in section_pages}
        return any(page[0] in starts and page not in section_pages for page in process_pages)

    def _pages(self, view: SectionView, rva: int, length: int) -> Tuple[List[_Page], List[_Page]]:
        """Returns the pages of the process and of the section in a range."""
        start, layer = self.base + rva, self._image.context.layers[self.layer_name]
        process_pages = _split_at_pages(view.mapping(self._image.context, layer, start, length))
        section_pages = view.pieces(max(start, view.start), min(start + length, view.end))
        return list(process_pages), list(section_pages)

    def with_section(self, rva: int, length: int) -> Optional[Tuple[bytes, bytes]]:
        """Returns the bytes of a short range in the process and in the section; None unless both are in
        memory."""
        view, length = self.view, min(length, self.size - rva)
        if view is None or length <= 0:
            return None
        process_bytes = self._in_memory(rva, length).read(rva, length)
        section_bytes = view.load(self.base + rva, length).read(self.base + rva, length)
        if process_bytes is None or section_bytes is None:
            return None
        return bytes(process_bytes), bytes(section_bytes)

    def constant(self, rva: int, length: int) -> Optional[bytes]:
        """Returns the bytes of a short range, None unless it is proven that no process can have changed them.

        They are proven if the process has the section's own pages there, and no process can write to these.
        """
        view = self.view
        if view is None or not 0 <= rva <= self.size - length or not self.same_pages(rva, length):
            return None
        content = self.load(rva, length).read(rva, length)
        return bytes(content) if content is not None and view.constant(self.base + rva, length) else None


def _split_at_pages(pieces: Iterable[pagetables.Piece]) -> Iterator[_Page]:
    """Yields (address, size, physical address) of pieces of an address space, cut at page borders."""
    for start, size, physical, _ in pieces:
        low, end = start, start + size
        while low < end:
            high = min(low - low % PAGE_SIZE + PAGE_SIZE, end)
            yield low, high - low, physical + low - start
            low = high


def _heads(extents: Extents) -> Iterator[Tuple[int, bytes]]:
    """Yields the address of each page, and its first bytes that are present."""
    for start, data in extents.runs:
        for page in range(start - start % PAGE_SIZE, start + len(data), PAGE_SIZE):
            low = max(page - start, 0)
            yield page, data[low : low + _HEAD]


class ImageParts:
    """Reads parts of an image and records which: a result that was derived from these parts is also true for
    another process in which they are the same."""

    def __init__(self, reader: ImageReader) -> None:
        self._reader = reader
        self._ranges: Dict[Tuple[int, int], Optional[StatusCode]] = {}
        self._records: Sequence[int] = ()
        self._length: Callable[[int], int] = lambda rva: 0
        self._record_word: Optional[StatusCode] = None

    def load(self, part: Optional[StatusCode], rva: int, length: int) -> Extents:
        """Returns the present parts of a range, by RVA. `part` is the status word for a process that has
        other content there, None for no word.

        Pages of zeros are absent: tools write them for pages that they cannot read, and no part has one.
        """
        self._ranges.setdefault((rva, length), part)
        extents = self._reader.load(rva, length)
        absent = [page for page, head in _heads(extents) if not any(head) and self._is_zero_page(page)]
        if not absent:
            return extents
        lows = rva, *(page + PAGE_SIZE for page in absent)
        spans = zip(lows, (*absent, rva + length))
        return Extents(run for low, high in spans for run in extents.part(low, high - low).runs)

    def _is_zero_page(self, page: int) -> bool:
        return not any(any(data) for _, data in self._reader.load(page, PAGE_SIZE).runs)

    def read(self, rva: int, length: int) -> Optional[bytes]:
        """Returns the bytes of a short range without a status word, None if any of them is missing."""
        self._ranges.setdefault((rva, length), None)
        return self._reader.read(rva, length)

    def add_records(self, part: StatusCode, rvas: Sequence[int], length: Callable[[int], int]) -> None:
        """Adds records that are read later, one by one.

        Args:
            rvas: RVAs of the records; bit 0 of each is ignored
            length: takes one of these RVAs; returns the bytes of the record there
        """
        self._record_word, self._records, self._length = part, rvas, length

    def difference(self, reader: ImageReader) -> Optional[Status]:
        """Returns None if a process has the same parts, else a status with the words of parts that differ.

        The status is empty if no bytes differ, but some are missing in the process or in the section only.
        """
        changed = set()
        for low, high in self._runs:
            if not reader.same_pages(low, high - low):
                changed |= {
                    page for page in range(low, high, PAGE_SIZE) if not reader.same_pages(page, PAGE_SIZE)
                }
        if not changed:
            return None
        same, differences = True, NOTHING
        for rva, length, word in self._parts_on_pages(changed):
            process_part, section_part = reader.load(rva, length), self._reader.load(rva, length)
            if process_part.runs != section_part.runs:
                same = False
                differences = status(
                    differences, word if _contradict(process_part, section_part, rva, rva + length) else None
                )
        return None if same else differences

    def file_status(self) -> Status:
        """Returns the status that the module's file gives to the parts: whether some come from the file, and
        which parts differ from it."""
        if self._reader.file is None:
            return NOTHING
        added, changed_parts = False, set()
        for (rva, length), part in self._ranges.items():
            added = added or self._reader.adds(rva, length)
            if self._reader.differences(rva, length):
                changed_parts.add(_DIFFERS[part])
        pages = {rva // PAGE_SIZE for rva in self._records}
        changed = {page for page in pages if self._reader.differences(page * PAGE_SIZE, 2 * PAGE_SIZE)}
        for rva in self._records if changed else ():
            if rva // PAGE_SIZE in changed and self._reader.differences(rva & -2, self._length(rva)):
                changed_parts.add(_DIFFERS[self._record_word])
                break
        return status(
            StatusCode.FROM_FILE if added else None,
            naming(StatusCode.DIFFERS_FROM_FILE, *sorted(changed_parts)),
        )

    @functools.cached_property
    def _runs(self) -> List[Tuple[int, int]]:
        return list(self._page_runs())

    def _page_runs(self) -> Iterator[Tuple[int, int]]:
        """Yields (start, end) of runs of adjacent pages that hold parts."""
        numbers = set()
        for rva, length in self._ranges:
            numbers |= set(range(rva // PAGE_SIZE, (rva + max(length, 1) - 1) // PAGE_SIZE + 1))
        for reach in (0, LONGEST_RECORD) if self._records else ():
            numbers |= {(rva + reach) // PAGE_SIZE for rva in self._records}
        limit = -(-self._reader.size // PAGE_SIZE)
        start, end = 0, 0
        for page in sorted(number for number in numbers if number < limit):
            if page != end:
                if start < end:
                    yield start * PAGE_SIZE, end * PAGE_SIZE
                start = page
            end = page + 1
        if start < end:
            yield start * PAGE_SIZE, end * PAGE_SIZE

    def _parts_on_pages(self, changed: Set[int]) -> Iterator[Tuple[int, int, Optional[StatusCode]]]:
        """Yields (RVA, length, word) of the parts with bytes on changed pages."""
        for (rva, length), word in self._ranges.items():
            if any(page in changed for page in range(rva - rva % PAGE_SIZE, rva + length, PAGE_SIZE)):
                yield rva, length, word
        for rva in sorted(set(self._records)):
            if rva - rva % PAGE_SIZE in changed or (rva + LONGEST_RECORD) // PAGE_SIZE * PAGE_SIZE in changed:
                yield rva & -2, self._length(rva), self._record_word


def _contradict(one: Extents, other: Extents, start: int, end: int) -> bool:
    """Returns whether both have a byte of a range, and the two bytes differ."""
    return any(
        one.read(low, high - low) != other.read(low, high - low)
        for first, last in one.covered(start, end)
        for low, high in other.covered(first, last)
    )
