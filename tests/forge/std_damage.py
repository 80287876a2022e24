# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Damage to forged memory: what smear, paging, truncation and an adversary do to a database."""

from __future__ import annotations

import struct
from typing import Dict, List

from .std import Entry, Std

PAGE = 0x1000
_CODES = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


class Damaged:
    """The memory of a forged database, to be damaged.

    Args:
        std: the undamaged one
    """

    def __init__(self, std: Std) -> None:
        self.std = std
        self._runs = {va: bytearray(data) for va, data in std.regions().items()}

    def regions(self) -> Dict[int, bytes]:
        return {va: bytes(data) for va, data in self._runs.items()}

    def poke(self, va: int, value: int, size: int) -> None:
        """Overwrites an integer; what does not fit in its size is cut off."""
        start = self._run(va)
        struct.pack_into(_CODES[size], self._runs[start], va - start, value & (1 << 8 * size) - 1)

    def peek(self, va: int, size: int) -> int:
        start = self._run(va)
        return int(struct.unpack_from(_CODES[size], self._runs[start], va - start)[0])

    def drop(self, va: int, length: int = PAGE) -> None:
        """Takes the pages away that a range touches."""
        low, high = va // PAGE * PAGE, -(-(va + length) // PAGE) * PAGE
        for start, data in list(self._runs.items()):
            end = start + len(data)
            if low < end and start < high:
                del self._runs[start]
                if start < low:
                    self._runs[start] = data[: low - start]
                if high < end:
                    self._runs[high] = data[high - start :]

    def field(self, name: str, value: int) -> None:
        """Overwrites a member of the header."""
        offset, size = self.std.layout.fields[name]
        self.poke(self.std.base + offset, value, size)

    def head(self, bucket: int) -> int:
        """Address of a bucket head."""
        return self.std.base + self.std.layout.buckets + bucket * self.std.layout.stride

    def slot(self, index: int) -> int:
        """Address of an index slot."""
        return self.std.end - index * self.std.layout.pointer

    def pointer(self, va: int, value: int) -> None:
        self.poke(va, value, self.std.layout.pointer)

    def depth(self, entry: Entry, value: int) -> None:
        self.poke(entry.va + self.std.layout.pointer + 6, value, 2)

    def stored_index(self, entry: Entry, value: int) -> None:
        self.poke(entry.va + self.std.layout.pointer + 4, value, 2)

    def block_depth(self, entry: Entry, value: int) -> None:
        """Overwrites BlockDepth (6.0 and later)."""
        place = entry.va + self.std.layout.pointer
        self.poke(place, self.peek(place, 2) & 0x7FF | value << 11, 2)

    def count(self, entry: Entry, value: int) -> None:
        """Overwrites the word of TraceCount: 32 bits before 6.0, 11 since."""
        place = entry.va + self.std.layout.pointer
        if self.std.layout.old:
            self.poke(place, value, 4)
        else:
            self.poke(place, self.peek(place, 2) & 0xF800 | value & 0x7FF, 2)

    def chain(self, bucket: int) -> List[int]:
        """Addresses of the entries in a bucket's chain, undamaged."""
        return [block.va for block in self.std.chains.get(bucket, [])]

    def longest_chain(self) -> int:
        """The bucket with most entries."""
        return max(self.std.chains, key=lambda bucket: len(self.std.chains[bucket]))

    def _run(self, va: int) -> int:
        for start, data in self._runs.items():
            if start <= va < start + len(data):
                return start
        raise KeyError(f"{va:x} is not present")
