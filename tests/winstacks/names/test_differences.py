# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes to the pages of a file that all processes share: memory has no second copy, the file does."""

from __future__ import annotations

from typing import Iterator, List, Optional, Tuple

import pytest

from tests.forge import modulefile
from tests.support import bare
from winstacks.memory.decode.pagetable import PAGE_SIZE
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import StatusItem, text
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.decode.peimage import PeImage
from winstacks.names.filepages import FilePages
from winstacks.names.moduleindex import ModuleIndexes
from winstacks.names.pdbsymbols import PdbSymbols

from .test_modulefiles import BASE, TABLES, build, library

NT, DIRECTORIES = 0x80, 0x80 + 24 + 0x70
SECTIONS = DIRECTORIES + 16 * 8


class Shared:
    """A module whose pages all processes share: what an `ImageReader` gives of it, over plain bytes."""

    def __init__(self, memory: bytes, file: PeImage) -> None:
        self.layer_name, self.base, self.size, self.file = "", BASE, len(memory), file
        self._memory = memory
        self._pages = FilePages(file, BASE)

    def load(self, rva: int, length: int) -> Extents:
        return Extents([(rva, self._memory[rva : rva + length])])

    def read(self, rva: int, length: int) -> Optional[bytes]:
        data = self._memory[rva : rva + length]
        return data if len(data) == length else None

    def adds(self, rva: int, length: int) -> bool:
        return False

    def differences(self, rva: int, length: int) -> Tuple[Tuple[int, int], ...]:
        pages = range(rva - rva % PAGE_SIZE, rva + length, PAGE_SIZE)
        found = [difference for page in pages for difference in self._pages.differences(self.load, page)]
        return tuple((low, high) for low, high in found if low < rva + length and high > rva)


@pytest.fixture(scope="module")
def original() -> bytes:
    return modulefile.content(library(build("win10-x64")))


def status_text(original: bytes, memory: bytes) -> str:
    """What is said of a module whose shared pages are these."""
    image = bare.image()
    file = PeImage(lambda offset, length: original[offset : offset + length], len(original))
    indexes = ModuleIndexes(image, PdbSymbols(image))
    status = indexes._build(Shared(memory, file), None, 1 << 16).module.status  # type: ignore[arg-type]
    return text(
        tuple(status_item for status_item in status if status_item.code is StatusCode.DIFFERS_FROM_FILE)
    )


def _words(original: bytes) -> Iterator[Tuple[int, str]]:
    """Yields each number of headers, export table, function table and unwind data, and what it belongs to."""
    optional = NT + 24
    for at in (0x3C, *range(NT, SECTIONS + 4 * 40, 4)):
        # The loader writes ImageBase; CheckSum and the like are read by nobody, and compared as well.
        if not optional + 0x18 <= at < optional + 0x20:
            yield at, "headers"
    for at in range(TABLES + 16, TABLES + 40 + 40 * 4, 4):
        yield at, "exports"
    start = int.from_bytes(original[DIRECTORIES + 24 : DIRECTORIES + 28], "little")
    for at in range(start, start + 20 * 12, 4):
        yield at, "function table"
    first = int.from_bytes(original[start + 8 : start + 12], "little")
    for at in range(first, first + 4, 2):
        yield at, "unwind data"


def test_without_a_write_nothing_is_said(original: bytes) -> None:
    assert status_text(original, original) == ""


def test_the_loader_may_write_imagebase(original: bytes) -> None:
    memory = bytearray(original)
    memory[NT + 24 + 0x18] ^= 0xFF
    memory[NT + 24 + 0x1E] ^= 0x7F
    assert status_text(original, bytes(memory)) == ""


def test_each_write_is_said_with_the_part_that_it_is_in(original: bytes) -> None:
    silent: List[Tuple[int, str]] = []
    count = 0
    for at, part in _words(original):
        for value in (b"\0\0\0\0", b"\x34\xff\x12\xff"):
            memory = bytearray(original)
            memory[at : at + 4] = value
            if memory != original:
                count += 1
                if part not in status_text(original, bytes(memory)):
                    silent.append((at, part))
    assert count > 250
    assert silent == []


def test_a_status_names_all_parts(original: bytes) -> None:
    memory = bytearray(original)
    memory[TABLES + 0x2C] ^= 1
    memory[NT + 8] ^= 1
    assert status_text(original, bytes(memory)) == text(
        (StatusItem(StatusCode.DIFFERS_FROM_FILE, None, ("exports", "headers")),)
    )
