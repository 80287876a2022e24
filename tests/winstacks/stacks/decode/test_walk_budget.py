# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""All walks in an input have its frames, and what scans read, together."""

from __future__ import annotations

from winstacks.stacks.decode import budget
from winstacks.stacks.decode.budget import NEAR_FRAMES, UNLIMITED, WalkBudget
from winstacks.stacks.decode.frames import MAX_FRAMES

MEGABYTE = 1 << 20


def test_usual_stacks_and_deep_ones_have_shares_of_their_own() -> None:
    """The stack of a recursion leaves the other threads their frames."""
    walks = WalkBudget(0)
    assert walks.most_frames == NEAR_FRAMES + budget.LEAST_FRAMES
    walks.take(walks.most_frames)
    assert walks.most_frames == NEAR_FRAMES


def test_a_walk_has_at_least_the_frame_of_its_registers() -> None:
    walks = WalkBudget(0)
    taken = 0
    for _ in range(20_000):
        taken += walks.most_frames
        walks.take(walks.most_frames)
    assert walks.most_frames == 1
    assert taken < 2 * budget.LEAST_FRAMES + 20_000


def test_a_larger_file_may_have_more() -> None:
    """A file of 1 MB has 180 usual stacks and more; without limits a walk has what one walk may have."""
    few, many = WalkBudget(MEGABYTE), WalkBudget(UNLIMITED)
    for _ in range(180):
        assert few.most_frames > NEAR_FRAMES
        few.take(NEAR_FRAMES)
    assert many.most_frames == MAX_FRAMES
    assert MEGABYTE < few.scanned <= 4 * MEGABYTE < many.scanned
