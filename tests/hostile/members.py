# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Notes every member of a structure that a run asks for, with the address at which it lies.

Nothing here lists members: what the code asks `Structure`, `Memory` or an object of Volatility for is noted
when it does so. So a new member is in the list as soon as some code reads it.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple
from unittest import mock

from volatility3.framework import objects
from volatility3.framework.interfaces import objects as objects_interface

WORD = 8
"""The longest member that is noted; what is longer consists of members."""


class Member(NamedTuple):
    """A member that was read.

    Attributes:
        structure: name of its structure; empty for a word that was read by its address alone, such as a
            variable or the link of a list
        path: its name in the structure
        layer: the layer through which it was read
        address: where it lies in that layer
        size: bytes
        start: address of its structure, for a word its own
    """

    structure: str
    path: str
    layer: str
    address: int
    size: int
    start: int

    @property
    def name(self) -> str:
        return f"{self.structure or 'word'}.{self.path or f'{self.address:#x}'}"


class _Located(bytes):
    """Bytes that know where they were read."""

    layer: str
    address: int

    @classmethod
    def of(cls, data: bytes, layer: str, address: int) -> _Located:
        made = cls(data)
        made.layer, made.address = layer, address
        return made

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(key, slice):
            start, _, step = key.indices(len(self))
            return _Located.of(found, self.layer, self.address + start) if step == 1 else found
        return found


class Notes:
    """What was read while `noting` ran. `members` are in the order in which they were first read."""

    def __init__(self) -> None:
        self._members: Dict[Tuple[str, int, int], Member] = {}
        self._fields: Dict[int, Tuple[Any, str, str]] = {}

    @property
    def members(self) -> List[Member]:
        return list(self._members.values())

    def add(self, member: Member) -> None:
        """Notes a member; one with a name goes before a bare word at the same place."""
        key = (member.layer, member.address, member.size)
        known = self._members.get(key)
        if member.size <= WORD and (known is None or (member.structure and not known.structure)):
            self._members[key] = member

    def name(self, structure: Any, path: str, field: Any) -> None:
        """Remembers what a Field is called; it is kept, so that no other gets its identity."""
        self._fields[id(field)] = (field, structure.name, path)

    def field(self, field: Any, data: Any, base: int) -> None:
        """Notes what a Field reads of data."""
        if isinstance(data, _Located):
            _, structure, path = self._fields.get(id(field), (None, "", ""))
            address = data.address + base + field.offset
            self.add(Member(structure, path, data.layer, address, field.size, address - field.offset))

    def words(self, data: Any, size: int) -> None:
        """Notes what was read by its address, word by word."""
        if isinstance(data, _Located):
            for address in range(data.address, data.address + len(data), size):
                self.add(Member("", "", data.layer, address, size, address))


@contextlib.contextmanager
def noting() -> Iterator[Notes]:
    """Notes the members that are read inside."""
    from volatility3.plugins.windows.stacktraces.base import bulk
    from volatility3.plugins.windows.stacktraces.base.decode import memory, structure
    from volatility3.plugins.windows.stacktraces.base.decode.extents import Extents

    notes = Notes()

    class Tagged(Extents):
        """Extents whose bytes know their layer."""

        def __init__(self, runs: Any, layer: str) -> None:
            super().__init__(runs)
            self.layer = layer
            self.runs: Any = tuple((start, _Located.of(data, layer, start)) for start, data in self.runs)

        def read(self, address: int, length: int) -> Any:
            view = super().read(address, length)
            return None if view is None else _Located.of(bytes(view), self.layer, address)

        def part(self, start: int, length: int) -> Any:
            return Tagged(super().part(start, length).runs, self.layer)

    read_extents, find, of = bulk.read_extents, structure.Structure.find, structure.Field.of
    reader, getattribute = structure.Structure.reader, objects.AggregateType.__getattr__
    number, links, member = memory.Memory.number, memory.Memory.links, memory.Memory.member

    def tagged(context: Any, layer: str, start: int, length: int, *mapping: Any) -> Any:
        return Tagged(read_extents(context, layer, start, length, *mapping).runs, layer)

    def named(self: Any, *paths: str) -> Any:
        found = find(self, *paths)
        for path in paths:
            if found is not None and self._fields.get(path) is found:
                notes.name(self, path, found)
                break
        return found

    def field_of(self: Any, data: Any, base: int = 0) -> int:
        notes.field(self, data, base)
        return of(self, data, base)

    def reader_of(self: Any, *paths: str) -> Any:
        fields, read = [self.field(path) for path in paths], reader(self, *paths)

        def noted(data: Any, start: int = 0) -> Any:
            for field in fields:
                notes.field(field, data, start)
            return read(data, start)

        return noted

    def number_of(self: Any, address: int, size: int) -> Any:
        notes.words(self.read(address, size), size)
        return number(self, address, size)

    def links_of(self: Any, address: int) -> Any:
        notes.words(self.read(address, 2 * self.pointer_size), self.pointer_size)
        return links(self, address)

    def member_of(self: Any, address: int, field: Any) -> Any:
        data = self.read(address + field.offset, field.size)
        if data is not None:
            notes.field(field, data, -field.offset)
        return member(self, address, field)

    def attribute(self: Any, name: str) -> Any:
        found = getattribute(self, name)
        if isinstance(found, objects_interface.ObjectInterface) and 0 < found.vol.size <= WORD:
            kind, start = self.vol.type_name.rsplit("!", 1)[-1], int(self.vol.offset)
            at, layer = int(found.vol.offset), str(found.vol.layer_name)
            notes.add(Member(kind, name, layer, at, int(found.vol.size), start))
        return found

    with contextlib.ExitStack() as stack:
        for owner, attribute_name, hook in (
            (bulk, "read_extents", tagged),
            (structure.Structure, "find", named),
            (structure.Structure, "reader", reader_of),
            (structure.Field, "of", field_of),
            (memory.Memory, "number", number_of),
            (memory.Memory, "links", links_of),
            (memory.Memory, "member", member_of),
            (objects.AggregateType, "__getattr__", attribute),
        ):
            stack.enter_context(mock.patch.object(owner, attribute_name, hook))
        yield notes
