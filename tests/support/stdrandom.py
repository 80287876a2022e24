# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Databases of every layout with any traces in them, whole or damaged, as hypothesis wants them."""

from __future__ import annotations

import random
import struct
from typing import Dict, FrozenSet, NamedTuple, Sequence, Tuple

from hypothesis import strategies as st

from tests.forge.std import Std
from tests.forge.std_layouts import ALL, PAGE

Case = Tuple[str, str, bool]
"""Layout, architecture, and whether it is a kernel's."""

Regions = Dict[int, bytes]

RESERVE = 0x80000


class Plan(NamedTuple):
    """How a database is made; few numbers, so that a failing test prints something that can be read.

    Attributes:
        case: its layout
        seed: decides the traces and the damage
        traces: how many different ones are logged
        buckets: of its hash table
        words: how many words are overwritten
        lost: pages that are not present, counted from the database's address
    """

    case: Case
    seed: int
    traces: int
    buckets: int
    words: int = 0
    lost: FrozenSet[int] = frozenset()

    def make(self, base: int) -> Std:
        """Makes the undamaged database: traces logged several times, some released, some without number."""
        chance = random.Random(self.seed)
        name, arch, kernel = self.case
        std = Std(name, arch, base, kernel=kernel, reserve=RESERVE, bucket_count=self.buckets)
        times = {_trace(chance, arch): chance.choice((1, 1, 1, 2, 5)) for _ in range(self.traces)}
        for trace, count in times.items():
            for _ in range(count):
                std.log(trace, number=chance.random() < 0.7)
        for trace in chance.sample(list(times), len(times) // 4):
            for _ in range(times[trace]):
                std.release(trace)
        for trace in list(times)[::9]:
            std.log([*trace[:10], 0x70000001])
        return std

    def damaged(self, std: Std) -> Regions:
        """Returns what is left of its memory."""
        chance = random.Random(self.seed + 1)
        memory = {va: bytearray(data) for va, data in std.regions().items()}
        for _ in range(self.words):
            va, value = _place(chance, std), _value(chance, std)
            size = std.layout.pointer
            start = max(address for address in memory if address <= va)
            packed = struct.pack("<Q", value & (1 << 8 * size) - 1)[:size]
            memory[start][va - start : va - start + size] = packed
        return without({va: bytes(data) for va, data in memory.items()}, std.base, self.lost)


def plans(
    cases: Sequence[Case] = ALL, words: int = 0, lost: int = 0, pages: Tuple[int, int] = (0, 10)
) -> st.SearchStrategy[Plan]:
    """Plans of some layouts, with at most so many overwritten words and lost pages (numbered as given)."""
    return st.builds(
        Plan,
        st.sampled_from(list(cases)),
        st.integers(0, 0xFFFF),
        st.integers(0, 150),
        st.integers(1, 400),
        st.integers(0, words),
        st.frozensets(st.integers(*pages), max_size=lost),
    )


def without(regions: Regions, base: int, pages: FrozenSet[int]) -> Regions:
    """Returns memory page by page, without those of some numbers."""
    return {
        va + offset: data[offset : offset + PAGE]
        for va, data in regions.items()
        for offset in range(0, len(data), PAGE)
        if (va + offset - base) // PAGE not in pages
    }


def _trace(chance: random.Random, arch: str) -> Tuple[int, ...]:
    """At most 32 return addresses, most of them near each other."""
    top = 0x7FFF_FFFF_FFFF if arch == "x64" else 0xFFFF_FFFF
    code = [chance.randrange(0x10000, top) for _ in range(3)]
    return tuple(chance.choice(code) + chance.getrandbits(12) & top for _ in range(chance.randint(1, 32)))


def _place(chance: random.Random, std: Std) -> int:
    """An aligned word of the header, the bucket heads, the entries or the index array."""
    heads = std.base + std.layout.buckets
    parts = [(std.base, heads), (heads, std.first_entry), (std.first_entry, std.lower), (std.upper, std.end)]
    low, high = chance.choice([part for part in parts if part[1] - part[0] >= 8])
    return chance.randrange(low, high - 7) // 8 * 8 if low % 8 == 0 else low


def _value(chance: random.Random, std: Std) -> int:
    """Something that matters: a border, an address in or near the database, a small number, noise."""
    near = [std.base, std.lower, std.upper, std.end, std.first_entry, *(block.va for block in std.blocks)]
    return chance.choice(
        [
            chance.choice((0, 1, 31, 32, 33, 0x7FF, 0xFFFF, 0x7FFFFFFF, (1 << 64) - 1)),
            chance.choice(near),
            chance.choice(near) + chance.randint(-64, 64),
            chance.getrandbits(64),
        ]
    )
