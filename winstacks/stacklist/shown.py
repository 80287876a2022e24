# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The frames of a deep stack that rows and pictures show: the innermost ones and the outermost ones.

A recursion repeats its frames in the middle. Keys, checks, Depth and BackTraceHash take all frames.
"""

from __future__ import annotations

from typing import Optional, Sequence

from ..memory.decode.status import StatusItem
from ..memory.decode.statuscodes import StatusCode

MAX_SHOWN = 1024
"""Frames of a stack that are shown."""

OUTERMOST = 64
"""Frames of these that are the outermost of a deeper stack."""


def shown_numbers(count: int) -> Sequence[int]:
    """Returns the numbers of the frames that are shown of a stack, innermost first."""
    if count <= MAX_SHOWN:
        return range(count)
    return [*range(MAX_SHOWN - OUTERMOST), *range(count - OUTERMOST, count)]


def left_out(count: int) -> Optional[StatusItem]:
    """Returns the status of a stack that is not shown as a whole, else None."""
    return None if count <= MAX_SHOWN else StatusItem(StatusCode.FRAMES_NOT_SHOWN, count - MAX_SHOWN)
