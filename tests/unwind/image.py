# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A compiled program as the walker sees a module: bytes by RVA, its function table, where its code lies."""

from __future__ import annotations

import pathlib
import struct
from typing import Dict, List, Optional, Tuple

import pefile

from winstacks.names.decode.functiontable import FunctionTable
from winstacks.names.decode.unwindinfo import ALLOC_LARGE
from winstacks.stacks.decode.frames import CodeImage

EXECUTABLE = 0x20000000


class Program:
    """A PE file as the loader would map it at its preferred base."""

    def __init__(self, path: pathlib.Path) -> None:
        pe = pefile.PE(str(path))
        self.base: int = pe.OPTIONAL_HEADER.ImageBase
        self.entry: int = self.base + pe.OPTIONAL_HEADER.AddressOfEntryPoint
        self.memory = bytes(pe.get_memory_mapped_image()).ljust(pe.OPTIONAL_HEADER.SizeOfImage, b"\0")
        self.imports: Dict[int, str] = {
            entry.address: entry.name.decode()
            for library in getattr(pe, "DIRECTORY_ENTRY_IMPORT", [])
            for entry in library.imports
        }
        self.code: List[Tuple[int, int]] = [
            (section.VirtualAddress, section.VirtualAddress + section.Misc_VirtualSize)
            for section in pe.sections
            if section.Characteristics & EXECUTABLE
        ]
        directory = pe.OPTIONAL_HEADER.DATA_DIRECTORY[3]
        self.pdata = self.memory[directory.VirtualAddress : directory.VirtualAddress + directory.Size]
        self.symbols = _symbols(pe)

    def read_rva(self, rva: int, length: int) -> Optional[bytes]:
        """Reads the image."""
        return self.memory[rva : rva + length] if rva >= 0 and rva + length <= len(self.memory) else None

    def image(self) -> CodeImage:
        """Returns the module for the walker."""
        table = FunctionTable.from_bytes(self.pdata, self.read_rva) if self.pdata else None
        return CodeImage(self.base, len(self.memory), self.read_rva, table, tuple(self.code))


def frames_of(size: int, frame: int, base: int, count: int) -> CodeImage:
    """Returns a module of functions of `size` bytes, each with a frame of `frame` bytes throughout.

    Each calls from its middle.
    """
    unwind = struct.pack("<BBBBBBH", 1, 0, 2, 0, 0, ALLOC_LARGE, frame // 8)
    end = size * count
    entries = [struct.pack("<III", start, start + size, end) for start in range(0, end, size)]
    call = b"\xe8\0\0\0\0"
    memory = (b"\xc3" * (size // 2 - len(call)) + call + b"\xc3" * (size - size // 2)) * count + unwind
    read_rva = lambda rva, length: memory[rva : rva + length] if rva >= 0 else None  # noqa: E731
    return CodeImage(base, len(memory), read_rva, FunctionTable.from_bytes(b"".join(entries), read_rva))


def _symbols(pe: pefile.PE) -> Dict[str, int]:
    """Returns the RVAs of the COFF symbols that lie in sections, by name."""
    header, data = pe.FILE_HEADER, bytes(pe.__data__)
    start, size = header.PointerToSymbolTable, 18
    strings = start + size * header.NumberOfSymbols
    found: Dict[str, int] = {}
    position = start
    while position < strings:
        entry = data[position : position + size]
        name, value, section = entry[:8], int.from_bytes(entry[8:12], "little"), entry[12] | entry[13] << 8
        if name[:4] == b"\0\0\0\0":
            offset = strings + int.from_bytes(name[4:], "little")
            name = data[offset : data.index(b"\0", offset)]
        if 0 < section <= len(pe.sections):
            found.setdefault(name.rstrip(b"\0").decode(), pe.sections[section - 1].VirtualAddress + value)
        position += size * (1 + entry[17])
    return found
