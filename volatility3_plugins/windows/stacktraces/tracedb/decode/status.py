# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The bits that say what is special or wrong about a trace. None: a live trace without fault.

A listing has a hundred thousand traces: each has its bits as one number, and what they stand for is looked up
when it is shown.
"""

from __future__ import annotations

import functools

from ...base.decode import status as words
from ...base.decode.status import Status, Word

UNINDEXED = 1
"""Live, in its hash chain, but nobody asked for a number (6.1 and later)."""
SATURATED = 2
"""TraceCount has reached 0x7FF: that often or more (6.0 and later)."""
FREED = 4
"""Released: TraceCount 0 and in no chain; the free list's link lies over the first frames."""
ORPHAN = 8
"""In use by its TraceCount, yet neither an index slot nor a chain leads to it."""
INDEX = 16
"""Index array and entry contradict each other, or the slot of this index leads to no entry."""
BUCKET = 32
"""Not in the hash chain where its frames belong, although that chain can be read; or in another."""
DEPTH = 64
"""Depth is 0, more than Windows records, or more than the block has room for."""
UNREADABLE = 128
"""Part of it, or all, is not present in the image."""

_WORDS = (
    *(Word.UNINDEXED, Word.SATURATED, Word.FREED, Word.ORPHAN),
    *(Word.INDEX, Word.BUCKET, Word.DEPTH, Word.UNREADABLE),
)


@functools.lru_cache(maxsize=None)
def of(flags: int) -> Status:
    """Returns the words for a set of flags, in their fixed order."""
    return words.status(*(word for bit, word in enumerate(_WORDS) if flags >> bit & 1))


@functools.lru_cache(maxsize=None)
def text(flags: int) -> str:
    """Returns the words for a set of flags as a column shows them."""
    return words.text(of(flags))
