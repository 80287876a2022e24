# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How decoders ask for memory: by a function, so that they read only what a structure says is there."""

from __future__ import annotations

from typing import Callable, Dict, Optional

from .extents import Extents

Reader = Callable[[int, int], Extents]
"""Takes a canonical start address and a length in bytes, returns what is present of that range."""

CHUNK = 0x10000
MAX_CHUNKS = 1024


class Chunks:
    """Small reads at scattered addresses, each surrounding 64 KB read once.

    At most 64 MB are kept; what is beyond is read again when asked for again.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._chunks: Dict[int, Extents] = {}

    def read(self, address: int, length: int) -> Optional[memoryview]:
        """Returns length bytes (at most 64 KB) at an address, or None unless all are present."""
        first, last = address // CHUNK, (address + length - 1) // CHUNK
        if first == last:
            return self._chunk(first).read(address, length)
        runs = self._chunk(first).runs + self._chunk(last).runs
        return Extents(runs).read(address, length)

    def _chunk(self, number: int) -> Extents:
        found = self._chunks.get(number)
        if found is None:
            if len(self._chunks) >= MAX_CHUNKS:
                self._chunks.clear()
            found = self._chunks[number] = self._reader(number * CHUNK, CHUNK)
        return found
