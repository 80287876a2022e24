# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads that have never run: the switch frame leads to the first byte of KiThreadStartup."""

from __future__ import annotations

import pathlib
from typing import Union

import pytest

from tests.forge import context
from tests.support import traplayouts
from tests.support.callstackimages import WAIT, StackImage
from tests.support.callstackimages86 import StackImage86
from tests.windows.test_callstacks import MASK, by_key, stacks

TID = 1004


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64", "xp-x86", "win10-x86"])
def test_a_thread_that_has_never_run(name: str, tmp_path: pathlib.Path) -> None:
    """One byte before lies another function, whose name and unwind data are not the thread's."""
    image: Union[StackImage, StackImage86]
    if name.endswith("x64"):
        image = StackImage(name)
        thread = image.waiting(TID)
    else:
        image = StackImage86(name)
        thread = image.waiting(TID, interrupted=False)
    kernel = image.kernel
    # The tables of the forge lack x64's names: there the function table tells.
    start = kernel.symbol("KiThreadStartup") if isinstance(image, StackImage86) else image.nt + WAIT.rva
    switch = traplayouts.ours("x64" if name.endswith("x64") else "x86")["_KSWITCH_FRAME"]
    place = thread.kthread["KernelStack"]
    kernel.space.write_int(place + switch.offset("Return"), start)
    stack, frames = by_key(stacks(context.open_image(kernel.image(), tmp_path)))[TID, "kernel"]
    assert [(frame["Address"], frame["How"], frame["Status"]) for frame in frames] == [
        (start & MASK, "trap", "")
    ]
    if isinstance(image, StackImage86):
        assert frames[0]["Symbol"] == "nt!KiThreadStartup"
    assert not stack["Status"]
