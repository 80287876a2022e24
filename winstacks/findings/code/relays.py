# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Hooks that lead through private relays: the module that a relay serves, and the processes with such hooks.

A product that hooks all processes writes a jump to a relay in private memory, at another address in each
process. The relay pushes, exchanges or calls its way into the product's module, whose address is in the
relay's bytes.
"""

from __future__ import annotations

import collections
from typing import FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

from ...columns.words import PRIVATE
from ...memory.image import AddressSpace
from ..facts import CheckFacts
from .copies import MAX_OTHERS, Mapping
from .jumps import ENTRY, hops

RELAY = 0x100
"""Bytes of a relay in which addresses are searched for: one that saves every register is that long."""
_ADDRESSES = 16
"""The most bytes in which relays of one product differ: the addresses and distances within them."""
_RELATIVE = (0xE8, 0xE9)
"""call rel32, jmp rel32 (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)."""
_HOOKED = ("ntdll", "win32u", "kernelbase", "kernel32", "user32", "ws2_32")
_MOST_FUNCTIONS = 1 << 13
"""The most functions of a module that are examined for hooks."""
BASIC = ("ntdll", "kernel32", "kernelbase", "wow64", "wow64cpu")
"""Modules to which any relay leads back, so that they do not identify a product."""


def served(space: AddressSpace, entry: int, facts: CheckFacts) -> Optional[FrozenSet[str]]:
    """Returns the files of the modules into which a hook leads, through relays or directly.

    None if the function, or a relay, is not in memory.
    """
    names, read = facts.namer(space), facts.image.memory(space).read
    files: List[str] = []
    if facts.copies.read(space, entry, ENTRY) is None:
        return None
    for target in hops(read, entry, space.machine):
        place = names.name(target, return_address=False)
        if place.backing == PRIVATE and read(target, 1) is None:
            return None
        for address in _addresses(space, target, facts) if place.backing == PRIVATE else (target,):
            known_module = names.module_at(address)
            if known_module is not None and known_module.module.stem not in BASIC:
                files.append(known_module.module.file.lower())
    return frozenset(files)


def _addresses(space: AddressSpace, relay: int, facts: CheckFacts) -> List[int]:
    """Returns the possible addresses in the bytes of a relay: pointers, and targets of calls and jumps."""
    read, size = facts.image.memory(space).read, space.machine.pointer_size
    lengths = (RELAY, RELAY // 4, RELAY // 16)
    code = next(filter(None, (read(relay, length) for length in lengths)), b"")
    values = []
    for at in range(len(code)):
        if at + size <= len(code):
            values.append(int.from_bytes(code[at : at + size], "little"))
        if code[at] in _RELATIVE and at + 5 <= len(code):
            values.append(relay + at + 5 + int.from_bytes(code[at + 1 : at + 5], "little", signed=True))
    return [value for value in values if facts.is_user(value)]


def of_relay(space: AddressSpace, at: int, facts: CheckFacts) -> Optional[str]:
    """Returns the module that the relay at an address serves; None unless all processes have such a relay.

    The hooked function is searched for among the Windows functions that products hook. The relay's code up to
    the address equals the code of another process's relay, but for addresses within it.
    """
    for target, entry in _hooks_of(space, facts):
        if target <= at < target + RELAY:
            hooked = Hooked(space, entry, facts)
            return hooked.by_all if hooked.by_all and hooked.has_code(target, at, facts) else None
    return None


def product_in(space: AddressSpace, code: bytes, facts: CheckFacts) -> Optional[str]:
    """Returns the module outside Windows' folders whose address is in some code; None if there is none."""
    size = space.machine.pointer_size
    for at in range(len(code) - size + 1):
        value = int.from_bytes(code[at : at + size], "little")
        known_module = facts.namer(space).module_at(value) if facts.is_user(value) else None
        if known_module is not None and not facts.of_windows(space, value):
            return known_module.module.file
    return None


def is_hooked(space: AddressSpace, at: int, facts: CheckFacts) -> bool:
    """Returns whether a hook of a Windows function leads into the region that holds an address."""
    vad = facts.vad(space, at)
    hooks = () if vad is None else _hooks_of(space, facts)
    return any(vad is not None and vad.start <= target < vad.end for target, _ in hooks)


def _hooks_of(space: AddressSpace, facts: CheckFacts) -> List[Tuple[int, int]]:
    return facts.find_once(__name__, space, 0, lambda: list(_hooks(space, facts)))


def _hooks(space: AddressSpace, facts: CheckFacts) -> Iterator[Tuple[int, int]]:
    """Yields the targets outside modules of hooks in Windows functions, and the function's address."""
    names, read = facts.namer(space), facts.image.memory(space).read
    for module in _HOOKED:
        for known_module in names.modules(module):
            # The function table still has most functions if the page with the exports is not in memory.
            labels = {rva for rva, _ in known_module.image.names.labels_with_prefix("")[:_MOST_FUNCTIONS]}
            table = known_module.image.functions
            begins = () if table is None else table.ranges[0][:_MOST_FUNCTIONS]
            for rva in sorted(labels.union(begins)):
                entry = known_module.module.base + rva
                for target in hops(read, entry, space.machine):
                    if names.module_at(target) is None:
                        yield target, entry


def having(space: AddressSpace, file: str, facts: CheckFacts) -> Set[str]:
    """Returns the layers of the other processes that map a module's file, which this process has loaded."""
    bases = [item.base for item in facts.namer(space).process.modules if item.file.lower() == file]
    mappings = (facts.copies.mapping(space, base) for base in bases)
    others = (facts.copies.others(mapping) for mapping in mappings if mapping is not None)
    return {item.space.layer_name for found in others for item in found}


class Hooked:
    """A hook of one process, compared with the hooks that other processes have in the same place. `entry` is
    the address of the hook's jump.

    Attributes:
        mine: files of the modules that the hook serves
        alike: number of other processes whose hook there serves one of these modules
        theirs: files of the modules that most hooks of other processes serve
        others: number of other processes whose hook there serves any module
        compared: number of other processes compared: the function and the relay are in memory
        lost: number of other processes whose function jumps to a relay that is not in memory
    """

    def __init__(self, space: AddressSpace, entry: int, facts: CheckFacts) -> None:
        self.mine = served(space, entry, facts) or frozenset()
        self._space, self._facts = space, facts
        mapping = facts.copies.mapping(space, entry)
        self._mappings = [] if mapping is None else facts.copies.others(mapping)
        self._distance = entry - (0 if mapping is None else mapping.vad.start)
        self._entries = self._entries_in(self._mappings[:MAX_OTHERS])
        sets = [(served(other, start, facts), start, other) for other, start in self._entries]
        theirs = [item for item, _, _ in sets if item is not None]
        self.alike = sum(bool(item & self.mine) for item in theirs)
        self.others = sum(bool(item) for item in theirs)
        self.compared = len(theirs)
        counts = collections.Counter(file for item in theirs for file in item)
        self.theirs = frozenset(file for file, count in counts.items() if 2 * count > self.others)
        self.lost = sum(
            item is None and bool(hops(facts.image.memory(other).read, start, other.machine))
            for item, start, other in sets
        )

    def _entries_in(self, mappings: Sequence[Mapping]) -> List[Tuple[AddressSpace, int]]:
        """Returns the same function in other processes: for a 32-bit half, in their 32-bit halves."""
        machine, wow64 = self._space.machine, self._space.wow64
        return [
            (item.space._replace(machine=machine, wow64=wow64), item.vad.start + self._distance)
            for item in mappings
        ]

    @property
    def by_users(self) -> int:
        """The number of other processes that have the module too, if all of them have such a hook, else 0."""
        layers = {layer for file in self.mine for layer in having(self._space, file, self._facts)}
        users = [item for item in self._mappings if item.space.layer_name in layers][:MAX_OTHERS]
        sets = (served(space, start, self._facts) for space, start in self._entries_in(users))
        known = [bool(item & self.mine) for item in sets if item is not None]
        return len(known) if all(known) else 0

    @property
    def by_all(self) -> Optional[str]:
        """The module that the hooks of all compared processes serve, too; None if there is none."""
        return next(iter(sorted(self.mine)), None) if self.compared and self.alike == self.compared else None

    @property
    def alone(self) -> bool:
        """Whether most other hooks serve a module, and this one serves none of their modules."""
        return 2 * self.others > self.compared and not self.alike

    def has_code(self, relay: int, at: int, facts: CheckFacts) -> bool:
        """Returns whether the relay of another process has the same code, from its start up to an address."""
        length = at - relay + 1
        code = facts.image.memory(self._space).read(relay, length)
        for space, entry in self._entries if code is not None else ():
            read = facts.image.memory(space).read
            for target in hops(read, entry, space.machine):
                theirs = read(target, length)
                if theirs is not None and sum(a != b for a, b in zip(code or b"", theirs)) <= _ADDRESSES:
                    return True
        return False
