# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Notes every member of a structure that a run asks for, with the address at which it lies.

Nothing here lists members: what the code asks `Structure`, `Memory` or an object of Volatility for is noted
when it does so. So a new member is in the list as soon as some code reads it. The offset that a structure
gives away knows its member, and so do the address to which it is added and the node of a list from which it
is subtracted: what is read there has a name, too.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple
from unittest import mock

from volatility3.framework import objects
from volatility3.framework.interfaces import objects as objects_interface

WORD = 8
"""The longest member that is noted; what is longer consists of members."""

ITEMS = 3
"""How many items of an array are noted."""

LINKS = ("Flink", "Blink")
WORDS = "word"
VARIABLES = "nt"
"""Stands for the structure of the kernel's variables."""


class Member(NamedTuple):
    """A member that was read.

    Attributes:
        structure: name of its structure; `nt` for a variable of the kernel; empty for a word that was read by
            its address alone
        path: its name in the structure; of a word the module that read it
        layer: the layer through which it was read
        address: where it lies in that layer
        size: bytes
        start: address of its structure, for a word its own
        place: where it lies in physical memory, None if that is not known (yet)
        others: its names in other structures: a search takes the same bytes for several
    """

    structure: str
    path: str
    layer: str
    address: int
    size: int
    start: int
    place: Optional[int] = None
    others: Tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.structure or WORDS}.{self.path}"

    @property
    def names(self) -> Tuple[str, ...]:
        return (self.name, *self.others)


class Notes:
    """What was read while `noting` ran. `members` are in the order in which they were first read.

    Attributes:
        pointer_size: bytes of a pointer of the kernel
        requests: (structure, path) of all members whose place the code asked for, whether it read them or not
    """

    def __init__(self, pointer_size: int) -> None:
        self.pointer_size = pointer_size
        self._members: Dict[Tuple[str, int, int], Dict[Tuple[str, str], Member]] = {}
        self._nodes: Dict[int, Tuple[str, str, int]] = {}
        self._fields: Dict[Tuple[int, str], Tuple[Any, Any]] = {}
        self.requests: Set[Tuple[str, str]] = set()

    @property
    def members(self) -> List[Member]:
        groups = [[self._named(member) for member in by_name.values()] for by_name in self._members.values()]
        blinks = {(member.structure, member.path, member.start) for group in groups for member in group}
        return [_joined([_forward(member, blinks) for member in group]) for group in groups]

    def add(self, member: Member) -> None:
        """Notes a member; one with a name goes before a bare word at the same place."""
        if member.size > WORD:
            return
        found = self._members.setdefault((member.layer, member.address, member.size), {})
        found.setdefault((member.structure, member.path), member)

    def tagged(self, structure: Any, path: str, field: Any) -> Any:
        """Returns a Field whose offset knows its member."""
        key = (id(structure), path)
        if key not in self._fields:
            self.requests.add((structure.name, path))
            place = _Offset.create(int(field.offset), structure.name, path, self)
            self._fields[key] = (structure, field._replace(offset=place))
        return self._fields[key][1]

    def field(self, field: Any, data: Any, base: int) -> None:
        """Notes what a Field reads of data."""
        place = field.offset
        if isinstance(data, _Located) and isinstance(place, _Offset):
            start = data.address + int(base)
            at = start + int(place)
            self.add(Member(place.structure, place.path, data.layer, at, int(field.size), start))

    def words(self, data: Any, at: int, size: int, count: int) -> None:
        """Notes words that were read by an address, which may know its member."""
        if not isinstance(data, _Located):
            return
        known = at if isinstance(at, _Address) else None
        for number in range(min(count, len(data) // size)):
            address = data.address + number * size
            if known is None:
                self.add(Member("", _module(), data.layer, address, size, address))
            else:
                path = known.path if count == 1 else f"{known.path}[{number}]"
                self.add(Member(known.structure, path, data.layer, address, size, known.start))

    def part(self, data: Any, at: Any, length: int) -> None:
        """Notes what was cut out of data at an offset that knows its member."""
        if isinstance(at, (_Offset, _Address)) and length:
            start = data.address + int(at.start if isinstance(at, _Address) else 0)
            size = length if length <= WORD else self.pointer_size
            for number in range(1 if length <= WORD else min(ITEMS, length // size)):
                path = at.path if length <= WORD else f"{at.path}[{number}]"
                address = data.address + int(at) + number * size
                self.add(Member(at.structure, path, data.layer, address, size, start))

    def links(self, data: Any, at: int, size: int) -> None:
        """Notes both links of a list's head or node."""
        if not isinstance(data, _Located):
            return
        structure, path, start = ("_LIST_ENTRY", "", data.address)
        if isinstance(at, _Address):
            structure, path, start = at.structure, f"{at.path}.", at.start
        for number, link in enumerate(LINKS):
            address = data.address + number * size
            self.add(Member(structure, path + link, data.layer, address, size, start))

    def node(self, address: int, offset: _Offset) -> None:
        """Remembers that an address is that of a member."""
        self._nodes[address] = (offset.structure, offset.path, address - int(offset))

    def _named(self, member: Member) -> Member:
        """Returns a member with the name that its address got later."""
        if member.structure == "_LIST_ENTRY" and member.start in self._nodes:
            structure, path, start = self._nodes[member.start]
            return member._replace(structure=structure, path=f"{path}.{member.path}", start=start)
        for link, address in zip(LINKS, (member.address, member.address - member.size)):
            if not member.structure and address in self._nodes:
                structure, path, start = self._nodes[address]
                return member._replace(structure=structure, path=f"{path}.{link}", start=start)
        return member


def _forward(member: Member, known: Set[Tuple[str, str, int]]) -> Member:
    """Returns a member as the Flink of a list if something else was read as its Blink."""
    blink = (member.structure, f"{member.path}.Blink", member.start)
    return member._replace(path=f"{member.path}.Flink") if blink in known else member


def _joined(members: List[Member]) -> Member:
    """Returns the member of several names at one place: the first of a structure, with the other names."""
    ordered = sorted(members, key=lambda member: not member.structure)
    names = dict.fromkeys(member.name for member in ordered[1:] if member.structure)
    return ordered[0]._replace(others=tuple(name for name in names if name != ordered[0].name))


def _module() -> str:
    """Returns the module that is reading: room and name."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None:
        _, found, name = frame.f_code.co_filename.rpartition("/winstacks/")
        if found and name not in READERS:
            return name[: -len(".py")]
        frame = frame.f_back
    return ""


READERS = ("memory/decode/memory.py", "memory/decode/ranges.py", "memory/bulk.py")
"""Modules that read for others."""


class _Offset(int):
    """The offset of a member, which knows its name."""

    structure: str
    path: str
    notes: Notes

    @classmethod
    def create(cls, value: int, structure: str, path: str, notes: Notes) -> _Offset:
        instance = cls(value)
        instance.structure, instance.path, instance.notes = structure, path, notes
        return instance

    def __add__(self, other: Any) -> Any:
        if isinstance(other, _Offset):
            return int(self) + int(other)
        return _Address.create(int(self) + int(other), self.structure, self.path, int(other))

    __radd__ = __add__

    def __rsub__(self, other: Any) -> int:
        self.notes.node(int(other), self)
        return int(other) - int(self)


class _Address(int):
    """The address of a member, which knows its name and where its structure begins."""

    structure: str
    path: str
    start: int

    @classmethod
    def create(cls, value: int, structure: str, path: str, start: int) -> _Address:
        piece = cls(value)
        piece.structure, piece.path, piece.start = structure, path, start
        return piece

    def __add__(self, other: Any) -> Any:
        """The first words behind an address are of the same member: of a list's head its Blink is."""
        where = int(self) + int(other)
        if isinstance(other, _Offset) or not 0 <= other <= WORD:
            return where
        return _Address.create(
            where, self.structure, f"{self.path}.Blink" if other else self.path, self.start
        )


class _Located(bytes):
    """Bytes that know where they were read."""

    layer: str
    address: int
    notes: Notes

    @classmethod
    def create(cls, data: bytes, layer: str, address: int, notes: Notes) -> _Located:
        entry = cls.__new__(cls, data)
        entry.layer, entry.address, entry.notes = layer, address, notes
        return entry

    def __bytes__(self) -> bytes:
        return self

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(key, slice):
            return found
        start, _, step = key.indices(len(self))
        if step != 1:
            return found
        self.notes.part(self, key.start, len(found))
        return _Located.create(found, self.layer, self.address + start, self.notes)


class _Packer(struct.Struct):
    """Unpacks several members at once, and notes them."""

    fields: Tuple[Any, ...]
    notes: Notes

    def unpack_from(self, data: Any, offset: int = 0) -> Tuple[Any, ...]:
        for field in self.fields:
            self.notes.field(field, data, offset)
        return super().unpack_from(data, offset)


@contextlib.contextmanager
def noting(pointer_size: int) -> Iterator[Notes]:
    """Notes the members that are read inside.

    Args:
        pointer_size: bytes of a pointer of the kernel
    """
    from winstacks.memory import bulk, image
    from winstacks.memory.decode import memory, structure

    notes = Notes(pointer_size)
    with contextlib.ExitStack() as stack:
        for owner, name, hook in (
            *_hooks_of_structures(notes, structure),
            *_hooks_of_memory(notes, memory.Memory),
            *_hooks_of_images(notes, bulk, image.Image),
        ):
            stack.enter_context(mock.patch.object(owner, name, hook))
        yield notes


Hooks = Iterator[Tuple[Any, str, Callable[..., Any]]]


def _hooks_of_structures(notes: Notes, structure: Any) -> Hooks:
    """What gives away the place of a member, and what reads one of bytes."""
    first_member, value_in = structure.Structure.first_member, structure.Field.value_in
    packer = structure.Structure.packer

    def named(self: Any, *paths: str) -> Any:
        found = first_member(self, *paths)
        path = next((path for path in paths if found is not None and self._fields.get(path) is found), None)
        return found if path is None else notes.tagged(self, path, found)

    def value_of(self: Any, data: Any, base: int = 0) -> int:
        notes.field(self, data, base)
        return int(value_in(self, data, base))

    def packer_of(self: Any, *paths: str) -> Any:
        new_packer = _Packer(packer(self, *paths).format)
        new_packer.fields, new_packer.notes = tuple(map(self.field, paths)), notes
        return new_packer

    yield structure.Structure, "first_member", named
    yield structure.Field, "value_in", value_of
    yield structure.Structure, "packer", packer_of


def _hooks_of_memory(notes: Notes, memory: Any) -> Hooks:
    """What reads a member, a pair of links or a word at an address."""
    number, links, read = memory.number, memory.links, memory.read

    def number_of(self: Any, address: Optional[int], size: int) -> Any:
        if address is None:
            return number(self, address, size)
        notes.words(self.read(int(address), size), address, size, 1)
        return number(self, int(address), size)

    def links_of(self: Any, address: int) -> Any:
        notes.links(self.read(int(address), 2 * self.pointer_size), address, self.pointer_size)
        return links(self, int(address))

    def read_of(self: Any, address: int, length: int) -> Any:
        found = read(self, address, length)
        if found is not None and isinstance(address, _Address):
            size = self.pointer_size if length > WORD else length
            if size:
                notes.words(found, address, size, 1 if length <= WORD else ITEMS)
        return found

    yield memory, "number", number_of
    yield memory, "links", links_of
    yield memory, "read", read_of


def _hooks_of_images(notes: Notes, bulk: Any, image: Any) -> Hooks:
    """What reads a layer, what knows a variable's address, and Volatility's objects."""
    from winstacks.memory.decode.ranges import Extents

    read_extents, symbol = bulk.read_extents, image.symbol
    getattribute = objects.AggregateType.__getattr__

    class Tagged(Extents):
        """Extents whose bytes know their layer."""

        def __init__(self, runs: Any, layer: str) -> None:
            super().__init__(runs)
            self.layer = layer
            self.runs: Any = tuple(
                (start, _Located.create(data, layer, start, notes)) for start, data in self.runs
            )

        def read(self, address: int, length: int) -> Any:
            view = super().read(address, length)
            if view is None:
                return None
            found = _Located.create(bytes(view), self.layer, int(address), notes)
            if length <= WORD:
                notes.words(found, address, length, 1)
            return found

        def part(self, start: int, length: int) -> Any:
            return Tagged(super().part(start, length).runs, self.layer)

    def tagged(context: Any, layer: str, start: int, length: int, *how: Any, **named: Any) -> Any:
        return Tagged(read_extents(context, layer, start, length, *how, **named).runs, layer)

    def symbol_of(self: Any, *names: str) -> Any:
        for name in names:
            found = symbol(self, name)
            if found is not None:
                return _Address.create(found, VARIABLES, name, found)
        return None

    def attribute(self: Any, name: str) -> Any:
        found = getattribute(self, name)
        if isinstance(found, objects_interface.ObjectInterface) and 0 < found.vol.size <= WORD:
            kind, start = self.vol.type_name.rsplit("!", 1)[-1], int(self.vol.offset)
            at, layer = int(found.vol.offset), str(found.vol.layer_name)
            notes.requests.add((kind, name))
            notes.add(Member(kind, name, layer, at, int(found.vol.size), start))
        return found

    yield bulk, "read_extents", tagged
    yield image, "symbol", symbol_of
    yield objects.AggregateType, "__getattr__", attribute
