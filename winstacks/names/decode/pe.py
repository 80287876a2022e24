# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the headers of a module from the image in memory: machine, sections, and PDB.

All locations are RVAs. The headers of a mapped module are in memory that the module can write, so every
number is bounded here. Unreadable headers and invalid headers are different errors.

Source: Microsoft, "PE Format"; the RSDS record is described by the public `CV_INFO_PDB70`.
"""

from __future__ import annotations

import struct
import uuid
from typing import Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import unsigned
from ...memory.decode.text import last_part
from .unwindinfo import Bytes, ReadRva

MACHINE_I386 = 0x14C
MACHINE_AMD64 = 0x8664
MACHINE_ARM64 = 0xAA64

DIRECTORY_EXPORT = 0
DIRECTORY_RESOURCE = 2
DIRECTORY_EXCEPTION = 3
DIRECTORY_DEBUG = 6
DIRECTORY_LOAD_CONFIG = 10
DIRECTORY_COM_DESCRIPTOR = 14

MEM_DISCARDABLE = 0x02000000
MEM_EXECUTE = 0x20000000
MEM_WRITE = 0x80000000

MAX_SECTIONS = 96
"""Maximum number of sections that the loader accepts (PE Format, "COFF File Header")."""

MAX_IMAGE = 1 << 31
"""Maximum bytes of an image."""
MAX_DEBUG_ENTRIES = 32
MAX_PDB_PATH = 0x400

_FILE_HEADER = struct.Struct("<4sHHIIIHH")
SECTION = struct.Struct("<8sIIIIIIHHI")
_DEBUG_DIRECTORY = struct.Struct("<IIHHIIII")
_DEBUG_TYPE_CODEVIEW = 2
_CHECKSUM = 0x40
"""Offset of CheckSum in the optional header, for 32 and 64 bits."""
_OPTIONAL_HEADER = {0x10B: (0x5C, 0x60), 0x20B: (0x6C, 0x70)}
"""Magic -> offsets of NumberOfRvaAndSizes and DataDirectory."""


class HeaderError(Exception):
    """The headers cannot be used; `code` says whether they are unreadable or invalid."""

    def __init__(self, code: StatusCode) -> None:
        super().__init__(code.value)
        self.code = code


class Section(NamedTuple):
    """A section of an image. `end` is the RVA behind the section, at most SizeOfImage."""

    start: int
    end: int
    name: str
    characteristics: int


class Headers(NamedTuple):
    """Values of the PE headers.

    Attributes:
        sections: sections that are not empty, by RVA
        directories: (RVA, size) of the data directories as stored, as many as there are
        section_starts: RVAs of all sections in the order of the section table, empty ones included: the
            section with number 1 is the first
    """

    machine: int
    timestamp: int
    size: int
    sections: Tuple[Section, ...]
    directories: Tuple[Tuple[int, int], ...]
    section_starts: Tuple[int, ...] = ()

    def directory(self, index: int) -> Tuple[int, int]:
        """Returns (RVA, size) of a data directory that lies within the image, else (0, 0)."""
        rva, size = self.directories[index] if index < len(self.directories) else (0, 0)
        return (rva, min(size, self.size - rva)) if 0 < rva < self.size else (0, 0)


class CodeView(NamedTuple):
    """The values of an RSDS record, which identifies the PDB of a module.

    Attributes:
        guid: GUID, 32 hexadecimal digits in upper case
        pdb_name: file name of the PDB, without folders
    """

    guid: str
    age: int
    pdb_name: str


def read_headers(read: ReadRva) -> Headers:
    """Parses the headers at RVA 0.

    Raises HeaderError if the headers are not PE headers or are not in the image: the page is absent, or all
    zeros, as tools write for a page that they cannot read.
    """
    dos = _need(read, 0, 0x40)
    (start,) = struct.unpack_from("<I", dos, 0x3C)
    if bytes(dos[:2]) != b"MZ" or not 0x40 <= start < MAX_IMAGE:
        absent = not any(dos) and not any(read(0, PAGE_SIZE) or b"")
        raise HeaderError(StatusCode.HEADERS_UNREADABLE if absent else StatusCode.HEADERS_INVALID)
    fields = _FILE_HEADER.unpack(_need(read, start, _FILE_HEADER.size))
    signature, machine, section_count, timestamp, _, _, optional_size, _ = fields
    if signature != b"PE\0\0" or section_count > MAX_SECTIONS:
        raise HeaderError(StatusCode.HEADERS_INVALID)
    optional = _need(read, start + _FILE_HEADER.size, optional_size)
    magic = struct.unpack_from("<H", optional)[0] if len(optional) >= 2 else 0
    count_offset, directory_offset = _OPTIONAL_HEADER.get(magic, (0, 0))
    if not count_offset or len(optional) < directory_offset:
        raise HeaderError(StatusCode.HEADERS_INVALID)
    size = struct.unpack_from("<I", optional, 0x38)[0]
    count = min(
        struct.unpack_from("<I", optional, count_offset)[0], (len(optional) - directory_offset) // 8, 16
    )
    words = struct.unpack_from(f"<{2 * count}I", optional, directory_offset)
    table = _need(read, start + _FILE_HEADER.size + optional_size, section_count * SECTION.size)
    if not 0 < size <= MAX_IMAGE:
        raise HeaderError(StatusCode.HEADERS_INVALID)
    sections = [_section(fields, size) for fields in SECTION.iter_unpack(table)]
    return Headers(
        machine,
        timestamp,
        size,
        tuple(sorted(section for section in sections if section.start < section.end)),
        tuple(zip(words[::2], words[1::2])),
        tuple(section.start for section in sections),
    )


def read_codeview(read: ReadRva, headers: Headers) -> Optional[CodeView]:
    """Returns the values of a module's RSDS record, None if there is none or it cannot be read."""
    return codeview_of(read_codeview_record(read, headers))


def read_codeview_record(read: ReadRva, headers: Headers) -> Optional[Bytes]:
    """Returns the bytes of the record that names the PDB, None if there is none or it cannot be read."""
    rva, size = headers.directory(DIRECTORY_DEBUG)
    for index in range(min(size // _DEBUG_DIRECTORY.size, MAX_DEBUG_ENTRIES)):
        entry = read(rva + index * _DEBUG_DIRECTORY.size, _DEBUG_DIRECTORY.size)
        if entry is None:
            return None
        _, _, _, _, kind, length, data_rva, _ = _DEBUG_DIRECTORY.unpack(entry)
        if kind == _DEBUG_TYPE_CODEVIEW and length > 24:
            return read(data_rva, min(length, 24 + MAX_PDB_PATH))
    return None


def read_checksum(read: ReadRva) -> Optional[int]:
    """Returns CheckSum of the optional header, None if it cannot be read. Raises HeaderError if the start of
    the headers cannot be read."""
    start = int.from_bytes(_need(read, 0x3C, 4), "little")
    return unsigned(read(start + _FILE_HEADER.size + _CHECKSUM, 4))


def codeview_of(record: Optional[Bytes]) -> Optional[CodeView]:
    """Returns the values of an RSDS record, None without bytes or if they are no such record."""
    data = bytes(record or b"")
    if data[:4] != b"RSDS" or len(data) < 24:
        return None
    guid = uuid.UUID(bytes_le=data[4:20])
    name = last_part(data[24:].split(b"\0", 1)[0].decode("utf-8", "replace"))
    return CodeView(guid.hex.upper(), int.from_bytes(data[20:24], "little"), name)


def _need(read: ReadRva, rva: int, length: int) -> memoryview:
    """Returns bytes of the headers. Raises HeaderError if some of them cannot be read. What leads beyond the
    first page is taken for a write to them, although 96 sections would not fit there: in 228 files of several
    compilers they end below 1,400 bytes."""
    data = read(rva, length)
    if data is None:
        within = rva + length <= PAGE_SIZE
        raise HeaderError(StatusCode.HEADERS_UNREADABLE if within else StatusCode.HEADERS_INVALID)
    return memoryview(data)


def _section(fields: Tuple[bytes, int, int, int, int, int, int, int, int, int], size: int) -> Section:
    """Returns a section from the values of its header, cut at the size of the image."""
    name, virtual_size, start, raw_size = fields[:4]
    return Section(
        start, min(start + (virtual_size or raw_size), size), name.rstrip(b"\0").decode("latin-1"), fields[9]
    )
