# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the index of a module was made of: enough to tell whether another process has the same there.

Windows shares the pages of an image, but a process that writes to its pages has its own ones from then on.
"""

from __future__ import annotations

import hashlib
from typing import Dict, Iterator, List, Tuple

from ..base.decode.extents import Extents
from ..base.decode.pagetable import PAGE_SIZE
from .imagereader import ImageReader

_DIGEST_SIZE = 16

_Piece = Tuple[int, int]
"""RVA and length of what is present of a page."""


class ImageParts:
    """Reads parts of an image and remembers what they held, as digests of their pages.

    Args:
        reader: the image in one process
    """

    def __init__(self, reader: ImageReader) -> None:
        self._reader = reader
        self._ranges: List[Tuple[str, int, int]] = []
        self._digests: Dict[_Piece, bytes] = {}

    def load(self, part: str, rva: int, length: int) -> Extents:
        """Returns what is present of a range, by RVA.

        Args:
            part: what `difference` says if another process has it otherwise
            rva: where it starts
            length: in bytes
        """
        found = self._reader.load(rva, length)
        if not any(start <= rva and rva + length <= end for _, start, end in self._ranges):
            self._ranges.append((part, rva, rva + length))
            self._digests.update(_digests(found))
        return found

    def difference(self, reader: ImageReader) -> str:
        """Returns the word for a part that another process has otherwise, or "".

        Pages that are not present in one of them say nothing: processes have those that they touched.

        Args:
            reader: the same image in the other process
        """
        for part, start, end in self._ranges:
            for piece, digest in _digests(reader.load(start, end - start)):
                if self._digests.get(piece, digest) != digest:
                    return part
        return ""


def _digests(extents: Extents) -> Iterator[Tuple[_Piece, bytes]]:
    for start, data in extents.runs:
        low, end = start, start + len(data)
        while low < end:
            high = min((low // PAGE_SIZE + 1) * PAGE_SIZE, end)
            page = data[low - start : high - start]
            yield (low, high - low), hashlib.blake2b(page, digest_size=_DIGEST_SIZE).digest()
            low = high
