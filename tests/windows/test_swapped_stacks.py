# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Kernel stacks that Windows has swapped out, as it does when a thread waits in user mode for some seconds.

The pages are in transition, in the page file, or some of each: no fault of the thread.
"""

from __future__ import annotations

import pathlib
from typing import List

import pytest
from volatility3.plugins.windows import callstacks, traces, trapframes, waits

from tests.forge import context
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.support.callstackimages import StackImage
from tests.support.findingimages import found
from tests.windows.test_callstacks import by_key, stacks

TID = 1004


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
@pytest.mark.parametrize(
    ("states", "status"),
    [
        ([State.TRANSITION], ""),
        ([State.PAGEFILE], "unreadable"),
        ([State.TRANSITION, State.PAGEFILE], ""),
    ],
)
def test_a_kernel_stack_that_was_swapped_out(
    name: str, states: List[State], status: str, tmp_path: pathlib.Path
) -> None:
    """The states are of the stack's pages, from its base on downwards; the last state is of all others."""
    image = StackImage(name)
    thread = image.waiting(TID)
    whole = by_key(stacks(context.open_image(image.kernel.image(), tmp_path)))[TID, "kernel"][1]
    for number, page in enumerate(range(thread.stack_base - PAGE, thread.stack_limit - 1, -PAGE)):
        image.kernel.space.set_state(page, PAGE, states[min(number, len(states) - 1)])
    opened = context.open_image(image.kernel.image(), tmp_path)
    row, frames = by_key(stacks(opened))[TID, "kernel"]
    assert row["Status"].partition(",")[0] == status
    assert frames == whole[: len(frames)] and (frames == whole) == (not status)
    for plugin in (callstacks.CallStacks, traces.StackTraces, trapframes.TrapFrames, waits.WaitChains):
        told = [str(row["Status"]) for _, row in opened.rows(plugin)]
        assert not [text for text in told if "contradicted" in text or "damaged" in text]
    assert found(image.kernel.image()) == []
