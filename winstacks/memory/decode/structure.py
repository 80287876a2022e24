# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures by the names of their members, over bytes.

Offsets come from a symbol table (the image's own, or one of ours below `symbols/`), never from code. A
decoder asks a structure for members by the names that Microsoft's symbols give them. Members are renamed
between versions, so a decoder may give several names: the first that the structure has is taken. A decoder
that reads many structures asks for the members once, before its loop.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple, Union

Buffer = Union[bytes, memoryview]


class Field(NamedTuple):
    """An integer, a pointer or a bit field.

    Attributes:
        offset: bytes from the structure's start
        size: bytes; of a bit field, those of the integer that holds it
        shift: the lowest bit of a bit field
        mask: as many ones as a bit field has bits; -1 for a whole integer
        signed: a whole integer whose highest bit is its sign
    """

    offset: int
    size: int
    shift: int = 0
    mask: int = -1
    signed: bool = False

    def of(self, data: Buffer, base: int = 0) -> int:
        """Returns the member's value from a structure that starts at `base` in little-endian data.

        Raises:
            ValueError: when the data ends before the member does
        """
        start = base + self.offset
        raw = data[start : start + self.size]
        if len(raw) != self.size:
            raise ValueError(f"the data ends before offset {start + self.size:#x}")
        return int.from_bytes(raw, "little", signed=self.signed) >> self.shift & self.mask


Lookup = Callable[[str], Optional[Field]]
"""Takes the path of a member (`u.VadFlags.VadType`); returns its Field, or None if there is none."""

INTEGER_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Those of `struct` for unsigned integers and pointers, by size; in lower case they stand for signed ones."""


def integers(data: Buffer, size: int, start: int = 0, count: Optional[int] = None) -> Tuple[int, ...]:
    """Returns the unsigned integers of an array: pointers, or entries of a page table.

    Args:
        data: little-endian bytes that hold it
        size: bytes of an integer
        start: offset of the first integer in data
        count: how many integers; None: as many as lie between `start` and the end of the data

    Raises:
        struct.error: when the data ends before the array does
    """
    if count is None:
        count = max(len(data) - start, 0) // size
    return struct.unpack_from(f"<{count}{INTEGER_CODES[size]}", data, start) if count else ()


class MissingMemberError(LookupError):
    """The symbol tables lack a type or a member without which nothing can be read."""


class Structure:
    """One structure: its name, its size in bytes, and where its members lie.

    Args:
        name: as the symbols have it, such as `_HEAP_ENTRY`
        size: in bytes
        lookup: finds a member; it is called once for each path
        names: the structure's own members in the order of the table
    """

    def __init__(self, name: str, size: int, lookup: Lookup, names: Sequence[str] = ()) -> None:
        self.name = name
        self.size = size
        self.names = tuple(names)
        self._lookup = lookup
        self._fields: Dict[str, Optional[Field]] = {}

    def find(self, *paths: str) -> Optional[Field]:
        """Returns the first of several members that the structure has, or None."""
        for path in paths:
            if path not in self._fields:
                self._fields[path] = self._lookup(path)
            found = self._fields[path]
            if found is not None:
                return found
        return None

    def field(self, *paths: str) -> Field:
        """Returns the first of several members that the structure has.

        Raises:
            MissingMemberError: when it has none of them
        """
        found = self.find(*paths)
        if found is None:
            raise MissingMemberError(f"{self.name} has no member {' or '.join(paths)}")
        return found

    def offset(self, *paths: str) -> int:
        """Returns the offset of the first of several members that the structure has.

        Raises:
            MissingMemberError: when it has none of them
        """
        return self.field(*paths).offset

    def has(self, path: str) -> bool:
        """Returns whether the structure has a member."""
        return self.find(path) is not None

    def reader(self, *paths: str) -> Callable[[Buffer, int], Tuple[int, ...]]:
        """Returns a function that reads several members at once: (data, start of the structure) -> values.

        The members must be whole integers or pointers that do not overlap; the values come in the order of
        `paths`. Too short data raises struct.error.

        Raises:
            MissingMemberError: when the structure lacks one of them
        """
        fields = [self.field(path) for path in paths]
        order = sorted(range(len(fields)), key=lambda place: fields[place].offset)
        unpack = self.packer(*(paths[place] for place in order)).unpack_from
        if order == list(range(len(order))):
            return unpack
        places = [order.index(place) for place in range(len(order))]

        def read(data: Buffer, start: int = 0) -> Tuple[int, ...]:
            values = unpack(data, start)
            return tuple(values[place] for place in places)

        return read

    def packer(self, *paths: str) -> struct.Struct:
        """Returns a struct.Struct that packs several members, which are given in the order in which they lie.

        The members must be whole integers or pointers that do not overlap; the gaps between them are zeros.

        Raises:
            MissingMemberError: when the structure lacks one of them
        """
        code, end = "<", 0
        for each in map(self.field, paths):
            letter = INTEGER_CODES[each.size]
            code += f"{each.offset - end}x{letter.lower() if each.signed else letter}"
            end = each.offset + each.size
        return struct.Struct(code)

    def view(self, data: Buffer, start: int = 0) -> View:
        """Returns the structure that begins at a place in data."""
        return View(self, data, start)


class View:
    """A structure in bytes: its members by name.

    Args:
        structure: the structure
        data: little-endian bytes that hold it
        start: offset in data at which it begins
    """

    def __init__(self, structure: Structure, data: Buffer, start: int = 0) -> None:
        self.structure = structure
        self._data = data
        self._start = start

    def __getitem__(self, path: str) -> int:
        """Returns a member's value.

        Raises:
            MissingMemberError: when the structure has no such member
            ValueError: when the data ends before the member does
        """
        return self.structure.field(path).of(self._data, self._start)

    def get(self, *paths: str) -> Optional[int]:
        """Returns the value of the first of several members that the structure has, or None.

        Raises:
            ValueError: when the data ends before the member does
        """
        found = self.structure.find(*paths)
        return None if found is None else found.of(self._data, self._start)


class Structures:
    """The structures of one or several symbol tables. Each is made when it is first asked for, and kept.

    Args:
        make: finds a structure by its name, None if no table has it
    """

    def __init__(self, make: Callable[[str], Optional[Structure]]) -> None:
        self._make = make
        self._made: Dict[str, Optional[Structure]] = {}

    def find(self, *names: str) -> Optional[Structure]:
        """Returns the first of several structures that the tables have, or None."""
        for name in names:
            if name not in self._made:
                self._made[name] = self._make(name)
            found = self._made[name]
            if found is not None:
                return found
        return None

    def __getitem__(self, name: str) -> Structure:
        """Returns a structure.

        Raises:
            MissingMemberError: when the tables do not have it
        """
        return self.need(name)

    def need(self, *names: str) -> Structure:
        """Returns the first of several structures that the tables have.

        Raises:
            MissingMemberError: when they have none of them
        """
        found = self.find(*names)
        if found is None:
            raise MissingMemberError(f"the symbol tables have no {' or '.join(names)}")
        return found

    def has(self, name: str) -> bool:
        """Returns whether the tables have a structure."""
        return self.find(name) is not None

    @classmethod
    def chain(cls, tables: Sequence[Structures]) -> Structures:
        """Returns the structures of several tables; each comes from the first table that has it."""

        def candidates(name: str) -> Iterator[Structure]:
            for table in tables:
                found = table.find(name)
                if found is not None:
                    yield found

        return cls(lambda name: next(candidates(name), None))
