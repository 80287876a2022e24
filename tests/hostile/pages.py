# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The page tables of an opened image: which entries map a frame, and damage to them."""

from __future__ import annotations

import random
import struct
from typing import Any, Dict, Iterable, List, NamedTuple, Set, Tuple

PAGE = 0x1000
PRESENT, LARGE = 1, 1 << 7
TRANSITION, PROTOTYPE = 1 << 11, 1 << 10


class Entry(NamedTuple):
    """An entry of the last level: where it lies in physical memory, its bytes, the frame that it maps."""

    offset: int
    size: int
    frame: int


class Tables:
    """The page tables of some layers.

    Attributes:
        pages: physical addresses of the tables of all levels
        maps: by physical address of a page (of a large one, of its first), the entries that map it, with the
            virtual address (in the layer's form) at which each does
    """

    def __init__(self, layers: Iterable[Any], data: bytes) -> None:
        self.pages: Set[int] = set()
        self.maps: Dict[int, List[Tuple[Entry, int]]] = {}
        self._data = data
        done: Set[int] = set()
        for layer in layers:
            root = layer.config["page_map_offset"]
            if root not in done:
                done.add(root)
                self._table(layer, 0, root, 0, min(layer._maxvirtaddr, layer._bits_per_register))

    def _table(self, layer: Any, level: int, table: int, virtual: int, position: int) -> None:
        _, bits, may_be_large = layer._structure[level]
        width = struct.calcsize(layer._entry_format)
        size = width << bits
        if table + size > len(self._data):
            return
        self.pages.add(table // PAGE * PAGE)
        words = struct.unpack_from(f"<{1 << bits}{layer._entry_format[-1]}", self._data, table)
        position -= bits
        for index, word in enumerate(words):
            # The kernel's tables map themselves: what they show there are not pages.
            if not word & PRESENT or word & 0xFFFFFFFFF000 == table:
                continue
            address = virtual | index << position
            below = word & 0xFFFFFFFFF000
            if level + 1 == len(layer._structure) or (may_be_large and word & LARGE):
                entry = Entry(table + index * width, width, below)
                self.maps.setdefault(below, []).append((entry, address))
            else:
                self._table(layer, level + 1, below, address, position)


def damage(data: bytearray, entries: Iterable[Entry], chance: random.Random) -> List[Tuple[int, int]]:
    """Makes the mappings of a page what else they may be; returns the ranges changed."""
    change = chance.choice(("zero", "pagefile", "transition", "prototype", "missing", "other", "bits"))
    beyond = (len(data) + PAGE * chance.randrange(1, 1 << 16)) // PAGE * PAGE
    other = chance.randrange(len(data) // PAGE) * PAGE
    changed = []
    for offset, size, _ in entries:
        value = int.from_bytes(data[offset : offset + size], "little")
        flags = value & 0xFFF
        if change == "zero":
            value = 0
        elif change == "pagefile":
            value = 0x1234 << 32 & (1 << 8 * size) - 1 | 0x80
        elif change == "transition":
            value = value & ~PRESENT & ~PROTOTYPE | TRANSITION
        elif change == "prototype":
            value = value & ~PRESENT | PROTOTYPE
        elif change == "missing":
            value = beyond | flags
        elif change == "other":
            value = other | flags
        else:
            value ^= 1 << chance.randrange(8 * size)
        data[offset : offset + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        changed.append((offset, offset + size))
    return changed
