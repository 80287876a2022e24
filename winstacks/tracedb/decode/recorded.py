# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A stack that Windows recorded, as every owner of one has it: a lock, a handle, an object, a heap block.

The traces of a whole database are `judge.Trace`s, which say more of the entry that holds them. `recorded`
makes a recorded stack of such a trace.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from ...columns.words import STD
from ...memory.decode.status import NOTHING, Status, Word, says
from . import status as stdstatus
from .capture import known_hash
from .judge import Trace

RING = "ring"
OBJECTS = "objects"


class RecordedStack(NamedTuple):
    """A recorded stack.

    Attributes:
        kind: where it is kept: a word of `words.TRACE_KINDS`, `ring` (a process's handle traces) or `objects`
            (the traces of objects)
        address: of its record or entry, 0 where that is not known
        trace_index: its index in the stack trace database, 0 where it has none
        frames: return addresses, canonical, innermost first; one that is overwritten or not present is None
        status: empty for a sound stack. Otherwise what is wrong with the record (`freed`: the index is stale,
            and what is left of the stack may be another one's), or why there is no stack
        full: there are as many frames as Windows keeps: outer ones may be missing
    """

    kind: str
    address: int
    trace_index: int
    frames: Tuple[Optional[int], ...]
    status: Status = NOTHING
    full: bool = False

    @property
    def freed(self) -> bool:
        """Whether the record is released: its first frames are overwritten then."""
        return says(self.status, Word.FREED)

    @property
    def hash(self) -> Optional[int]:
        """BackTraceHash; None if a frame is not known, or there is none."""
        return known_hash(self.frames)


NO_STACK = RecordedStack("", 0, 0, ())
"""What has an owner of which no stack was recorded."""


def recorded(trace: Trace, max_depth: int) -> RecordedStack:
    """Returns a trace of a database as an owner has it.

    Args:
        trace: the trace
        max_depth: how many frames the database keeps of a stack
    """
    said, full = stdstatus.of(trace.status), len(trace.frames) >= max_depth
    return RecordedStack(STD, trace.address, trace.trace_index or 0, trace.frames, said, full)
