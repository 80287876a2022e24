# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Callers that a thread's shadow stack proves, where a walk had to guess or ended.

The processor itself writes the return addresses of a shadow stack, in the order of the calls. Each must lie
on the thread's stack, too, above the one before. No code and no unwind data is needed.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence

from ...columns.words import SHADOW
from .frames import MAX_FRAMES, MAX_SCANNED, Frame, StackWalk

_SLOT = 8

ReadSlot = Callable[[int], Optional[int]]
"""address -> the eight bytes of a stack there, None if they are not in memory."""


def proven_walk(walk: StackWalk, shadow: Sequence[int], read_slot: ReadSlot) -> StackWalk:
    """Returns a walk that takes unsure or missing callers from the shadow stack.

    A walk that contradicts the shadow stack with a sure frame is left as it is: the check `shadow_stack` is
    about that. If a value is not on the stack, the walk is left as it is from there.
    """
    kept: List[Frame] = []
    position = 0
    for frame in walk.frames:
        if not frame.sure or position >= len(shadow):
            break
        if frame.returns:
            if frame.address != shadow[position]:
                return walk
            position += 1
        elif kept:
            # Behind a dispatcher the content of the shadow stack is not documented.
            return walk
        kept.append(frame)
    if not kept or (len(kept) == len(walk.frames) and walk.end is None and not walk.gaps):
        return walk
    found = _found(kept[-1].sp, shadow[position:], read_slot)
    if not found:
        return walk
    whole = position + len(found) == len(shadow)
    frames = (*kept, *found)[:MAX_FRAMES]
    return StackWalk(frames, None if whole else walk.end, () if whole else walk.gaps)


def _found(sp: int, shadow: Sequence[int], read_slot: ReadSlot) -> List[Frame]:
    """Returns the frames of values of a shadow stack, up to one that is not on the stack.

    The stack is read once, and at most MAX_SCANNED bytes of it.
    """
    frames: List[Frame] = []
    end = sp + MAX_SCANNED
    for value in shadow:
        while sp < end:
            held = read_slot(sp)
            sp += _SLOT
            if held is None:
                return frames
            if held == value:
                frames.append(Frame(value, sp, SHADOW, True))
                break
        else:
            return frames
    return frames
