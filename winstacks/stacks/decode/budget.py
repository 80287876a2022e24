# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The limits of all walks in an input together.

The frames of each thread's stack take room in the file. If a file shows the same bytes to thousands of
threads, the same stack would be walked, scanned and printed for each of them.
"""

from __future__ import annotations

from .frames import MAX_FRAMES

NEAR_FRAMES = 64
"""Frames of a usual stack. Those beyond, as of recursions, have a share of their own."""

LEAST_FRAMES = 1 << 12
BYTES_OF_A_FRAME = 128
"""Beyond LEAST_FRAMES an input may have one frame of usual stacks and one of deep ones for so many bytes."""

MAX_NEAR = 1 << 23
MAX_DEEP = 1 << 20
"""The most frames of both kinds: an image can map the same page often, and a file can be sparse."""

LEAST_SCANNED = 1 << 19
SCANS_OF_A_BYTE = 1
MAX_SCANS = 1 << 30
"""The most bytes of stacks that scans read."""

MAX_FOLLOWED = 5_000_000
"""Maximum number of 32-bit instructions that are followed in one image, in total."""

LEAST_FOLLOWED, FOLLOWED_PER_KILOBYTE = 200_000, 100
"""Instructions that are followed in any image, and further ones for each 1,024 bytes of its file."""

UNLIMITED = 1 << 62
"""The size of a file for a walk by itself."""


def most_scanned(file_size: int) -> int:
    """Returns the most bytes of stacks that are searched in an input whose files have so many bytes."""
    return min(LEAST_SCANNED + SCANS_OF_A_BYTE * file_size, MAX_SCANS)


class WalkBudget:
    """The frames that all walks may still have, and the bytes of stacks that scans may still read.
    `file_size` counts the bytes of the files of the input. `scanned` is how many bytes scans may still read;
    0 or less if none."""

    def __init__(self, file_size: int) -> None:
        frames = LEAST_FRAMES + file_size // BYTES_OF_A_FRAME
        self._near, self._deep = min(frames, MAX_NEAR), min(frames, MAX_DEEP)
        self.scanned = most_scanned(file_size)

    @property
    def most_frames(self) -> int:
        """The frames that the next walk may have: at least the one of its registers."""
        if self._near < NEAR_FRAMES:
            return max(self._near, 1)
        return min(NEAR_FRAMES + self._deep, MAX_FRAMES)

    def take(self, frames: int) -> None:
        """Counts the frames of a walk."""
        self._near = max(self._near - min(frames, NEAR_FRAMES), 0)
        self._deep = max(self._deep - max(frames - NEAR_FRAMES, 0), 0)


class FollowBudget:
    """The number of 32-bit instructions that may still be followed, in all address spaces of an image."""

    def __init__(self, file_size: int) -> None:
        self.left = min(LEAST_FOLLOWED + FOLLOWED_PER_KILOBYTE * (file_size >> 10), MAX_FOLLOWED)
