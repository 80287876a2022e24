# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The limits of user stacks, from the TEB of each half.

Source: NT_TIB of winnt.h.
"""

from __future__ import annotations

from typing import List, Tuple

from ..memory.image import AddressSpace, Image
from .thread import Thread
from .usertypes import with_teb


class UserStacks:
    """Finds the limits of user stacks.

    Args:
        image: the image
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        teb = image.types.first_structure("_TEB")
        self._offset = None if teb is None else teb.first_member("WowTebOffset")

    def native(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns the limits of a thread's stack; an empty list if they are unknown."""
        limits = self._limits(thread.space, thread.teb or 0)
        return [thread.user_stack] if not limits and thread.user_stack is not None else limits

    def narrow(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns the limits of the 32-bit stack of a WoW64 thread."""
        return [] if thread.wow64 is None else self._limits(thread.wow64, self.teb32(thread))

    def all_limits(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns the known limits of the stacks of both halves."""
        return self.native(thread) + self.narrow(thread)

    def teb32(self, thread: Thread) -> int:
        """Returns the address of the TEB32 of a thread, 0 if it has none.

        TEB.ExceptionList leads to it, and from Windows 10 on WowTebOffset, too.
        """
        teb, memory = thread.teb or 0, self._image.memory(thread.space)
        if not teb:
            return 0
        data = memory.read(teb + self._offset.offset, 4) if self._offset is not None else None
        distance = int.from_bytes(data or b"", "little", signed=True)
        if distance:
            return teb + distance
        tib = with_teb(self._image, thread.space, teb)["_NT_TIB"]
        return memory.pointer(teb + tib.offset("ExceptionList")) or 0

    def _limits(self, space: AddressSpace, teb: int) -> List[Tuple[int, int]]:
        if not teb or not space.layer_name:
            return []
        memory = self._image.memory(space)
        tib = with_teb(self._image, space, teb)["_NT_TIB"]
        high, low = (memory.pointer(teb + tib.offset(name)) for name in ("StackBase", "StackLimit"))
        # No stack begins at 0.
        return [(low, high)] if low and high else []
