# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Hooks that lead through private code of their own: the module that they serve, and who else has them.

A product that hooks all processes writes a jump to a relay in private memory, which each process has at
another address. The relay pushes, exchanges or calls its way into the product's module, whose address is in
its bytes.
"""

from __future__ import annotations

from typing import FrozenSet, Iterator, List, Optional, Tuple

from ..columns.words import PRIVATE
from ..memory.image import AddressSpace
from .copies import MAX_OTHERS
from .facts import CheckFacts
from .jumps import ENTRY, hops

_RELAY = 0x40
"""Bytes of a relay in which an address is looked for."""
_RELATIVE = (0xE8, 0xE9)
"""call rel32, jmp rel32 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""
_HOOKED = ("ntdll", "win32u", "kernelbase", "kernel32", "user32", "ws2_32")
_MOST_FUNCTIONS = 1 << 13
"""Functions of one of these that are looked at."""
BASIC = ("ntdll", "kernel32", "kernelbase", "wow64", "wow64cpu")
"""To these any relay leads back."""


def served(space: AddressSpace, entry: int, facts: CheckFacts) -> Optional[FrozenSet[str]]:
    """Returns the modules into which a hook leads, by the names of their files, through relays or at once.

    None if the function, or a relay, is not in memory.

    Args:
        space: the process
        entry: address of the hook's jump
        facts: of the image
    """
    names, read = facts.names(space), facts.image.memory(space).read
    found: List[str] = []
    if facts.copies.read(space, entry, ENTRY) is None:
        return None
    for target in hops(read, entry, space.machine):
        place = names.name(target, return_address=False)
        if place.backing == PRIVATE and read(target, 1) is None:
            return None
        for each in _addresses(space, target, facts) if place.backing == PRIVATE else (target,):
            known = names.module_at(each)
            if known is not None and known.module.stem not in BASIC:
                found.append(known.module.file.lower())
    return frozenset(found)


def _addresses(space: AddressSpace, relay: int, facts: CheckFacts) -> List[int]:
    """Returns what may be addresses in the bytes of a relay: whole ones, and targets of calls and jumps."""
    read, size = facts.image.memory(space).read, space.machine.pointer_size
    code = next(filter(None, (read(relay, length) for length in (_RELAY, _RELAY // 2, _RELAY // 4))), b"")
    made = []
    for at in range(len(code)):
        if at + size <= len(code):
            made.append(int.from_bytes(code[at : at + size], "little"))
        if code[at] in _RELATIVE and at + 5 <= len(code):
            made.append(relay + at + 5 + int.from_bytes(code[at + 1 : at + 5], "little", signed=True))
    return [each for each in made if facts.is_user(each)]


def of_relay(space: AddressSpace, at: int, facts: CheckFacts) -> Optional[str]:
    """Returns the module that a relay serves whose code is at an address; None if all processes have none.

    The function that is hooked is looked for among those of Windows that products hook.
    """
    for target, entry in facts.once(__name__, space, 0, lambda: list(_hooks(space, facts))):
        if target <= at < target + _RELAY:
            return Hooked(space, entry, facts).by_all
    return None


def _hooks(space: AddressSpace, facts: CheckFacts) -> Iterator[Tuple[int, int]]:
    """Yields where hooks of Windows' functions lead outside of modules, and the function's address."""
    names, read = facts.names(space), facts.image.memory(space).read
    for module in _HOOKED:
        for known in names.modules(module):
            # Where the page with the exports is not in memory, the function table still has most functions.
            labels = {rva for rva, _ in known.image.names.starting("")[:_MOST_FUNCTIONS]}
            table = known.image.functions
            begins = () if table is None else table.ranges[0][:_MOST_FUNCTIONS]
            for rva in sorted(labels.union(begins)):
                entry = known.module.base + rva
                for target in hops(read, entry, space.machine):
                    if names.module_at(target) is None:
                        yield target, entry


class Hooked:
    """A hook of one process beside those that others have in the same place.

    Args:
        space: the process
        entry: address of its jump
        facts: of the image

    Attributes:
        mine: the modules that it serves
        alike: how many others have a hook there that serves one of these
        others: how many others have a hook there that serves any
        asked: how many of those that were asked have the function and the relay in memory
    """

    def __init__(self, space: AddressSpace, entry: int, facts: CheckFacts) -> None:
        self.mine = served(space, entry, facts) or frozenset()
        mapping = facts.copies.mapping(space, entry)
        asked = [] if mapping is None else facts.copies.others(mapping)[:MAX_OTHERS]
        base = 0 if mapping is None else mapping.vad.start
        told = (served(each.space, each.vad.start + entry - base, facts) for each in asked)
        theirs = [each for each in told if each is not None]
        self.alike = sum(bool(each & self.mine) for each in theirs)
        self.others = sum(bool(each) for each in theirs)
        self.asked = len(theirs)

    @property
    def by_all(self) -> Optional[str]:
        """The module that the hooks of all who were asked serve, too; None if there is none."""
        return next(iter(sorted(self.mine)), None) if self.asked and self.alike == self.asked else None

    @property
    def alone(self) -> bool:
        """Whether the hooks of most others serve a module, and this one serves none of theirs."""
        return 2 * self.others > self.asked and not self.alike
