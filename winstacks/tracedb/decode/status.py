# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The status of a trace: bits for properties and faults; 0 is a live trace without fault.

A database may have a hundred thousand traces. So each trace has its status as one number, which is translated
to words only when the trace is shown.
"""

from __future__ import annotations

import functools

from ...memory.decode import status as words
from ...memory.decode.status import Status
from ...memory.decode.statuscodes import StatusCode

UNINDEXED = 1
"""Live and in its hash chain, but without an index, because nobody asked for one (6.1 and later)."""
SATURATED = 2
"""TraceCount is 0x7FF, which means 0x7FF or more (6.0 and later)."""
FREED = 4
"""Released: TraceCount is 0, no chain leads to it, and the free list has overwritten the first frames."""
ORPHAN = 8
"""In use according to its TraceCount, but neither an index slot nor a chain leads to it."""
INDEX = 16
"""The index array and the entry contradict each other, or the slot of this index leads to no entry."""
BUCKET = 32
"""In another hash chain than its frames belong to, or in none although their chain can be read."""
DEPTH = 64
"""Depth is 0, or more than Windows records, or more than fits in the block."""
UNREADABLE = 128
"""Some or all of the entry is not in the image."""

_WORDS = (
    StatusCode.UNINDEXED, StatusCode.SATURATED, StatusCode.FREED, StatusCode.ORPHAN,
    StatusCode.INDEX, StatusCode.BUCKET, StatusCode.DEPTH, StatusCode.UNREADABLE,
)  # fmt: skip


@functools.lru_cache(maxsize=None)
def status_of(flags: int) -> Status:
    """Returns the words for a set of flags, in their fixed order."""
    return words.status(*(word for bit, word in enumerate(_WORDS) if flags >> bit & 1))


@functools.lru_cache(maxsize=None)
def text(flags: int) -> str:
    """Returns the words for a set of flags as a column shows them."""
    return words.text(status_of(flags))
