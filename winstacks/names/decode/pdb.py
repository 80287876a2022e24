# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The functions that a PDB names, with their RVAs.

    pdb = Pdb(read, size)
    pdb.guid, pdb.age
    pdb.symbols()          # (RVA, name)

Volatility's own converter reads public symbols too, and takes a reference to a static function (S_LPROCREF)
for the function's address. So the functions of modules (S_GPROC32, S_LPROC32) are read from the modules'
streams here, where their addresses stand.

Source: LLVM, "The PDB File Format" (MSF, the PDB Info Stream, the DBI Stream, module streams), and
Microsoft's "microsoft-pdb" (cvinfo.h: PUBSYM32, PROCSYM32; omap). Old PDBs ("program database 2.00") cannot
be read.
"""

from __future__ import annotations

import bisect
import struct
import uuid
from functools import cached_property
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from ...memory.decode.memory import ReadFile
from ...memory.decode.records import NamedTuple
from .pe import SECTION

MAGIC = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0"

MAX_STREAMS = 1 << 16
"""Greatest number of streams: each compiled file has one."""

MAX_SYMBOLS = 1 << 22
"""Greatest number of symbols that are kept."""

_PAGE_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_INFO, _DBI = 1, 3
_ABSENT = 0xFFFFFFFF
_NO_STREAM = 0xFFFF
_SUPERBLOCK = struct.Struct("<IIIIII")
_ROOTS = len(MAGIC) + 20
_INFO_HEADER = struct.Struct("<III16s")
_DBI_HEADER = struct.Struct("<iIIHHHHHHiiiiiIiiHHI")
_MODULE = struct.Struct("<I28sHHIIIHHIII")
_MODULE_SIZE = 64
_PUBLIC = struct.Struct("<IIH")
_FUNCTION = struct.Struct("<IIIIIIIIHB")
_PUBLIC_SYMBOL = 0x110E
_FUNCTIONS = (0x110F, 0x1110, 0x1146, 0x1147)
"""S_LPROC32, S_GPROC32, and these with the ID of a function (S_LPROC32_ID, S_GPROC32_ID)."""

_OMAP_FROM_SOURCE, _SECTIONS, _ORIGINAL_SECTIONS = 4, 5, 10
"""Places of stream numbers in the DBI stream's optional debug header."""


class PdbError(ValueError):
    """The file is not a PDB that can be read; the text is the end of a sentence about the file."""


class Symbol(NamedTuple):
    """A symbol: its RVA in the module, and its name as the PDB has it."""

    rva: int
    name: str


class Pdb:
    """A PDB.

    Attributes:
        guid: GUID in the form of `CodeView.guid`
        age: age of the debug information, which the RSDS record of the module repeats

    Raises:
        PdbError: the file is no PDB, or its structure contradicts itself
    """

    def __init__(self, read: ReadFile, size: int) -> None:
        self._read = read
        head = read(0, len(MAGIC) + _SUPERBLOCK.size)
        if len(head) < len(MAGIC) + _SUPERBLOCK.size or head[: len(MAGIC)] != MAGIC:
            raise PdbError("is not a PDB of version 7")
        self._page, _, _, directory, _, _ = _SUPERBLOCK.unpack_from(head, len(MAGIC))
        # Each byte of the file is in one stream. Twice as many bytes mean that pages are listed repeatedly.
        self._left = 2 * size
        if self._page not in _PAGE_SIZES or directory > size:
            raise PdbError("is damaged: its superblock contradicts itself")
        pages = -(-directory // self._page)
        # The last member of the superblock is the first of the pages that number the directory's pages.
        roots = -(-4 * pages // self._page)
        more = read(_ROOTS, 4 * roots)
        if len(more) < 4 * roots:
            raise PdbError("is cut within its superblock")
        numbers = self._pages(struct.unpack(f"<{roots}I", more), 4 * pages)
        self._streams = self._directory(self._pages(struct.unpack(f"<{pages}I", numbers), directory))
        info = self._stream(_INFO)
        self._dbi = self._stream(_DBI)
        if len(info) < _INFO_HEADER.size or len(self._dbi) < _DBI_HEADER.size:
            raise PdbError("is damaged: it lacks the streams of its ID")
        self.guid = uuid.UUID(bytes_le=_INFO_HEADER.unpack_from(info)[3]).hex.upper()
        self.age = self._parts[2]
        if min(self._sizes) < 0:
            raise PdbError("is damaged: the sizes in its DBI stream are negative")

    def _pages(self, numbers: Sequence[int], size: int) -> bytes:
        """Returns the bytes of some pages of the file."""
        parts, left, place = [], size, 0
        while place < len(numbers) and left:
            first = place
            place += 1
            # Pages that follow each other in the file are read at once.
            while place < len(numbers) and numbers[place] == numbers[place - 1] + 1:
                place += 1
            length = min((place - first) * self._page, left)
            data = self._read(numbers[first] * self._page, length)
            if len(data) < length:
                raise PdbError("is cut: its pages end behind the end of the file")
            parts.append(data)
            left -= length
        if left:
            raise PdbError("is damaged: a stream has fewer pages than bytes")
        return b"".join(parts)

    def _directory(self, data: bytes) -> List[Tuple[int, Tuple[int, ...]]]:
        """Returns size and pages of each stream."""
        try:
            (count,) = struct.unpack_from("<I", data)
            if count > MAX_STREAMS:
                raise PdbError(f"has {count} streams")
            sizes = struct.unpack_from(f"<{count}I", data, 4)
            found, place = [], 4 + 4 * count
            for size in sizes:
                size = 0 if size == _ABSENT else size
                pages = -(-size // self._page)
                found.append((size, struct.unpack_from(f"<{pages}I", data, place)))
                place += 4 * pages
            return found
        except struct.error as error:
            raise PdbError("is damaged: its directory of streams is too short") from error

    def _stream(self, number: int) -> bytes:
        """Returns a stream, empty if there is none."""
        if not 0 <= number < len(self._streams):
            return b""
        size, pages = self._streams[number]
        self._left -= size
        if self._left < 0:
            raise PdbError("is damaged: its streams have more bytes than the file")
        return self._pages(pages, size)

    @cached_property
    def _parts(self) -> Tuple[int, ...]:
        return tuple(_DBI_HEADER.unpack_from(self._dbi))

    @property
    def _sizes(self) -> Tuple[int, ...]:
        """Sizes of the parts of the DBI stream in their order; the optional debug header is last."""
        return (*self._parts[9:14], self._parts[16], self._parts[15])

    @cached_property
    def _addresses(self) -> _Addresses:
        """The conversion of section and offset into an RVA."""
        *before, size = self._sizes
        at = _DBI_HEADER.size + sum(before)
        header = self._dbi[at : at + size]
        numbers = struct.unpack(f"<{len(header) // 2}H", header[: len(header) // 2 * 2])

        def named(place: int) -> bytes:
            number = numbers[place] if place < len(numbers) else _NO_STREAM
            return b"" if number == _NO_STREAM else self._stream(number)

        original, omap = named(_ORIGINAL_SECTIONS), named(_OMAP_FROM_SOURCE)
        return _Addresses(original or named(_SECTIONS), omap if original else b"")

    def symbols(self) -> Iterator[Symbol]:
        """Yields the functions of the PDB's modules, then the public symbols at other addresses. Raises
        PdbError if a stream is damaged or cut."""
        seen: Dict[int, None] = {}
        for symbol in (*self._functions(), *self._publics()):
            if len(seen) >= MAX_SYMBOLS:
                return
            if symbol.rva not in seen:
                seen[symbol.rva] = None
                yield symbol

    def _publics(self) -> Iterator[Symbol]:
        for kind, data in _records(self._stream(self._parts[7]), 0):
            if kind == _PUBLIC_SYMBOL and len(data) > _PUBLIC.size:
                _, offset, section = _PUBLIC.unpack_from(data)
                yield from self._symbol(section, offset, data[_PUBLIC.size :], True)

    def _functions(self) -> Iterator[Symbol]:
        end = _DBI_HEADER.size + max(self._parts[9], 0)
        place, read = _DBI_HEADER.size, set()
        while place + _MODULE_SIZE <= min(end, len(self._dbi)):
            _, _, _, stream, size, *_ = _MODULE.unpack_from(self._dbi, place)
            if stream != _NO_STREAM and stream not in read:
                read.add(stream)
                # The first 4 bytes are a signature.
                yield from self._of_module(self._stream(stream)[: max(size, 4)])
            place = _behind_names(self._dbi, place + _MODULE_SIZE, 2)

    def _of_module(self, data: bytes) -> Iterator[Symbol]:
        for kind, record in _records(data, 4):
            if kind in _FUNCTIONS and len(record) > _FUNCTION.size:
                *_, offset, section, _ = _FUNCTION.unpack_from(record)
                yield from self._symbol(section, offset, record[_FUNCTION.size :], False)

    def _symbol(self, section: int, offset: int, name: bytes, public: bool) -> Iterator[Symbol]:
        rva = self._addresses.rva(section, offset)
        text = name.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
        if rva is not None and text:
            yield Symbol(rva, _stripped(text) if public else text)


class _Addresses:
    """Converts section and offset into an RVA. `omap` has pairs of an RVA of the linked file, and of the file
    after its functions were moved; it may be empty."""

    def __init__(self, sections: bytes, omap: bytes) -> None:
        whole = len(sections) - len(sections) % SECTION.size
        self._starts = [section[2] for section in SECTION.iter_unpack(sections[:whole])]
        pairs = sorted(struct.iter_unpack("<II", omap[: len(omap) - len(omap) % 8]))
        self._from = [source for source, _ in pairs]
        self._to = [target for _, target in pairs]

    def rva(self, section: int, offset: int) -> Optional[int]:
        """Returns the RVA; None if there is no such section, or if the address was removed."""
        if not 1 <= section <= len(self._starts):
            return None
        address = self._starts[section - 1] + offset
        if not self._from:
            return address
        place = bisect.bisect_right(self._from, address) - 1
        if place < 0 or not self._to[place]:
            return None
        return self._to[place] + address - self._from[place]


def _records(data: bytes, place: int) -> Iterator[Tuple[int, bytes]]:
    """Yields kind and bytes of each symbol record."""
    while place + 4 <= len(data):
        length, kind = struct.unpack_from("<HH", data, place)
        if length < 2:
            return
        yield kind, data[place + 4 : place + 2 + length]
        place += 2 + length


def _behind_names(data: bytes, place: int, count: int) -> int:
    """Returns the offset behind some zero-terminated names, aligned to 4 bytes."""
    for _ in range(count):
        end = data.find(b"\0", place)
        if end < 0:
            return len(data)
        place = end + 1
    return place + -place % 4


def _stripped(name: str) -> str:
    """Returns a public name without the decoration of C, as Volatility's symbol tables have it."""
    plain = name[1:] if name[:1] in ("_", "@") else name
    head, _, arguments = plain.partition("@")
    return head if head and arguments.isdecimal() and not head.startswith("?") else plain
