# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""PE images as the loader lays them out in memory: headers, exports, RSDS record, function table.

Source: Microsoft, "PE Format". File offsets equal RVAs throughout.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Mapping, NamedTuple, Optional, Sequence, Union

TEXT = 0x60000020  # code, executable, readable
RDATA = 0x40000040  # initialised data, readable
DATA = 0xC0000040  # initialised data, readable, writable
TIMESTAMP = 0x5F5E1000

_NT_OFFSET = 0x80
_EXPORT, _EXCEPTION, _DEBUG = 0, 3, 6
_CODEVIEW = 2


def guid_of(name: str) -> str:
    """32 hex digits made from a name: a GUID that is always the same and nobody else's."""
    return hashlib.md5(b"forge:" + name.encode()).hexdigest().upper()


def header_size(sections: int) -> int:
    """Bytes that the headers take with so many sections, of either bitness, rounded up."""
    return -(-(_NT_OFFSET + 24 + 0x70 + 16 * 8 + 40 * sections) // 16) * 16


class Section(NamedTuple):
    """`rva` and `size` are in bytes, `size` being the virtual size."""

    name: str
    rva: int
    size: int
    characteristics: int


class Pdb(NamedTuple):
    """What an RSDS record says; `guid` is 32 hex digits as in a symbol server's path."""

    name: str
    guid: str
    age: int = 1

    def record(self) -> bytes:
        raw = bytes.fromhex(self.guid)
        little = raw[3::-1] + raw[5:3:-1] + raw[7:5:-1] + raw[8:]
        return b"RSDS" + little + struct.pack("<I", self.age) + self.name.encode() + b"\0"


class Function(NamedTuple):
    """A RUNTIME_FUNCTION of x64: RVAs."""

    begin: int
    end: int
    unwind: int


@dataclass
class Pe:
    """A PE image; `pieces` renders what it consists of.

    `exports` maps a name to an RVA, or to a string for a forwarder ("ntdll.RtlFoo"); `ordinals`
    maps an ordinal (from 1) to an RVA exported without a name. The RSDS record is put at
    `meta_rva`, the export directory at `exports_rva` (default: behind the record), the function
    table at `pdata_rva`.
    """

    name: str
    bits: int
    base: int
    size: int
    sections: Sequence[Section]
    exports: Mapping[str, Union[int, str]] = field(default_factory=dict)
    ordinals: Mapping[int, int] = field(default_factory=dict)
    functions: Sequence[Function] = ()
    pdb: Optional[Pdb] = None
    meta_rva: int = 0
    exports_rva: int = 0
    pdata_rva: int = 0
    timestamp: int = TIMESTAMP
    checksum: int = 0
    entry_point: int = 0x1000
    dll: bool = True

    def pieces(self) -> dict[int, bytes]:
        """The image's bytes by RVA, code and data excepted."""
        directories: dict[int, tuple[int, int]] = {}
        pieces: dict[int, bytes] = {}
        at = self.meta_rva
        if self.pdb is not None:
            record = self.pdb.record()
            pieces[at + 28] = record
            pieces[at] = struct.pack(
                "<IIHHIIII", 0, self.timestamp, 0, 0, _CODEVIEW, len(record), at + 28, at + 28
            )
            directories[_DEBUG] = (at, 28)
            at += -(-(28 + len(record)) // 16) * 16
        at = self.exports_rva or at
        if self.exports or self.ordinals:
            pieces[at] = self._export_directory(at)
            directories[_EXPORT] = (at, len(pieces[at]))
        if self.functions:
            table = sorted(self.functions)
            pieces[self.pdata_rva] = b"".join(struct.pack("<III", *entry) for entry in table)
            directories[_EXCEPTION] = (self.pdata_rva, 12 * len(table))
        pieces[0] = self._headers(directories)
        return pieces

    def ordinal_of(self, name: str) -> int:
        """The ordinal that a named export gets: after the nameless ones, by name."""
        return max(self.ordinals, default=0) + 1 + sorted(self.exports).index(name)

    def _export_directory(self, at: int) -> bytes:
        names = sorted(self.exports)
        count = max(self.ordinals, default=0) + len(names)
        functions_at = at + 40
        names_at = functions_at + 4 * count
        ordinals_at = names_at + 4 * len(names)
        strings_at = ordinals_at + 2 * len(names)
        strings = bytearray()

        def string(text: str) -> int:
            rva = strings_at + len(strings)
            strings.extend(text.encode() + b"\0")
            return rva

        dll_name = string(self.name)
        name_rvas = [string(name) for name in names]
        functions = [self.ordinals.get(ordinal, 0) for ordinal in range(1, count + 1)]
        first = max(self.ordinals, default=0)
        for ordinal, name in enumerate(names, first):
            target = self.exports[name]
            functions[ordinal] = target if isinstance(target, int) else string(target)
        header = struct.pack(
            "<IIHHIIIIIII",
            0,
            self.timestamp,
            0,
            0,
            dll_name,
            1,
            count,
            len(names),
            functions_at,
            names_at,
            ordinals_at,
        )
        return b"".join(
            [
                header,
                struct.pack(f"<{count}I", *functions),
                struct.pack(f"<{len(names)}I", *name_rvas),
                struct.pack(f"<{len(names)}H", *range(first, count)),
                bytes(strings),
            ]
        )

    def _headers(self, directories: Mapping[int, tuple[int, int]]) -> bytes:
        wide = self.bits == 64
        optional_size = (0x70 if wide else 0x60) + 16 * 8
        dos = b"MZ" + bytes(0x3A) + struct.pack("<I", _NT_OFFSET)
        characteristics = 0x22 | (0x2000 if self.dll else 0) | (0 if wide else 0x100)
        file_header = struct.pack(
            "<HHIIIHH",
            0x8664 if wide else 0x14C,
            len(self.sections),
            self.timestamp,
            0,
            0,
            optional_size,
            characteristics,
        )
        code = sum(section.size for section in self.sections if section.characteristics & 0x20)
        optional = struct.pack(
            "<HBBIIIII", 0x20B if wide else 0x10B, 14, 0, code, 0, 0, self.entry_point, 0x1000
        )
        optional += struct.pack("<Q", self.base) if wide else struct.pack("<II", 0, self.base)
        optional += struct.pack("<IIHHHHHHI", 0x1000, 0x1000, 10, 0, 10, 0, 10, 0, 0)
        headers_size = -(-header_size(len(self.sections)) // 0x200) * 0x200
        optional += struct.pack("<IIIHH", self.size, headers_size, self.checksum, 3, 0x160)
        sizes = (0x40000, 0x1000, 0x100000, 0x1000)
        optional += struct.pack("<4Q" if wide else "<4I", *sizes)
        optional += struct.pack("<II", 0, 16)
        for index in range(16):
            optional += struct.pack("<II", *directories.get(index, (0, 0)))
        headers = dos.ljust(_NT_OFFSET, b"\0") + b"PE\0\0" + file_header + optional
        for section in self.sections:
            headers += struct.pack(
                "<8sIIIIIIHHI",
                section.name.encode(),
                section.size,
                section.rva,
                section.size,
                section.rva,
                0,
                0,
                0,
                0,
                section.characteristics,
            )
        return headers
