# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The limits of user stacks, from the TEB of each half.

Source: NT_TIB of winnt.h.
"""

from __future__ import annotations

from typing import Collection, List, Optional, Set, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.structure import Structures
from ..memory.image import AddressSpace, Image
from .thread import Thread
from .usertypes import with_teb

_MOST_KEPT = 1 << 15
"""TEBs whose limits are kept: several parts of a command ask for each."""


class UserStacks:
    """Finds the limits of user stacks."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._known: Memo[Tuple[AddressSpace, int], List[Tuple[int, int]]] = Memo(self._read, _MOST_KEPT)

    def native(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns the limits of a thread's stack; an empty list if they are unknown."""
        limits = self._limits(thread.space, thread.own_teb)
        return [thread.user_stack] if not limits and thread.user_stack is not None else limits

    def narrow(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns the limits of the 32-bit stack of a WoW64 thread."""
        return [] if thread.wow64 is None else self._limits(thread.wow64, self.teb32(thread))

    def all_limits(self, thread: Thread) -> List[Tuple[int, int]]:
        """Returns the known limits of the stacks of both halves."""
        return self.native(thread) + self.narrow(thread)

    def teb32(self, thread: Thread) -> int:
        """Returns the address of the TEB32 of a thread, 0 if it has none, or if its TEB is in doubt."""
        return narrow_teb(self._image, thread.space, thread.own_teb)

    def _limits(self, space: AddressSpace, teb: int) -> List[Tuple[int, int]]:
        return self._known[space, teb] if teb and space.layer_name else []

    def _read(self, key: Tuple[AddressSpace, int]) -> List[Tuple[int, int]]:
        space, teb = key
        memory = self._image.memory(space)
        tib = with_teb(self._image, space, teb)["_NT_TIB"]
        high, low = (memory.pointer(teb + tib.offset(name)) for name in ("StackBase", "StackLimit"))
        # No stack begins at 0.
        return [(low, high)] if low and high else []


def contradicts(image: Image, space: AddressSpace, teb: int, tids: Collection[Optional[int]]) -> bool:
    """Returns whether the memory at the TEB of a thread says that it is no TEB, or the TEB of another thread.

    A program may write to ClientId: RealClientId is a second witness. Neither a page that is not in the image
    nor one of zeros says anything. `tids` are the IDs of the thread.
    """
    if not space.layer_name:
        return False
    memory, types = image.memory(space), with_teb(image, space, teb)
    own = memory.member(teb, types["_NT_TIB"].field("Self"))
    return (bool(own) and own != teb) or _of_another(memory, types, teb, tids)


def _of_another(memory: Memory, types: Structures, teb: int, tids: Collection[Optional[int]]) -> bool:
    """Returns whether a TEB names only threads with other IDs."""
    named = _named(memory, types, teb)
    return bool(named) and named.isdisjoint(tids)


def _named(memory: Memory, types: Structures, teb: int) -> Set[int]:
    """Returns the IDs of threads that a TEB names."""
    fields = (types["_TEB"].first_member(f"{name}.UniqueThread") for name in ("ClientId", "RealClientId"))
    return {tid for tid in (memory.member(teb, field) for field in fields) if tid}


def narrow_teb(image: Image, space: AddressSpace, teb: int) -> int:
    """Returns the address of the TEB32 that belongs to a 64-bit TEB, 0 if none does.

    TEB.ExceptionList leads to it, and from Windows 10 on WowTebOffset, too; before, that member was spare.
    Wine sets ExceptionList in the first thread only. A TEB32 in memory holds its own address, and the ID of
    the thread. `teb` is the canonical address of the TEB, 0 if it is unknown.
    """
    if not teb or not space.layer_name:
        return 0
    memory, types = image.memory_of(space.layer_name, Machine.AMD64.pointer_size), with_teb(image, space, teb)
    distance = memory.member(teb, types["_TEB"].first_member("WowTebOffset")) or 0
    first = memory.member(teb, types["_NT_TIB"].field("ExceptionList")) or 0
    places = [place for place in (teb + distance if distance else 0, first) if place > 0]
    narrow, half = space._replace(machine=Machine.I386), image.memory_of(space.layer_name, 4)
    found, tids = [(place, with_teb(image, narrow, place)) for place in places], _named(memory, types, teb)
    if tids:
        found = [(place, form) for place, form in found if not _of_another(half, form, place, tids)]
    own = (place for place, form in found if half.member(place, form["_NT_TIB"].field("Self")) == place)
    return next(own, found[0][0] if found else 0)
