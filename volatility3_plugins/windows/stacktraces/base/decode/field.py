# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A member of a structure, as a symbol table describes it: where it lies and how to read it."""

from __future__ import annotations

from typing import NamedTuple, Union

Buffer = Union[bytes, memoryview]


class Field(NamedTuple):
    """An integer, a pointer or a bit field.

    Attributes:
        offset: bytes from the structure's start
        size: bytes; of a bit field, those of the integer that holds it
        shift: the lowest bit of a bit field
        mask: as many ones as a bit field has bits; -1 for a whole integer
        signed: a whole integer whose highest bit is its sign
    """

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
