# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Registers that the input itself has of a thread, as a CONTEXT."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import pytest

from tests.support import bare
from tests.support.only import only
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import text
from winstacks.memory.image import AddressSpace
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.thread import SavedContext, Thread, user_thread
from winstacks.process.threads import threads
from winstacks.stacks.lister import StackLister
from winstacks.traps.lister import TrapStates

SPACE = AddressSpace(1000, "app.exe", Machine.AMD64, "bare")
NARROW = SPACE._replace(machine=Machine.I386, wow64=True)


class OneThread:
    """A thread with a CONTEXT of 32-bit code."""

    def __init__(self, wow64: Optional[AddressSpace]) -> None:
        data = bytearray(0x2CC)
        for place, value in ((0, 0x10001), (0xB8, 0x401000), (0xBC, 0x23), (0xC4, 0x20000)):
            data[place : place + 4] = value.to_bytes(4, "little")
        saved = SavedContext(Machine.I386, bytes(data), 0x9000)
        self.thread = user_thread(SPACE, 7, None, (saved,), wow64)

    def list_threads(self, *_: Any) -> Iterator[Thread]:
        yield self.thread

    def list_idle(self) -> Iterator[Thread]:
        return iter(())


@pytest.mark.parametrize(("wow64", "word"), [(NARROW, ""), (None, "no 32-bit half")])
def test_a_context_of_a_half_that_is_not_known(wow64: Optional[AddressSpace], word: str) -> None:
    """It has its row all the same, and its stack a row that says why it is not walked."""
    image = bare.image(8)
    image.providing(threads)(OneThread(wow64))
    symbolizer = Symbolizer(image)
    state = only(TrapStates.list_states(image, symbolizer))
    assert (state.arch, state.registers["Rip"], state.mode) == ("x86", 0x401000, "user")
    assert text(state.status) == word
    stack = only(StackLister.list_stacks(image, symbolizer))
    assert (stack.part, stack.space.arch) == ("wow64", "x86")
    assert (word in text(stack.status)) and bool(stack.frames) == (not word)
