# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Frames that are guesses only because pages are not in the image.

If the unwind data of one module that all processes share is not in the image, every walk through it goes on
by a scan of the stack. What is missing is neither innocent nor guilty: it lowers Confidence. A value on the
stack that leads behind a call in private executable memory was left by code that ran there and called
something, now or earlier, whoever called it.
"""

from __future__ import annotations

from typing import Tuple

from ...columns.words import IMAGE, LOW, MEDIUM
from ...memory.decode.machine import Machine
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import StatusCode
from ...stacklist.stack import StackRecord
from ...stacks.decode.frames import LONGEST_CALL, is_call
from ..facts import CheckFacts
from ..finding import FramePlace, find_place

WHY = "pages that are not in the image make the way to the frame a guess"
"""The text of Innocent."""

_LOST = (
    *(StatusCode.CODE_UNREADABLE, StatusCode.NO_FUNCTION_TABLE, StatusCode.UNWIND_DATA_UNREADABLE),
    StatusCode.FUNCTION_TABLE_UNREADABLE,
    StatusCode.FRAME_REGISTER_UNKNOWN,
)
"""Reasons for guesses that lost pages give; the last one follows from a scan."""
_OTHERS = (
    *(StatusCode.CODE_AND_UNWIND_DATA_DIFFER, StatusCode.NOT_BEHIND_A_CALL, StatusCode.RETURNS_NOWHERE),
    *(StatusCode.NO_UNWIND_DATA, StatusCode.UNWIND_DATA_INVALID, StatusCode.UNWIND_DATA_INCOMPLETE),
)
"""Reasons that the process itself gives."""
_NO_TABLE = (
    *(StatusCode.HEADERS_UNREADABLE, StatusCode.FUNCTION_TABLE_UNREADABLE, StatusCode.EXPORTS_UNREADABLE),
    StatusCode.FUNCTION_TABLE_INCOMPLETE,
)
"""Words of a frame whose module has lost its function table, rather than that it never had one."""


def over_lost_pages(
    stack: StackRecord, place: FramePlace, severity: str, innocent: str, facts: CheckFacts
) -> Tuple[FramePlace, str, str]:
    """Returns the frame of a finding, its severity and its explanation, which lost pages alone do not lower
    to `low`: the severity is then `medium`, and the frame counts as no guess."""
    if severity == LOW or not is_lost_way(stack, place, facts):
        return place, severity, innocent
    return place._replace(guessed=False), MEDIUM, f"{innocent}; {WHY}"


def is_lost_way(stack: StackRecord, place: FramePlace, facts: CheckFacts) -> bool:
    """Returns whether only lost pages make a frame in no file a guess, and a call precedes its address.

    All frames further in must be in images: code in no module is a reason of its own.
    """
    if not place.guessed or stack.space.machine is not Machine.AMD64:
        return False
    if not has_status(stack.status, *_LOST) or has_status(stack.status, *_OTHERS):
        return False
    inner = [find_place(stack, number) for number in range(place.number)]
    if any(frame is None or frame.name.backing != IMAGE for frame in inner):
        return False
    if has_status(stack.status, StatusCode.NO_FUNCTION_TABLE) and not any(
        frame is not None and has_status(frame.frame.details.status, *_NO_TABLE) for frame in inner
    ):
        return False
    before = facts.image.memory(stack.space).read(place.address - LONGEST_CALL, LONGEST_CALL)
    return before is not None and is_call(before)
