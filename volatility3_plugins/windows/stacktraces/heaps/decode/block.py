# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A block of any kind of heap."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from .trace import Trace

BLOCK = "block"
LFH = "lfh"
VIRTUAL = "virtual"
LIGHT = "lightpage"

UNKNOWN_SIZE = -1
DAMAGED = "damaged"
_TOO_MUCH = 1 << 47  # bytes: more than a process has addresses


class Block(NamedTuple):
    """A block of a heap.

    Attributes:
        heap: address of its heap
        user: address of the caller's bytes
        size: bytes that the caller asked for, UNKNOWN_SIZE when nothing tells
        overhead: bytes of the heap that it takes beyond these
        form: `block`, `lfh`, `virtual`, `lightpage`; of other heaps `page` or `large`
        freed: it is no longer the caller's
        trace: the trace that it names, None when it names none
        std_index: of a second trace, in the stack trace database, that it names; 0 for none
        status: empty; `damaged`: its header is broken, or its second one; `unreadable`: its second one is not
            present; `not-read`: see `segmentheap`
    """

    heap: int
    user: int
    size: int
    overhead: int
    form: str
    freed: bool
    trace: Optional[Trace]
    std_index: int
    status: str


def sized(whole: int, unused: Optional[int], status: str) -> Tuple[int, int, str]:
    """Returns the caller's bytes of a block, the others, and its status; what cannot be is damage."""
    if unused is None:
        return UNKNOWN_SIZE, 0, status
    if not 0 <= unused <= whole < _TOO_MUCH:
        return UNKNOWN_SIZE, 0, DAMAGED
    return whole - unused, unused, status
