# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A PE file as the loader maps it: the bytes of each page of the image, from the file.

    file = PeImage(read, size)              # read(offset, length) -> bytes, fewer at the end
    page = file.page(rva, base)             # bytes, and the ranges in which memory has the same bytes
    page.data[low:high] for low, high in page.known

A file is hostile input, too: every number is bounded by the size of the file or of the image. Memory differs
from the file where a program writes (writable sections), where the kernel frees memory (discardable sections)
and where the loader writes (`loaderwrites`). The file does not determine the memory of these parts.

Source: Microsoft, "PE Format". Windows Internals, "Section objects", describes that an image whose sections
are aligned to less than a page is mapped in the layout of the file.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from ...memory.decode.memo import Memo
from ...memory.decode.pagetable import PAGE_SIZE, round_to_pages
from ...memory.decode.records import NamedTuple
from . import loaderwrites, relocations
from .pe import (
    MEM_DISCARDABLE,
    MEM_WRITE,
    SECTION,
    CodeView,
    HeaderError,
    Headers,
    read_codeview,
    read_headers,
)
from .relocations import RelocationBlock

ReadOffset = Callable[[int, int], bytes]
"""Takes an offset and a length; returns the bytes of a file there, fewer where the file ends."""

MAX_HEADERS = 1 << 16
"""Maximum bytes of headers: the loader's limit is one page, or the room for a table of 96 sections."""

_SIGNATURE_AND_FILE_HEADER = 24
_SECTION_SECTOR = 0x200
"""Unit of PointerToRawData in bytes: the loader ignores the lower bits."""

_MOST_BLOCKS = 8
"""Maximum number of relocation blocks of a page."""

_PAGES_KEPT = 64
_CHUNK = 1 << 20
"""Maximum bytes that are read at once."""

Ranges = Tuple[Tuple[int, int], ...]
"""(start, end) of ranges of a page, ascending, relative to its start."""


class PeFileError(Exception):
    """The file cannot be mapped as an image; the text has the reason, as the end of a sentence about it."""


class FilePage(NamedTuple):
    """A page of an image, from its file.

    Attributes:
        data: PAGE_SIZE bytes, relocated
        known: ranges in which unchanged memory has the bytes of `data`; these fill gaps of memory
        compared: ranges in which a difference proves that memory was changed. These are the ranges in `known`
            without the bytes behind the end of a section and without the header's ImageBase. Empty if the
            bytes that the loader writes are not known completely
    """

    data: bytes
    known: Ranges
    compared: Ranges


class _Part(NamedTuple):
    """A part of the image: the headers or a section.

    Attributes:
        end: RVA of the end of its last page
        size: bytes of the part, without the padding of the last page
        length: bytes in the file; the rest of the part is zeros
    """

    start: int
    end: int
    size: int
    offset: int
    length: int


class PeImage:
    """A PE file.

    Attributes:
        code_view: RSDS record, None if there is none
        image_base: preferred address of the image (ImageBase)
        check_sum: CheckSum, 0 if the linker stored none

    Raises:
        PeFileError: the file is not a PE file, is truncated, or contradicts itself
    """

    def __init__(self, read: ReadOffset, size: int, path: str = "") -> None:
        self.path = path
        self._read = read
        self.file_size = size
        try:
            self.headers: Headers = read_headers(self._at_offset)
        except HeaderError:
            raise PeFileError("has no headers of a PE file") from None
        self._parse_optional()
        self._parts = self._find_parts()
        self.code_view: Optional[CodeView] = read_codeview(self.read_rva, self.headers)
        self._blocks = self._relocations()
        written = loaderwrites.find_writes(self.read_rva, self.headers, self.image_base)
        self._all_written = written.whole
        self._written: Dict[int, List[Tuple[int, int]]] = {}
        for low, high in written.ranges:
            for page in range(low - low % PAGE_SIZE, high, PAGE_SIZE):
                self._written.setdefault(page, []).append((low, high))
        self._pages: Memo[Tuple[int, int], Optional[FilePage]] = Memo(self._make_page, _PAGES_KEPT)

    def page(self, rva: int, base: int) -> Optional[FilePage]:
        """Returns a page of an image that is mapped at an address, None if no part of the image covers it.
        `rva` is the page's, a multiple of PAGE_SIZE."""
        return self._pages[rva, base]

    def read_rva(self, rva: int, length: int) -> Optional[bytes]:
        """Returns bytes of the image without relocation; None if any of them is in no part of the image."""
        content = bytearray()
        while len(content) < length:
            position = rva + len(content)
            part = self._part(position)
            if part is None:
                return None
            count = min(length - len(content), part.end - position, _CHUNK)
            content += self._content(part, position, count)
        return bytes(content)

    def content_sum(self) -> int:
        """Returns the correct CheckSum: the sum of the file's 16-bit words and its length.

        Source: the CheckSum of files linked by Microsoft and GNU ld, as `pefile` computes it, too.
        """
        total = 0
        for offset in range(0, self.file_size, _CHUNK):
            chunk = bytearray(self._read(offset, _CHUNK))
            for position in range(self._sum_at, self._sum_at + 4):
                if offset <= position < offset + len(chunk):
                    chunk[position - offset] = 0
            # The sum of 16-bit words with folded carries is the remainder by 0xFFFF, but never folds to 0.
            total += int.from_bytes(chunk, "little")
            total = total and (total - 1) % 0xFFFF + 1
        return total + self.file_size

    def _parse_optional(self) -> None:
        """Reads the values that `Headers` does not have. Raises PeFileError if a number is outside the range
        that the loader accepts."""
        (start,) = struct.unpack("<I", self._need(0x3C, 4))
        optional = start + _SIGNATURE_AND_FILE_HEADER
        magic, alignment, head = (
            struct.unpack("<H", self._need(optional, 2))[0],
            *struct.unpack("<I", self._need(optional + 0x20, 4)),
            *struct.unpack("<I", self._need(optional + 0x3C, 4)),
        )
        self._wide = magic == 0x20B
        self._base_at, self._base_size = optional + (0x18 if self._wide else 0x1C), 8 if self._wide else 4
        self.image_base = int.from_bytes(self._need(self._base_at, self._base_size), "little")
        self._sum_at = optional + 0x40
        (self.check_sum,) = struct.unpack("<I", self._need(self._sum_at, 4))
        if not 0 < head <= min(MAX_HEADERS, self.headers.size):
            raise PeFileError(f"has a SizeOfHeaders of {head:#x}")
        if not alignment or alignment & alignment - 1:
            raise PeFileError(f"has a SectionAlignment of {alignment:#x}")
        self._flat = alignment < PAGE_SIZE
        self._head = head
        count, size = struct.unpack("<2xH12xH", self._need(start + 4, 18))
        table = self._need(optional + size, count * SECTION.size)
        self._table: Sequence[Tuple[int, ...]] = [
            (*fields[1:5], fields[9]) for fields in SECTION.iter_unpack(table)
        ]

    def _find_parts(self) -> List[_Part]:
        """Returns the parts of the image by RVA: the headers and the sections. Raises PeFileError if the file
        ends before a section does, or sections overlap."""
        self._unlike: List[Tuple[int, int]] = []
        parts = [_Part(0, round_to_pages(self._head), self._head, 0, self._head)]
        end = self.headers.size
        for virtual, rva, raw, pointer, characteristics in self._table:
            size = min(virtual or raw, end - rva)
            if size <= 0:
                continue
            offset = rva if self._flat else pointer & -_SECTION_SECTOR
            length = 0 if not (pointer and raw) else min(raw, round_to_pages(size))
            if offset + length > self.file_size:
                raise PeFileError(
                    f"is truncated: a section ends at {offset + length:#x}, the file at {self.file_size:#x}"
                )
            if characteristics & (MEM_WRITE | MEM_DISCARDABLE):
                self._unlike.append((rva, rva + size))
            parts.append(_Part(rva, rva + round_to_pages(size), size, offset, length))
        parts.sort()
        if self._flat:
            # Such an image is mapped in one piece, which may end before its last page does.
            size = min(end, self.file_size)
            return [_Part(0, round_to_pages(size), size, 0, size)]
        if any(one.end > other.start or other.start % PAGE_SIZE for one, other in zip(parts, parts[1:])):
            raise PeFileError("has sections that overlap")
        return parts

    def _relocations(self) -> Dict[int, List[RelocationBlock]]:
        """Returns the blocks of relocations, by the RVA of their page: usually one for each page. Raises
        PeFileError if the blocks cannot be read to their end, or a page has more than linkers make."""
        rva, size = self.headers.directory(relocations.DIRECTORY_RELOCATIONS)
        by_page: Dict[int, List[RelocationBlock]] = {}
        for block in relocations.blocks(self.read_rva, rva, size):
            if block.page == relocations.END:
                return by_page
            page_blocks = by_page.setdefault(block.page - block.page % PAGE_SIZE, [])
            page_blocks.append(block)
            entries = sum(page_block.length for page_block in page_blocks)
            if len(page_blocks) > _MOST_BLOCKS or entries > relocations.LONGEST:
                break
        raise PeFileError("has relocations that cannot be read")

    def _make_page(self, key: Tuple[int, int]) -> Optional[FilePage]:
        """Returns a page by its RVA and the address of the image; None if no part of the image covers it."""
        rva, base = key
        part = self._part(rva)
        if part is None:
            return None
        data = self._relocated(rva, base, bytearray(self._content(part, rva, PAGE_SIZE)))
        excluded = [*_clip_to_page(self._unlike, rva), *_clip_to_page(self._written.get(rva, ()), rva)]
        known = _subtract(excluded, PAGE_SIZE)
        # The memory manager, not the file, determines the bytes behind the end of a part.
        end = min(part.start + part.size - rva, PAGE_SIZE)
        if not rva:
            excluded.append((self._base_at, self._base_at + self._base_size))
        return FilePage(bytes(data), known, _subtract(excluded, end) if self._all_written else ())

    def _relocated(self, rva: int, base: int, data: bytearray) -> bytearray:
        """Relocates the bytes of a page, and returns them. `data` has the bytes of the page, changed in
        place."""
        delta = base - self.image_base
        content = bytes(data)
        if not rva:
            data[self._base_at : self._base_at + self._base_size] = (
                base % (1 << 8 * self._base_size)
            ).to_bytes(self._base_size, "little")
        # A number may begin on the previous page, and the RVA of a block may lie within a page.
        pages = range(rva - 2 * PAGE_SIZE, rva + 1, PAGE_SIZE) if delta else ()
        for block in (block for page in pages for block in self._blocks.get(page, ())):
            for offset, size in relocations.slots(self.read_rva, block) or ():
                low = block.page + offset - rva
                if not -size < low < PAGE_SIZE:
                    continue
                within = low >= 0 and low + size <= PAGE_SIZE
                number = content[low : low + size] if within else self.read_rva(block.page + offset, size)
                if number is None:
                    continue
                moved = (int.from_bytes(number, "little") + delta) % (1 << 8 * size)
                first, last = max(low, 0), min(low + size, PAGE_SIZE)
                data[first:last] = moved.to_bytes(size, "little")[first - low : last - low]
        return data

    def _part(self, rva: int) -> Optional[_Part]:
        """Returns the part that holds an RVA, None if there is none. An image has at most 97 parts."""
        return next((part for part in self._parts if part.start <= rva < part.end), None)

    def _content(self, part: _Part, rva: int, length: int) -> bytes:
        """Returns bytes of a part, with zeros in place of bytes that the file does not have."""
        at = rva - part.start
        count = min(max(part.length - at, 0), length)
        data = self._read(part.offset + at, count) if count else b""
        return data + bytes(length - len(data))

    def _at_offset(self, offset: int, length: int) -> Optional[bytes]:
        """Returns bytes of the headers by their offset in the file, None if some are missing or too many."""
        if length > MAX_HEADERS or offset + length > self.file_size:
            return None
        data = self._read(offset, length)
        return data if len(data) == length else None

    def _need(self, offset: int, length: int) -> bytes:
        """Returns bytes of the headers. Raises PeFileError if the file ends before them."""
        data = self._at_offset(offset, length)
        if data is None:
            raise PeFileError("ends within its headers")
        return data


def _clip_to_page(ranges: Sequence[Tuple[int, int]], rva: int) -> List[Tuple[int, int]]:
    """Returns the parts of ranges that lie in the page at an RVA, relative to the start of the page."""
    clipped = ((max(low - rva, 0), min(high - rva, PAGE_SIZE)) for low, high in ranges)
    return [(low, high) for low, high in clipped if low < high]


def _subtract(ranges: Sequence[Tuple[int, int]], end: int) -> Ranges:
    """Returns the rest of the range from 0 to an end after some ranges are removed from it."""
    free, position = [], 0
    for low, high in sorted(ranges):
        if position < min(low, end):
            free.append((position, min(low, end)))
        position = max(position, high)
    if position < end:
        free.append((position, end))
    return tuple(free)
