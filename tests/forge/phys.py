# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Physical memory of a forged image: page frames handed out in a reproducible order."""

from __future__ import annotations

import random
from typing import Iterator, Optional

PAGE = 0x1000
LARGE_FRAMES = 512

# Volatility looks for an x64 top-level table at 0x150000..0x2A0000 first, and takes the lowest.
FIRST_FRAME = 0x1A0
# Frames for 2 MiB pages, out of the way of the others: memory from 32 MiB on.
FIRST_LARGE_FRAME = 0x2000
# No image of ours is this big (1 TiB, the most that PAE can address): a frame that is not there.
MISSING_FRAME = 0xFFFFF00
# More of them, where PAE's last frame is taken. Their lower 20 bits, too, are behind any image: x86 without
# PAE has no others.
_LAST_FRAME, _MORE_MISSING = 0xFFFFFFF, 0xFFC0000
_SHUFFLED_BLOCK = 64
# Of a machine with much memory: frames handed out one by one lie above this, in an order of these steps.
_FIRST_SCATTERED = 0x8000
_MULTIPLIER, _INCREMENT = 0x5DEECE66D, 0xB


class PhysicalMemory:
    """Page frames by number; a frame that was allocated but never written is all zero.

    Args:
        shuffle: seed of a shuffled order of frames (within blocks of 64, so that the image stays
            small), None for ascending frames. The first frames asked for with `allocate_run` are
            ascending in any case.
    """

    def __init__(self, shuffle: Optional[int] = None) -> None:
        self._frames: dict[int, Optional[bytearray]] = {}
        self._next = FIRST_FRAME
        self._next_large = FIRST_LARGE_FRAME
        self._random = None if shuffle is None else random.Random(shuffle)
        self._block: list[int] = []
        self._missing = MISSING_FRAME

    def allocate(self) -> int:
        """A fresh frame's number."""
        if self._random is None:
            return self.allocate_run(1)
        if not self._block:
            first = self._take(_SHUFFLED_BLOCK)
            self._block = list(range(first, first + _SHUFFLED_BLOCK))
            self._random.shuffle(self._block)
        number = self._block.pop()
        self._frames[number] = None
        return number

    def allocate_run(self, count: int) -> int:
        """The first of `count` fresh frames in sequence."""
        first = self._take(count)
        self._frames.update((number, None) for number in range(first, first + count))
        return first

    def allocate_large(self) -> int:
        """The first of the 512 frames of a 2 MiB page."""
        first = self._next_large
        self._next_large += LARGE_FRAMES
        self._frames.update((number, None) for number in range(first, first + LARGE_FRAMES))
        return first

    def allocate_at(self, number: int) -> int:
        """Claims a given frame below the automatic ones."""
        if not 0 < number < FIRST_FRAME:
            raise ValueError(f"frame {number:#x} is not below {FIRST_FRAME:#x}")
        self._frames[number] = None
        return number

    def missing(self) -> int:
        """The number of a frame that the image will not hold."""
        self._missing = self._missing + 1 if self._missing < _LAST_FRAME else _MORE_MISSING
        return self._missing

    def free(self, number: int) -> None:
        """Removes a frame from the image."""
        self._frames.pop(number, None)

    def frame(self, number: int) -> bytearray:
        """The bytes of an allocated frame, to be written in place. Raises KeyError."""
        data = self._frames[number]
        if data is None:
            data = self._frames[number] = bytearray(PAGE)
        return data

    def __contains__(self, number: int) -> bool:
        return number in self._frames

    def pages(self) -> Iterator[tuple[int, Optional[bytearray]]]:
        """All frames in ascending order; None stands for a page of zeros."""
        for number in sorted(self._frames):
            yield number, self._frames[number]

    def runs(self) -> list[tuple[int, int]]:
        """Maximal sequences of frames: (first, count)."""
        runs: list[tuple[int, int]] = []
        for number in sorted(self._frames):
            if runs and sum(runs[-1]) == number:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((number, 1))
        return runs

    def _take(self, count: int) -> int:
        first = self._next
        self._next += count
        if self._next > FIRST_LARGE_FRAME and first < FIRST_LARGE_FRAME:
            # A big image: go on above any large pages' usual place.
            first = 0x10000
            self._next = first + count
        return first


class ScatteredMemory(PhysicalMemory):
    """The memory of a machine with so many bytes, all over which its pages lie; most of it is zero.

    The order of frames is that of a linear congruential generator, which gives each number once.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._count = size // PAGE
        self._modulus = 1 << (self._count - 1).bit_length()
        self._state = 0

    def allocate(self) -> int:
        """A fresh frame's number."""
        while True:
            self._state = (self._state * _MULTIPLIER + _INCREMENT) % self._modulus
            if _FIRST_SCATTERED <= self._state < self._count:
                break
        if self._state in self._frames:
            raise ValueError(f"{self._count:#x} frames are too few")
        self._frames[self._state] = None
        return self._state

    def pages(self) -> Iterator[tuple[int, Optional[bytearray]]]:
        """All frames that are not zero, and the last one of the machine."""
        self._frames.setdefault(self._count - 1, None)
        return super().pages()

    def runs(self) -> list[tuple[int, int]]:
        """One: all but the first frame, which Windows gives to nobody."""
        return [(1, self._count - 1)]
