# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a decoder is given and what is asked of it, for mutation and for fuzzing alike."""

from __future__ import annotations

import itertools
from typing import Callable, Iterable, List, NamedTuple, Tuple

from winstacks.memory.decode.ranges import Extents

Decode = Callable[[bytes, bytes], None]


class Target(NamedTuple):
    """A decoder.

    Attributes:
        name: for reports and command lines
        seeds: makes inputs without damage
        decode: decodes (bytes, the seed that they were made of); raises for whatever must not be, which is
            every exception that the decoder does not declare, and an AssertionError for an impossible result
        forks: False if its library refuses to run in a fork: then it is fuzzed only
    """

    name: str
    seeds: Callable[[], List[bytes]]
    decode: Decode
    forks: bool = True


class Template:
    """Memory of several ranges as one string of bytes; a string that ends early is memory that ends early.

    Args:
        regions: (address, bytes) of the undamaged memory
    """

    def __init__(self, regions: Iterable[Tuple[int, bytes]]) -> None:
        self._regions = sorted(regions)
        sizes = [len(data) for _, data in self._regions]
        self._starts = [0, *itertools.accumulate(sizes)]
        self.bytes = b"".join(data for _, data in self._regions)

    def cut(self, data: bytes) -> List[Tuple[int, bytes]]:
        """Returns the regions that a damaged string stands for."""
        starts = zip(self._regions, self._starts, self._starts[1:])
        pieces = [(address, data[low:high]) for (address, _), low, high in starts]
        return [(address, piece) for address, piece in pieces if piece]

    def extents(self, data: bytes) -> Extents:
        return Extents(self.cut(data))

    def changed(self, data: bytes) -> List[Tuple[int, int]]:
        """Returns the ranges of addresses [start, end) that differ from the undamaged memory."""
        found: List[Tuple[int, int]] = []
        for (address, whole), low in zip(self._regions, self._starts):
            piece = data[low : low + len(whole)]
            if piece == whole:
                continue
            for place, byte in enumerate(whole):
                if place < len(piece) and piece[place] == byte:
                    continue
                if found and found[-1][1] == address + place:
                    found[-1] = (found[-1][0], address + place + 1)
                else:
                    found.append((address + place, address + place + 1))
        return found
