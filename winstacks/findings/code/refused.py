# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Memory that the processor refused to execute, by the exception of a dump of one process.

No page tables are needed: the first parameter of an access violation says what was tried, and the second
where (winnt.h, EXCEPTION_RECORD).
"""

from __future__ import annotations

from typing import Optional

from ...stacklist.machine import machine_facts
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import FramePlace, find_place

_ACCESS_VIOLATION, _EXECUTION = 0xC0000005, 8


def refused_place(stack: StackRecord, facts: CheckFacts) -> Optional[FramePlace]:
    """Returns the frame of a crash whose memory the processor refused to execute, None for other stacks."""
    if not stack.crashed or not stack.frames:
        return None
    met = facts.image.service(machine_facts).input()
    if met.exception != _ACCESS_VIOLATION or met.exception_parameters[:1] != (_EXECUTION,):
        return None
    place = find_place(stack, 0)
    return place if place is not None and (place.address,) == met.exception_parameters[1:2] else None
