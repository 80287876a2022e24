# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Modules in memory for the tests of the PE decoders: a forged image as `read` and `load` see it."""

from __future__ import annotations

from typing import Any, Optional

from tests.forge.module import Spec
from tests.forge.pe import Pe
from winstacks.memory.decode.ranges import Extents


class Flat:
    """The bytes of an image by RVA; `hide` takes ranges away, as if they had been paged out."""

    def __init__(self, data: bytes) -> None:
        self.extents = Extents([(0, data)])
        self.size = len(data)

    def hide(self, start: int, end: int) -> Flat:
        low = self.extents.read(0, start)
        high = self.extents.read(end, self.size - end)
        assert low is not None
        assert high is not None
        self.extents = Extents([(0, bytes(low)), (end, bytes(high))])
        return self

    def read(self, rva: int, length: int) -> Optional[memoryview]:
        return self.extents.read(rva, length)

    def load(self, rva: int, length: int) -> Extents:
        ranges = self.extents.covered(rva, rva + length)
        return Extents((low, bytes(self.extents.read(low, high - low) or b"")) for low, high in ranges)


def pe(bits: int = 64, name: str = "sample.dll", **spec: Any) -> Pe:
    return Spec(**spec).pe(name, bits, 0x10000000)


def flat(image: Pe) -> Flat:
    data = bytearray(image.size)
    for rva, piece in image.pieces().items():
        data[rva : rva + len(piece)] = piece
    return Flat(bytes(data))
