# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The writes that are tried on what a plugin reads: each member alone, links and counts in pairs."""

from __future__ import annotations

import collections
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .members import VARIABLES, Member
from .target import Read, Target, Write

NONSENSE = 0x4141414141414141
KINDS = ("zero", "itself", "neighbour", "nonsense")

UNLINKED = "unlinked"
"""The neighbours of a node point past it, and its own links to itself."""
ALONE = "alone"
"""Both links of a node or head point to itself."""
WITH_COUNT = "zero with"
"""A pointer and a count of the same structure are 0."""

WORDS = 30
"""How many words that have no name are written to, for each plugin."""

MOST_COUNT = 1 << 20
"""The highest number that is taken for a count."""


class Case(NamedTuple):
    """What is written, and the plugin whose answer is judged.

    Attributes:
        plugin: its name
        members: the members that are written to, the first is what the case is about
        kind: what is written
        writes: the bytes
    """

    plugin: str
    members: Tuple[Member, ...]
    kind: str
    writes: Tuple[Write, ...]

    @property
    def name(self) -> str:
        return self.members[0].name

    @property
    def key(self) -> str:
        """What stays the same of the case when the plugins read other members, too."""
        places = " ".join(f"{member.name}@{member.address:x}" for member in self.members)
        return f"{self.plugin} {places} {self.kind}"


class Cases(NamedTuple):
    """The cases of a plugin, and what it reads."""

    cases: List[Case]
    read: Read


def cases(target: Target, plugin: str, most: int) -> Cases:
    """Returns the cases of a plugin.

    Args:
        target: the image
        plugin: the plugin
        most: of each member so many structures at most, from the first to the last
    """
    read = target.read(plugin)
    groups: Dict[Tuple[str, str, int], List[Member]] = collections.defaultdict(list)
    for member in read.members:
        groups[member.structure, member.path, member.size].append(member)
    cases = []
    for (structure, _, _), found in groups.items():
        step = max(len(found) // (most if structure else WORDS), 1)
        for number, member in enumerate(found[::step]):
            alike = found[number * step + 1 : number * step + 4] if structure else []
            cases += [
                Case(plugin, (member,), kind, writes) for kind, writes in _single(target, member, alike)
            ]
    for pairs in (_links(target, read.members), _counts(target, read.members)):
        by_name: Dict[Tuple[str, ...], List[Case]] = collections.defaultdict(list)
        for members, kind, writes in pairs:
            by_name[(kind, *(member.name for member in members))].append(Case(plugin, members, kind, writes))
        for alike_cases in by_name.values():
            cases += alike_cases[:: max(len(alike_cases) // most, 1)]
    return Cases(cases, read)


CaseParts = Iterator[Tuple[Tuple[Member, ...], str, Tuple[Write, ...]]]


def _single(
    target: Target, member: Member, alike: Sequence[Member]
) -> Iterator[Tuple[str, Tuple[Write, ...]]]:
    """Yields the writes to one member that change it.

    Args:
        target: the image
        member: the member
        alike: the same member of other structures
    """
    place, size = member.place or 0, member.size
    before = target.data[place : place + size]
    own = member.start | 0xFFFF << 48 if target.kernel.bits == 64 and member.start >> 47 & 1 else member.start
    others = [member.place or 0 for member in alike] + [place + size]
    values = [target.data[other : other + size] for other in others]
    neighbour = next((value for value in values if value != before and len(value) == size), before)
    mask = (1 << 8 * size) - 1
    known: Dict[str, bytes] = {
        kind: (value & mask).to_bytes(size, "little")
        for kind, value in (("zero", 0), ("itself", own), ("nonsense", NONSENSE))
    }
    for kind in KINDS:
        value = known.get(kind, neighbour)
        if value != before:
            yield kind, ((place, value),)


def _links(target: Target, members: Sequence[Member]) -> CaseParts:
    """Yields the writes to both links of a node, and to those of its neighbours."""
    at = {(member.layer, member.address, member.size): member for member in members}
    for member in members:
        if not member.path.endswith("Flink"):
            continue
        size, layer = member.size, member.layer
        place = (member.place or 0) + size
        blink = member._replace(path=f"{member.path[:-5]}Blink", address=member.address + size, place=place)
        other = at.get((layer, member.address + size, size), blink)
        own = _stored(target, member.address, size)
        after, before = _value(target, member), _value(target, other)
        both = (member, other)
        alone = _writes(target, layer, size, [(member.address, own), (member.address + size, own)])
        if alone and own not in (after, before):
            yield both, ALONE, alone
            past = [(before, after), (after + size, before)]
            closed = _writes(target, layer, size, past)
            if len(closed) == len(past):
                yield both, UNLINKED, (*closed, *alone)


def is_empty(target: Target, member: Member) -> bool:
    """Returns whether a Flink is that of a list, or of a node, which leads to itself alone."""
    return _value(target, member) == _stored(target, member.address, member.size)


def _counts(target: Target, members: Sequence[Member]) -> CaseParts:
    """Yields the writes of 0 to a pointer and to a small number of the same structure."""
    groups: Dict[Tuple[str, str, int], List[Member]] = collections.defaultdict(list)
    for member in members:
        if member.structure and not member.path.endswith(("link", "]")):
            start = 0 if member.structure == VARIABLES else member.start
            groups[member.structure, member.layer, start].append(member)
    for group in groups.values():
        pointers = [block for block in group if block.size in (4, 8) and _leads(target, block)]
        counts = [member for member in group if 0 < _value(target, member) < MOST_COUNT]
        for pointer in pointers:
            for count in counts:
                if count.address + count.size > pointer.address > count.address - pointer.size:
                    continue
                zeros = tuple((block.place or 0, bytes(block.size)) for block in (pointer, count))
                yield (pointer, count), f"{WITH_COUNT} {count.path}", zeros


def _leads(target: Target, member: Member) -> bool:
    """Returns whether a member is a pointer to memory that is in the image."""
    value = _value(target, member)
    return value >= MOST_COUNT and target.physical(member.layer, value) is not None


def _value(target: Target, member: Member) -> int:
    place = member.place or 0
    return int.from_bytes(target.data[place : place + member.size], "little")


def _stored(target: Target, address: int, size: int) -> int:
    """Returns an address as Windows stores it."""
    return address | 0xFFFF << 48 if size == 8 and address >> 47 & 1 else address


def _writes(target: Target, layer: str, size: int, values: Sequence[Tuple[int, int]]) -> Tuple[Write, ...]:
    """Returns the writes of some (address, value), as far as the addresses are in the image."""
    found = []
    for address, value in values:
        place = target.physical(layer, address)
        if place is not None:
            found.append((place, value.to_bytes(size, "little")))
    return tuple(found)
