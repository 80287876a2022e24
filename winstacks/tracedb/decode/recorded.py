# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A recorded stack: the form in which locks, handles, objects and heap blocks get their stacks.

The traces of a whole database are `anomalies.Trace`s, which also describe the entry, and have such a stack.
"""

from __future__ import annotations

from typing import Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, has_status
from ...memory.decode.statuscodes import StatusCode
from .capture import known_hash

RING = "ring"
"""Kind of a stack from a process's ring of handle traces."""

OBJECTS = "objects"
"""Kind of a stack from the traces of objects."""


class RecordedStack(NamedTuple):
    """A recorded stack.

    Attributes:
        kind: store of the stack: a word of `words.TRACE_KINDS`, RING or OBJECTS
        address: canonical address of the record or entry, 0 if unknown
        frames: canonical return addresses, innermost first; None for an address that is overwritten or
            missing
        status: faults of the record, or the reason why there is no stack; empty for a sound stack. `freed`
            means that the index is stale, and that the remaining frames may belong to another stack
        full: whether the stack has as many frames as Windows records, so that outer frames may be missing
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
