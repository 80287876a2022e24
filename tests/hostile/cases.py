# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The writes that are tried on what a plugin reads: each member alone, links and counts in pairs."""

from __future__ import annotations

import collections
import fnmatch
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from .members import VARIABLES, Member
from .target import Read, Target, Write

NONSENSE = 0x4141414141414141
KINDS = ("zero", "itself", "neighbour", "nonsense")
STEPS = (("one more", 1), ("one less", -1), ("eight more", 8), ("eight less", -8))
"""What is added to the value of a member: who knows a value changes it as little as possible."""

NARROW = 2
"""Bytes of the first member of a structure that is read whole, such as the Length of a UNICODE_STRING."""

UNLINKED = "unlinked"
"""The neighbours of a node point past it, and its own links to itself."""
ALONE = "alone"
"""Both links of a node or head point to itself."""
WITH_COUNT = "zero with"
"""A pointer and a count of the same structure are 0."""

UNLISTED = "unlinked, and without its ID"
"""As `UNLINKED`, and the entry of PspCidTable is 0: a process or thread out of its list and its table."""
UNKNOWN = "unlinked, and without its ID or threads"
"""As `UNLISTED`, of a process that has no threads either."""
LISTED = ("_ETHREAD.ThreadListEntry.Flink", "_EPROCESS.ActiveProcessLinks.Flink")
"""The lists of what PspCidTable has, too."""
ENTRY = "process/decode/handletable"
"""The path of an entry of PspCidTable: the module that reads it."""

BOTH = "both zero"
"""A pointer is 0, and what elsewhere tells that it should not be."""

SECOND_SOURCES = (
    ("nt.RtlpStackTraceData?ase", "nt.NtGlobalFlag"),
    ("_HANDLE_TABLE.DebugInfo", "nt.PoolBigPageTable"),
    ("_ETHREAD.ThreadListEntry.Flink", "word.process/*handletable*"),
    ("_EPROCESS.ActiveProcessLinks.Flink", "word.process/*handletable*"),
    ("nt.PsLoadedModuleList.Flink", "nt.MmUnloadedDrivers"),
)
"""Patterns of two names: a member, and the second source with which it is compared."""

OF_STACKS = ("callstacks", "tracefindings")
"""The plugins whose rows are made of the words of stacks."""

STACK_WORD = "stacks/return"
"""The path of a word of a stack that is the return address of a frame."""

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
    if plugin in OF_STACKS:
        read = read._replace(members=(*read.members, *_stack_words(target)))
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
    pairs_of = (_links, _without_entries, _counts, _second_sources)
    for pairs in (make(target, read.members) for make in pairs_of):
        by_name: Dict[Tuple[str, ...], List[Case]] = collections.defaultdict(list)
        for members, kind, writes in pairs:
            by_name[(kind, *(member.name for member in members))].append(Case(plugin, members, kind, writes))
        for alike_cases in by_name.values():
            cases += alike_cases[:: max(len(alike_cases) // most, 1)]
    return Cases(cases, read)


def _stack_words(target: Target) -> Iterator[Member]:
    """Yields the return addresses in the memory of stacks, in the order of the rows of windows.callstacks."""
    clean, size = target.clean("callstacks"), target.kernel.space.pointer_size
    processes = {process.pid: process.space for process in target.kernel.processes}
    for pid, sp, address in zip(*map(clean.column, ("PID", "Sp", "Address"))):
        space = processes.get(pid)
        if space is None or not sp or not address or not space.holds(sp - size):
            continue
        place = space.physical(sp - size)
        if (
            int.from_bytes(target.data[place : place + size], "little") & (1 << 48) - 1
            == address & (1 << 48) - 1
        ):
            yield Member("", STACK_WORD, f"process {pid}", sp - size, size, sp - size, place)


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
    seen = {before, neighbour, *known.values()}
    for kind, value in _near(before):
        if value not in seen:
            seen.add(value)
            yield kind, ((place, value),)
    if member.path.endswith("[0]") and size > NARROW:
        for kind, value in (("zero", bytes(NARROW)), *_near(before[:NARROW])):
            if value != before[:NARROW]:
                yield f"first {NARROW} bytes: {kind}", ((place, value),)


def _near(before: bytes) -> Iterator[Tuple[str, bytes]]:
    """Yields values near that of a member: a few more or less, half of it and twice of it."""
    number, mask = int.from_bytes(before, "little"), (1 << 8 * len(before)) - 1
    values = [(kind, number + step) for kind, step in STEPS]
    for kind, value in (*values, ("half", number >> 1), ("double", number << 1)):
        yield kind, (value & mask).to_bytes(len(before), "little")


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


def _without_entries(target: Target, members: Sequence[Member]) -> CaseParts:
    """Yields the writes that take a process or thread off its list, and its entry out of PspCidTable."""
    kernel, mask = target.kernel, (1 << 48) - 1
    numbers = {process.eprocess.address & mask: process.pid for process in kernel.processes}
    idle = {process.eprocess.address & mask for process in kernel.processes if not process.threads}
    for process in kernel.processes:
        numbers.update({thread.ethread.address & mask: thread.tid for thread in process.threads})
    for (node, _), kind, writes in _links(target, members):
        number = numbers.get(node.start & mask)
        if kind != UNLINKED or node.name not in LISTED or number is None or kernel.cid is None:
            continue
        address, size = kernel.cid.entry(number), kernel.isf.size("_HANDLE_TABLE_ENTRY")
        place = kernel.space.physical(address)
        entry = Member("", ENTRY, node.layer, address, size, address, place)
        kind = UNKNOWN if node.start & mask in idle else UNLISTED
        yield (node, entry), kind, (*writes, (place, bytes(size)))


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


def _second_sources(target: Target, members: Sequence[Member]) -> CaseParts:
    """Yields the writes of 0 to a member and to the second source with which it is compared."""
    for first, second in SECOND_SOURCES:
        others = [member for member in members if fnmatch.fnmatchcase(member.name, second)]
        for member in members:
            if not fnmatch.fnmatchcase(member.name, first) or not _value(target, member):
                continue
            for other in others:
                if _value(target, other):
                    zeros = tuple((part.place or 0, bytes(part.size)) for part in (member, other))
                    yield (member, other), BOTH, zeros


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
