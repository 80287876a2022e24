# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Damage to bytes: what an adversary, smear or a bad sector does to a structure.

All take the bytes to be changed in place, a place [low, high) in them and a source of chance.
"""

from __future__ import annotations

import random
import struct
from typing import Callable, List, Sequence, Tuple

Mutation = Callable[[bytearray, int, int, random.Random], Tuple[int, int]]
"""Returns the range that was changed."""

_CODES = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
_WORDS = (0, 1, 2, 7, 0x20, 0x21, 0x7F, 0x80, 0xFF, 0x7FF, 0x800, 0x1000, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF)
_WIDE = (0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_HUGE = (
    0x100000000,
    0x7FFFFFFF0000,
    0x7FFFFFFFFFFF,
    0x800000000000,
    0x7FFFFFFFFFFFFFFF,
    0x8000000000000000,
    0xFFFF800000000000,
    0xFFFFFFFFFFFFF000,
    0xFFFFFFFFFFFFFFFE,
    0xFFFFFFFFFFFFFFFF,
)
_TEXTS = (
    "..\\..\\x",
    "../../x",
    "\x1b[31mred",
    "a\r\nb",
    "\u202egnp.exe",
    "C:\\con",
    "x;y,z\"'",
    "\t\0\x07",
    "{{7*7}}",
)


def random_bytes(data: bytearray, low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    """A few random bytes."""
    start = chance.randrange(low, high)
    end = min(start + chance.choice((1, 1, 2, 4, 8, 16, 64)), high)
    data[start:end] = chance.getrandbits(8 * (end - start)).to_bytes(end - start, "little")
    return start, end


def bit(data: bytearray, low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    """One bit turned over."""
    start = chance.randrange(low, high)
    data[start] ^= 1 << chance.randrange(8)
    return start, start + 1


def word(data: bytearray, low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    """An aligned integer at one of its borders: 0, 65535, 2^32-1, 2^64-1 and their like."""
    start, size = _aligned(low, high, chance)
    choices = _WORDS + (_WIDE if size > 2 else ()) + (_HUGE if size > 4 else ())
    return _put(data, start, size, chance.choice(choices))


def nudge(data: bytearray, low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    """An aligned integer, a little more or less."""
    start, size = _aligned(low, high, chance)
    value = int(struct.unpack_from(_CODES[size], data, start)[0])
    step = chance.choice((1, 2, 4, 8, 0x10, 0x18, 0x1000, 0x10000, 1 << chance.randrange(8 * size)))
    return _put(data, start, size, value + chance.choice((-step, step)))


def copied(data: bytearray, low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    """A word from somewhere else in the place: pointers to others of their kind, cycles, equal keys."""
    start, size = _aligned(low, high, chance)
    size = max(size, chance.choice((4, 8)))
    size = min(size, high - start)
    origin = low + (chance.randrange(low, high) - low) // 4 * 4
    piece = bytes(data[origin : min(origin + size, high)])
    data[start : start + len(piece)] = piece
    return start, start + len(piece)


def filled(data: bytearray, low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    """A range of one byte over and over."""
    start = chance.randrange(low, high)
    end = min(start + chance.choice((4, 8, 16, 64, 0x1000)), high)
    data[start:end] = bytes((chance.choice((0, 0, 0xFF, 0x41, chance.randrange(256))),)) * (end - start)
    return start, end


def text(data: bytearray, low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    """Text that means something to a terminal or a file system, over what was there."""
    start = chance.randrange(low, high) // 2 * 2
    start = max(start, low)
    coded = chance.choice(_TEXTS).encode(chance.choice(("utf-16-le", "utf-8")))
    coded = coded[: high - start]
    data[start : start + len(coded)] = coded
    return start, start + len(coded)


ALL: Sequence[Mutation] = (random_bytes, bit, word, word, word, nudge, nudge, copied, copied, filled, text)


def pointers(data: bytes, low: int, high: int, size: int, known: Callable[[int], bool]) -> List[int]:
    """Where the aligned words are that lead to somewhere."""
    first = -(-low // size) * size
    count = max(high - first, 0) // size
    words = struct.unpack_from(f"<{count}{'Q' if size == 8 else 'I'}", data, first) if count else ()
    return [first + number * size for number, value in enumerate(words) if value and known(value)]


def _aligned(low: int, high: int, chance: random.Random) -> Tuple[int, int]:
    size = chance.choice((1, 2, 2, 4, 4, 4, 8, 8, 8))
    while size > 1 and high - (-(-low // size) * size) < size:
        size //= 2
    first = -(-low // size) * size
    return first + chance.randrange((high - first) // size) * size, size


def _put(data: bytearray, start: int, size: int, value: int) -> Tuple[int, int]:
    struct.pack_into(_CODES[size], data, start, value & (1 << 8 * size) - 1)
    return start, start + size
