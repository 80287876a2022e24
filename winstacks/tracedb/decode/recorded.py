# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A recorded stack: the form in which a lock, a handle, an object or a heap block has its stack.

The traces of a whole database are `judge.Trace`s, which describe the entry, too. `recorded` makes a recorded
stack of such a trace.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from ...columns.words import STD
from ...memory.decode.status import NOTHING, Status, has_status
from ...memory.decode.statuscodes import StatusCode
from . import status as stdstatus
from .anomalies import Trace
from .capture import known_hash

RING = "ring"
OBJECTS = "objects"


class RecordedStack(NamedTuple):
    """A recorded stack.

    Attributes:
        kind: the store: a word of `words.TRACE_KINDS`, `ring` (a process's handle traces) or `objects` (the
            traces of objects)
        address: address of the record or entry, 0 if unknown
        trace_index: index in the stack trace database, 0 for none
        frames: canonical return addresses, innermost first; None for an address that is overwritten or
            missing
        status: empty for a sound stack; else the faults of the record (`freed`: the index is stale, and the
            frames that are left may belong to another stack), or the reason why there is no stack
        full: whether there are as many frames as Windows keeps, so that outer ones may be missing
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
        return has_status(self.status, StatusCode.FREED)

    @property
    def hash(self) -> Optional[int]:
        """BackTraceHash; None if a frame is unknown, or if there are no frames."""
        return known_hash(self.frames)


NO_STACK = RecordedStack("", 0, 0, ())
"""The stack of an owner without a recorded stack."""


def recorded(trace: Trace, max_depth: int) -> RecordedStack:
    """Returns the recorded stack of a trace in a database.

    Args:
        trace: the trace
        max_depth: the most frames that the database keeps of a stack
    """
    statuses, full = stdstatus.status_of(trace.status), len(trace.frames) >= max_depth
    return RecordedStack(STD, trace.address, trace.trace_index or 0, trace.frames, statuses, full)
