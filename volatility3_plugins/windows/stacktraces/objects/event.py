# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An event of a traced object, as `windows.objecttraces` lists it."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from ..base.objectheaders import ObjectInfo

REFERENCE, DEREFERENCE = "reference", "dereference"

NO_SYMBOL = "no symbol"
LATER_FORM = "later form (StackDb)"
EARLIER_FORM = "earlier form"
UNREADABLE = "unreadable"
CYCLE = "chain leads back"
TOO_MANY = "too many events"
OVERLAP = "overlap"
"""The memory of these events was read as another object's already: one of the two is none."""
NOT_READ = "not read"
LIMIT = "event limit"
"""The image has more events than are read."""
BUCKET = "bucket"
NOT_TRACED = "no longer traced"
NO_STACK_TABLE = "no stack table"
NO_TRACE = "no such trace"
TRACE_UNREADABLE = "trace unreadable"


class ObjectEvent(NamedTuple):
    """An event of a traced object, or what stands for those that cannot be read.

    Attributes:
        object: None where even that is not known
        process: name of the process that made the object, as the trace keeps it; None where not known
        event: `reference` or `dereference`; empty where there is none
        num_traces: references taken or dropped; None where there is none
        tag: None before 7
        sequence: number of the event, counted over all objects
        frames: innermost first
        status: empty, or what is wrong
    """

    object: Optional[ObjectInfo]
    process: Optional[str]
    event: str
    num_traces: Optional[int]
    tag: Optional[str]
    sequence: Optional[int]
    frames: Tuple[int, ...]
    status: str


def nothing(status: str, thing: Optional[ObjectInfo] = None, process: Optional[str] = None) -> ObjectEvent:
    """Returns what stands for events that cannot be read, or for an object that has none."""
    return ObjectEvent(thing, process, "", None, None, None, (), status)
