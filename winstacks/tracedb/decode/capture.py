# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The result of RtlCaptureStackBackTrace for a known stack, and stacks in arrays of fixed length."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

from ...memory.decode.records import NamedTuple

HASH_MASK = 0xFFFFFFFF


class Capture(NamedTuple):
    """The result of RtlCaptureStackBackTrace: BackTrace, and BackTraceHash.

    The hash is None if nothing was captured: Windows then leaves the caller's variable unchanged.
    """

    frames: Tuple[int, ...]
    hash: Optional[int]


def back_trace_hash(frames: Sequence[int]) -> int:
    """Returns the 32-bit sum of the low halves of return addresses (all builds from XP to 11)."""
    return sum(frames) & HASH_MASK


def known_hash(frames: Sequence[Optional[int]]) -> Optional[int]:
    """Returns the hash of return addresses, None if there are none or one is not known."""
    readable = [frame for frame in frames if frame is not None]
    return back_trace_hash(readable) if readable and len(readable) == len(frames) else None


def capture(return_addresses: Sequence[int], frames_to_skip: int, frames_to_capture: int) -> Capture:
    """Captures part of a stack, as measured on RtlCaptureStackBackTrace of XP to 11.

    Args:
        return_addresses: innermost first
        frames_to_skip: number of innermost frames to leave out
    """
    skip = max(frames_to_skip, 0)
    frames = tuple(return_addresses[skip : skip + max(frames_to_capture, 0)])
    return Capture(frames, back_trace_hash(frames) if frames else None)


def without_padding(stack: Tuple[int, ...]) -> Tuple[int, ...]:
    """Returns the frames of an array of fixed length before the zeros that pad it.

    A zero between frames was recorded and stays.
    """
    depth = len(stack)
    while depth and not stack[depth - 1]:
        depth -= 1
    return stack[:depth]
