# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The structures of user mode: the content of a process decides which of their layouts it has.

Some of their values must agree: the lists of the loader come back to their heads, and a critical section of
the PEB names debug information that names the section. A TEB holds its own address. If a newer Windows moves
members of these structures, these values decide which table fits a process.

Source: public symbols of ntdll, XP to 11; NT_TIB is from winnt.h.
"""

from __future__ import annotations

from typing import Sequence

from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.structure import MissingMemberError, Structures
from ..memory.decode.view import View
from ..memory.image import AddressSpace, Image

_LISTS = ("Load", "Memory", "Initialization")
PEB_LOCKS = ("FastPebLock", "LoaderLock")
"""Members of the PEB that point to a critical section."""

_MOST_KEPT = 64
"""Processes whose structures are kept: if one more comes, all are dropped."""


def user_types(image: Image, space: AddressSpace) -> Structures:
    """Returns the structures of user mode of one half of a process. `space` is a half of a process; the
    kernel gets the structures of its bitness."""
    return image.service(UserTypes).types_of(space)


def peb_at(image: Image, space: AddressSpace) -> View:
    """Returns the PEB of one half of a process."""
    return View(image.memory(space), user_types(image, space).find("_PEB"), space.peb, image.lacks)


def with_teb(image: Image, space: AddressSpace, teb: int) -> Structures:
    """Returns the structures of user mode that fit a TEB: with them it holds its own address."""
    candidates = image.process_generations(space.machine)
    if len(candidates) == 1:
        return candidates[0]
    memory = image.memory(space)
    holding = (types for types in candidates if memory.member(teb, types["_NT_TIB"].field("Self")) == teb)
    return next(holding, candidates[0])


class UserTypes:
    """Finds the structures of processes, for `image.service(UserTypes)`."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._chosen: Memo[AddressSpace, Structures] = Memo(self._choose, _MOST_KEPT)

    def types_of(self, space: AddressSpace) -> Structures:
        """Returns the structures of one half of a process; the default of its bitness if nothing decides."""
        candidates = self._image.process_generations(space.machine)
        if len(candidates) == 1 or not (space.peb and space.layer_name):
            return candidates[0]
        return self._chosen[space]

    def _choose(self, space: AddressSpace) -> Structures:
        candidates = self._image.process_generations(space.machine)
        return likeliest(self._image.memory(space), space.peb, candidates)


def likeliest(memory: Memory, peb: int, known: Sequence[Structures]) -> Structures:
    """Returns the structures with which most values below a PEB agree; if equal, the first ones."""
    return max(known, key=lambda types: _agreeing(memory, peb, types))


def _agreeing(memory: Memory, peb: int, types: Structures) -> int:
    """Returns how many values below a PEB agree; 0 if the structures lack a member that decides."""
    try:
        return _lists(memory, peb, types) + _locks(memory, peb, types)
    except MissingMemberError:
        return 0


def _lists(memory: Memory, peb: int, types: Structures) -> int:
    """Returns how many of the loader's lists begin with an entry that points back and describes a module."""
    data, entry = types["_PEB_LDR_DATA"], types["_LDR_DATA_TABLE_ENTRY"]
    ldr = memory.member(peb, types["_PEB"].field("Ldr"))
    count = 0
    for order in _LISTS if ldr else ():
        head = (ldr or 0) + data.offset(f"In{order}OrderModuleList")
        pair = memory.links(head)
        back = memory.links(pair[0]) if pair is not None and pair[0] != head else None
        if pair is None or back is None or back[1] != head:
            continue
        module = pair[0] - entry.offset(f"In{order}OrderLinks")
        base, size = (memory.member(module, entry.field(name)) for name in ("DllBase", "SizeOfImage"))
        count += bool(base and size and not base % 0x10000)
    return count


def _locks(memory: Memory, peb: int, types: Structures) -> int:
    """Returns how many of the PEB's critical sections have debug information that names them."""
    section, debug = types["_RTL_CRITICAL_SECTION"], types["_RTL_CRITICAL_SECTION_DEBUG"]
    count = 0
    for name in PEB_LOCKS:
        lock = memory.member(peb, types["_PEB"].first_member(name))
        information = memory.member(lock, section.field("DebugInfo"))
        named = memory.member(information, debug.field("CriticalSection"))
        count += bool(named) and named == lock
    return count
