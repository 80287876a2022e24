# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads a module's image by RVA, and remembers the content of the parts that were read.

Processes share the pages of an image, but a process that writes to a page gets its own copy. The index of a
module is made from the image in one process; `ImageParts` keeps digests of the pages that it was made from,
to tell whether another process has the same content there.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Dict, Iterator, List, Optional, Tuple

from ..base.decode.extents import Extents
from ..base.decode.memory import Memory, Reader, Windows
from ..base.decode.pagetable import PAGE_SIZE
from ..base.decode.status import Word
from ..base.image import Image

WINDOW = 0x4000
_DIGEST_SIZE = 16

_Piece = Tuple[int, int]
"""RVA and length of the present part of a page."""


class ImageReader:
    """The image of a module as one layer maps it.

    Args:
        image: the memory image
        layer_name: the virtual layer
        base: canonical address of the module
        size: bytes of the module; nothing beyond is read
    """

    def __init__(self, image: Image, layer_name: str, base: int, size: int) -> None:
        self.layer_name = layer_name
        self.base = base
        self.size = size
        self._load = functools.partial(_load, image.reader(layer_name), base, size)
        self._memory = Memory(Windows(self._load, WINDOW), image.pointer_size, [(0, size)])

    def load(self, rva: int, length: int) -> Extents:
        """Returns the present parts of a range, by RVA, and does not keep them."""
        return self._load(rva, length)

    def read(self, rva: int, length: int) -> Optional[bytes]:
        """Returns the bytes of a short range, or None if any of them is missing."""
        return self._memory.read(rva, length)


def _load(reader: Reader, base: int, size: int, rva: int, length: int) -> Extents:
    found = reader(base + rva, max(min(length, size - rva), 0))
    return Extents((start - base, data) for start, data in found.runs)


class ImageParts:
    """Reads parts of an image and remembers their content as digests of their pages.

    Args:
        reader: the image in one process
    """

    def __init__(self, reader: ImageReader) -> None:
        self._reader = reader
        self._ranges: List[Tuple[Word, int, int]] = []
        self._digests: Dict[_Piece, bytes] = {}

    def load(self, part: Word, rva: int, length: int) -> Extents:
        """Returns the present parts of a range, by RVA.

        Args:
            part: the word that `difference` returns if another process has other content there
            rva: start of the range
            length: in bytes
        """
        found = self._reader.load(rva, length)
        if not any(start <= rva and rva + length <= end for _, start, end in self._ranges):
            self._ranges.append((part, rva, rva + length))
            self._digests.update(_digests(found))
        return found

    def difference(self, reader: ImageReader) -> Optional[Word]:
        """Returns the word of the first part whose content differs in another process, or None.

        A page that is missing in one of the two processes is not compared: a process has only the pages that
        it touched.

        Args:
            reader: the same image in the other process
        """
        for part, start, end in self._ranges:
            for piece, digest in _digests(reader.load(start, end - start)):
                if self._digests.get(piece, digest) != digest:
                    return part
        return None


def _digests(extents: Extents) -> Iterator[Tuple[_Piece, bytes]]:
    for start, data in extents.runs:
        low, end = start, start + len(data)
        while low < end:
            high = min((low // PAGE_SIZE + 1) * PAGE_SIZE, end)
            page = data[low - start : high - start]
            yield (low, high - low), hashlib.blake2b(page, digest_size=_DIGEST_SIZE).digest()
            low = high
