# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Members of a structure that the image's own symbol table describes: where they lie and how to read them."""

from __future__ import annotations

from typing import NamedTuple, Union

Buffer = Union[bytes, memoryview]


class Field(NamedTuple):
    """An integer, pointer or bit field: byte offset and size, and a bit field's position and mask."""

    offset: int
    size: int
    shift: int = 0
    mask: int = -1
    signed: bool = False

    def of(self, data: Buffer, base: int = 0) -> int:
        """Returns the member's value from a structure that starts at `base` in little-endian data.

        Raises:
            ValueError: when the data ends before the member does
        """
        start = base + self.offset
        raw = data[start : start + self.size]
        if len(raw) != self.size:
            raise ValueError(f"the data ends before offset {start + self.size:#x}")
        return int.from_bytes(raw, "little", signed=self.signed) >> self.shift & self.mask
