# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads a module's image by RVA, and proves that a process has what was read elsewhere.

A page of an image is the process's own page or, where the process has none, the page of the image section;
where neither is in memory, the page of the module's file, if the examiner gave that. A page of another
process is never taken. What was derived from the section itself is true of a process if the process has the
same in all parts from which it was derived: the same physical pages, or equal bytes.
"""

from __future__ import annotations

import weakref
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ..memory import bulk, pages
from ..memory.decode.memory import Memory, Windows
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.ranges import Extents
from ..memory.decode.status import NOTHING, Said, Status, Word, status
from ..memory.image import Image
from ..process.sections import SectionView
from .decode.peimage import PeImage
from .decode.unwindinfo import LONGEST as LONGEST_RECORD
from .filepages import FilePages

WINDOW = 0x4000

_PAGES_KEPT = 1 << 10
"""Pages of which it is kept where they differ from the file."""

_DIFFERS = {
    None: "headers",
    Word.EXPORTS_DIFFER_FROM_THE_SECTION: "exports",
    Word.FUNCTION_TABLE_DIFFERS_FROM_THE_SECTION: "function table",
    Word.UNWIND_DATA_DIFFERS_FROM_THE_SECTION: "unwind data",
}
"""The parts of an image, as `differs from the file` names them, by what is said if the section's differ."""


class ImageReader:
    """The image of a module as one process has it, or as its section does.

    Args:
        image: the memory image
        layer_name: the virtual layer
        base: canonical address of the module
        size: bytes of the module; nothing beyond is read
        view: the module's section; None if there is none, then only the layer's own pages are read
        pristine: read the section, whatever the process has
        file: the module's file, None if there is none: it has the pages that memory lacks
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
        self._view = view
        self._pristine = pristine
        self._file = None if file is None else FilePages(file, base)
        self._changed: Dict[int, List[Tuple[int, int]]] = {}
        # With a reference to the reader, the reader would keep itself alive until Python's collector runs.
        me = weakref.proxy(self)
        windows = Windows(lambda rva, length: me.load(rva, length), WINDOW)
        self._memory = Memory(windows, image.pointer_size, [(0, size)])

    @property
    def file(self) -> Optional[PeImage]:
        """The module's file, None without one."""
        return None if self._file is None else self._file.file

    def of_file(self, file: PeImage) -> ImageReader:
        """Returns what reads the same, with the pages of a file where memory has none."""
        return ImageReader(
            self._image, self.layer_name, self.base, self.size, self._view, self._pristine, file
        )

    def load(self, rva: int, length: int) -> Extents:
        """Returns the present parts of a range, by RVA, and does not keep them."""
        found = self._in_memory(rva, length)
        length = max(min(length, self.size - rva), 0)
        return found if self._file is None else self._file.fill(found, rva, length)

    def has(self, rva: int) -> bool:
        """Returns whether all of the page at an RVA is in memory, whatever the file has."""
        return not self._in_memory(rva, PAGE_SIZE).missing(rva, min(rva + PAGE_SIZE, self.size))

    def adds(self, rva: int, length: int) -> bool:
        """Returns whether the file has bytes of a range that memory lacks."""
        if self._file is None:
            return False
        found = self._in_memory(rva, length)
        return self._file.fill(found, rva, length) is not found

    def compares(self, rva: int) -> bool:
        """Returns whether there is a file with whose page at an RVA that of memory can be compared."""
        return self._file is not None and self._file.compares(rva)

    def differences(self, rva: int, length: int) -> Tuple[Tuple[int, int], ...]:
        """Returns what memory has in a range otherwise than the file: (start, end) by RVA.

        Nothing is returned without a file, and of what the file cannot say: writable sections, imports.
        """
        if self._file is None:
            return ()
        found = (
            (max(low, rva), min(high, rva + length))
            for page in range(rva - rva % PAGE_SIZE, rva + length, PAGE_SIZE)
            for low, high in self._differing(page)
        )
        return tuple((low, high) for low, high in found if low < high)

    def _differing(self, page: int) -> List[Tuple[int, int]]:
        """Returns where a page differs from that of the file, found once as long as it is kept."""
        if page not in self._changed and self._file is not None:
            if len(self._changed) >= _PAGES_KEPT:
                self._changed.clear()
            self._changed[page] = self._file.differences(self._in_memory, page)
        return self._changed.get(page, [])

    def _in_memory(self, rva: int, length: int) -> Extents:
        """Returns the parts of a range that are in memory."""
        base, length = self.base, max(min(length, self.size - rva), 0)
        if self._view is not None and self._pristine:
            found = self._view.load(base + rva, length)
        elif not self.layer_name:
            found = Extents(())
        else:
            mapping = pages.mapping if self._view is None else self._view.mapping
            found = bulk.read_extents(self._image.context, self.layer_name, base + rva, length, mapping)
        return Extents((start - base, data) for start, data in found.runs)

    def read(self, rva: int, length: int) -> Optional[bytes]:
        """Returns the bytes of a short range, or None if any of them is missing."""
        return self._memory.read(rva, length)

    def same_pages(self, rva: int, length: int) -> bool:
        """Returns whether the process has the very pages of the section in a range."""
        view, length = self._view, min(length, self.size - rva)
        if view is None or length <= 0:
            return view is not None
        if not self.layer_name:
            return False
        start = self.base + rva
        layer = self._image.context.layers[self.layer_name]
        if view.mapped_by(layer, start, start + length):
            return True
        mine = view.mapping(self._image.context, layer, start, length)
        theirs = view.pieces(max(start, view.start), min(start + length, view.end))
        return list(_in_pages(mine)) == list(theirs)

    def as_in_section(self, rva: int, length: int) -> bool:
        """Returns whether a short range has the bytes of the section, where both are in memory."""
        view, length = self._view, min(length, self.size - rva)
        if view is None or length <= 0:
            return False
        mine = self.load(rva, length).read(rva, length)
        theirs = view.load(self.base + rva, length).read(self.base + rva, length)
        return mine is not None and theirs is not None and mine == theirs

    def constant(self, rva: int, length: int) -> Optional[bytes]:
        """Returns the bytes of a short range that nobody can have changed; None: that is not proven.

        The process has the section's own pages there, and the section lets nobody write to them.
        """
        view = self._view
        if view is None or not 0 <= rva <= self.size - length or not self.same_pages(rva, length):
            return None
        found = self.load(rva, length).read(rva, length)
        return bytes(found) if found is not None and view.constant(self.base + rva, length) else None


def _in_pages(pieces: Iterable[pages.Piece]) -> Iterator[Tuple[int, int, int]]:
    """Yields (address, size, physical address) of pieces, cut at the borders of pages."""
    for start, size, place, _ in pieces:
        low, end = start, start + size
        while low < end:
            high = min(low - low % PAGE_SIZE + PAGE_SIZE, end)
            yield low, high - low, place + low - start
            low = high


class ImageParts:
    """Reads parts of an image and remembers which: what is derived from them depends on nothing else.

    Args:
        reader: the image
    """

    def __init__(self, reader: ImageReader) -> None:
        self._reader = reader
        self._ranges: Dict[Tuple[int, int], Optional[Word]] = {}
        self._records: Sequence[int] = ()
        self._length: Callable[[int], int] = _no_record
        self._record_word: Optional[Word] = None
        self._runs: Optional[List[Tuple[int, int]]] = None

    def load(self, part: Optional[Word], rva: int, length: int) -> Extents:
        """Returns the present parts of a range, by RVA.

        Args:
            part: what is said of a process that has other content there; None: nothing is said
            rva: start of the range
            length: in bytes
        """
        self._ranges.setdefault((rva, length), part)
        return self._reader.load(rva, length)

    def read(self, rva: int, length: int) -> Optional[bytes]:
        """Returns the bytes of a short range of which nothing is said, or None if any of them is missing."""
        self._ranges.setdefault((rva, length), None)
        return self._reader.read(rva, length)

    def add_records(self, part: Word, rvas: Sequence[int], length: Callable[[int], int]) -> None:
        """Adds records that are read later, one by one.

        Args:
            part: what is said of a process that has others
            rvas: where they start; bit 0 does not count
            length: returns the bytes of the one that such an RVA leads to
        """
        self._record_word, self._records, self._length = part, rvas, length

    def difference(self, reader: ImageReader) -> Optional[Status]:
        """Returns None if a process has the same, else the words for what it has otherwise.

        The status is empty if the process lacks something or has what this image lacks.

        Args:
            reader: the same image in the process
        """
        if self._runs is None:
            self._runs = list(self._page_runs())
        changed = set()
        for low, high in self._runs:
            if not reader.same_pages(low, high - low):
                changed |= {
                    page for page in range(low, high, PAGE_SIZE) if not reader.same_pages(page, PAGE_SIZE)
                }
        if not changed:
            return None
        same, said = True, NOTHING
        for rva, length, word in self._touched(changed):
            mine, theirs = reader.load(rva, length), self._reader.load(rva, length)
            if mine.runs != theirs.runs:
                same = False
                said = status(said, word if _contradict(mine, theirs, rva, rva + length) else None)
        return None if same else said

    def of_file(self) -> Status:
        """Returns what the module's file says of the parts: that some are from it, or that some differ."""
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
            Word.FROM_FILE if added else None,
            Said(Word.DIFFERS_FROM_FILE, None, tuple(sorted(changed_parts))) if changed_parts else None,
        )

    def _page_runs(self) -> Iterator[Tuple[int, int]]:
        """Yields (start, end) of adjacent pages with a part on them."""
        found = set()
        for rva, length in self._ranges:
            found |= set(range(rva // PAGE_SIZE, (rva + max(length, 1) - 1) // PAGE_SIZE + 1))
        for reach in (0, LONGEST_RECORD) if self._records else ():
            found |= {(rva + reach) // PAGE_SIZE for rva in self._records}
        limit = -(-self._reader.size // PAGE_SIZE)
        start, end = 0, 0
        for page in sorted(each for each in found if each < limit):
            if page != end:
                if start < end:
                    yield start * PAGE_SIZE, end * PAGE_SIZE
                start = page
            end = page + 1
        if start < end:
            yield start * PAGE_SIZE, end * PAGE_SIZE

    def _touched(self, changed: Set[int]) -> Iterator[Tuple[int, int, Optional[Word]]]:
        """Yields (RVA, length, word) of the parts with bytes on pages that are not those of the section."""
        for (rva, length), word in self._ranges.items():
            if any(page in changed for page in range(rva - rva % PAGE_SIZE, rva + length, PAGE_SIZE)):
                yield rva, length, word
        for rva in sorted(set(self._records)):
            if rva - rva % PAGE_SIZE in changed or (rva + LONGEST_RECORD) // PAGE_SIZE * PAGE_SIZE in changed:
                yield rva & -2, self._length(rva), self._record_word


def _no_record(_rva: int) -> int:
    return 0


def _contradict(one: Extents, other: Extents, start: int, end: int) -> bool:
    """Returns whether two images have different bytes at one place of a range."""
    return any(
        one.read(low, high - low) != other.read(low, high - low)
        for first, last in one.covered(start, end)
        for low, high in other.covered(first, last)
    )
