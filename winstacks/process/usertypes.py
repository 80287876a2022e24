# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The structures of user mode, of which a process itself tells what layout they have.

Windows keeps in them what has to agree: the lists of the loader come back to their heads, and a critical
section of the PEB names debug information that names the section. A TEB holds its own address. Where a table
of a newer Windows moves members of these structures, that tells which table a process is read with.

Source: public symbols of ntdll, XP to 11; the NT_TIB is winnt.h's.
"""

from __future__ import annotations

from typing import Sequence

from ..memory.decode.memo import Memo
from ..memory.decode.memory import Memory
from ..memory.decode.structure import MissingMemberError, Structures
from ..memory.image import AddressSpace, Image

_LISTS = ("Load", "Memory", "Initialization")
_LOCKS = ("FastPebLock", "LoaderLock")
_MOST_KEPT = 64
"""Processes whose structures are kept, those that were asked for last."""


def user_types(image: Image, space: AddressSpace) -> Structures:
    """Returns the structures of user mode of one half of a process.

    Args:
        image: the image
        space: the half of a process; the kernel's are those of its bitness

    Raises:
        tables.MissingTableError: when our symbol table is nowhere
    """
    return image.service(UserTypes).of(space)


def with_teb(image: Image, space: AddressSpace, teb: int) -> Structures:
    """Returns the structures of user mode that a TEB is read with: with them it holds its own address.

    Args:
        image: the image
        space: the half of a process
        teb: address of a TEB of that half

    Raises:
        tables.MissingTableError: when our symbol table is nowhere
    """
    known = image.process_generations(space.machine)
    if len(known) == 1:
        return known[0]
    memory = image.memory(space)
    holding = (types for types in known if memory.member(teb, types["_NT_TIB"].field("Self")) == teb)
    return next(holding, known[0])


class UserTypes:
    """Finds the structures of processes, for `image.service(UserTypes)`.

    Args:
        image: the image
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._chosen: Memo[AddressSpace, Structures] = Memo(self._choose, _MOST_KEPT)

    def of(self, space: AddressSpace) -> Structures:
        """Returns the structures of one half of a process, those of its bitness where nothing tells.

        Raises:
            tables.MissingTableError: when our symbol table is nowhere
        """
        known = self._image.process_generations(space.machine)
        if len(known) == 1 or not (space.peb and space.layer_name):
            return known[0]
        return self._chosen[space]

    def _choose(self, space: AddressSpace) -> Structures:
        known = self._image.process_generations(space.machine)
        return likeliest(self._image.memory(space), space.peb, known)


def likeliest(memory: Memory, peb: int, known: Sequence[Structures]) -> Structures:
    """Returns the structures with which most agrees of what a PEB leads to; of equal ones the first.

    Args:
        memory: of the half of the process
        peb: address of its PEB
        known: the structures of each table
    """
    return max(known, key=lambda types: _agreeing(memory, peb, types))


def _agreeing(memory: Memory, peb: int, types: Structures) -> int:
    """Returns how much agrees of what a PEB leads to; 0 where the structures lack a member that tells."""
    try:
        return _lists(memory, peb, types) + _locks(memory, peb, types)
    except MissingMemberError:
        return 0


def _lists(memory: Memory, peb: int, types: Structures) -> int:
    """Returns how many of the loader's lists begin with an entry that leads back and describes a module."""
    data, entry = types["_PEB_LDR_DATA"], types["_LDR_DATA_TABLE_ENTRY"]
    ldr = memory.member(peb, types["_PEB"].field("Ldr"))
    found = 0
    for order in _LISTS if ldr else ():
        head = (ldr or 0) + data.offset(f"In{order}OrderModuleList")
        pair = memory.links(head)
        back = memory.links(pair[0]) if pair is not None and pair[0] != head else None
        if pair is None or back is None or back[1] != head:
            continue
        module = pair[0] - entry.offset(f"In{order}OrderLinks")
        base, size = (memory.member(module, entry.field(name)) for name in ("DllBase", "SizeOfImage"))
        found += bool(base and size and not base % 0x10000)
    return found


def _locks(memory: Memory, peb: int, types: Structures) -> int:
    """Returns how many of the PEB's critical sections have debug information that names them."""
    section, debug = types["_RTL_CRITICAL_SECTION"], types["_RTL_CRITICAL_SECTION_DEBUG"]
    found = 0
    for name in _LOCKS:
        place = types["_PEB"].find(name)
        lock = memory.member(peb, place) if place is not None else None
        information = memory.member(lock, section.field("DebugInfo")) if lock else None
        named = memory.member(information, debug.field("CriticalSection")) if information else None
        found += bool(named) and named == lock
    return found
