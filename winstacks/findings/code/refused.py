# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The frame of a crash whose memory the processor refused to execute, by the exception of a dump."""

from __future__ import annotations

from typing import Optional

from ...process.refusedplaces import refused_places
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import FramePlace, find_place


def refused_place(stack: StackRecord, facts: CheckFacts) -> Optional[FramePlace]:
    """Returns the frame of a crash whose memory the processor refused to execute, None for other stacks."""
    refused = facts.image.service(refused_places)
    if not stack.crashed or not stack.frames or not refused:
        return None
    place = find_place(stack, 0)
    return place if place is not None and place.address in refused else None
