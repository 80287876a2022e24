# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The code map of a hybrid image: which ranges are code of ARM64, of ARM64EC, and of x64.

An ARM64EC image says that it is for AMD64, and an ARM64X image has a view for each of the two. The load
configuration of both leads to the CHPE metadata, whose code map has the kinds of code.

Source: `IMAGE_LOAD_CONFIG_DIRECTORY64.CHPEMetadataPointer` and `IMAGE_ARM64EC_METADATA` of winnt.h; measured:
22 files, all of version 2.
"""

from __future__ import annotations

import bisect
import struct
from typing import List, Optional

from ...memory.decode.records import NamedTuple
from .pe import DIRECTORY_LOAD_CONFIG, Headers
from .unwindinfo import ReadRva

ARM64, ARM64EC, X64 = range(3)
"""Kinds of code: the low two bits of the start of a range."""

_KIND_MASK = 3
_POINTER = 200
"""Offset of CHPEMetadataPointer."""
_METADATA = struct.Struct("<III")
_RANGE = struct.Struct("<II")
MAX_RANGES = 1 << 12
"""Greatest number of ranges that are read. The most that were seen are 4."""


class CodeMap(NamedTuple):
    """The ranges of code: starts (RVA), ends and kinds, ascending."""

    starts: List[int]
    ends: List[int]
    kinds: List[int]

    def kind(self, rva: int) -> Optional[int]:
        """Returns the kind of the code at an RVA, None if no range has it."""
        position = bisect.bisect_right(self.starts, rva) - 1
        return self.kinds[position] if position >= 0 and rva < self.ends[position] else None


def read_code_map(read: ReadRva, headers: Headers, base: int) -> Optional[CodeMap]:
    """Returns the code map of an image; None if the image is not hybrid, or the map cannot be read."""
    rva, size = headers.directory(DIRECTORY_LOAD_CONFIG)
    data = read(rva, _POINTER + 8) if rva and size >= _POINTER + 8 else None
    pointer = 0 if data is None else int.from_bytes(data[_POINTER:], "little")
    place = pointer - base
    head = read(place, _METADATA.size) if 0 < place < headers.size else None
    if head is None:
        return None
    _, table, count = _METADATA.unpack(head)
    rows = read(table, _RANGE.size * count) if 0 < count <= MAX_RANGES else None
    if rows is None:
        return None
    ranges = sorted(
        (start & ~_KIND_MASK, start & _KIND_MASK, length) for start, length in _RANGE.iter_unpack(rows)
    )
    return CodeMap(
        [start for start, _, _ in ranges],
        [start + length for start, _, length in ranges],
        [kind for _, kind, _ in ranges],
    )
