# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures by the names of their members, over bytes.

Offsets come from a symbol table (the image's own, or one of ours below `symbols/`), never from code. A
decoder asks a structure for members by the names that Microsoft's symbols give them. Members are renamed
between versions, so a decoder may give several names: the first that the structure has is used. A decoder
that reads many structures asks for the members once, before its loop.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, Iterator, Optional, Sequence, Tuple, Union

from .records import NamedTuple

Buffer = Union[bytes, memoryview]


class Field(NamedTuple):
    """An integer, a pointer or a bit field.

    Attributes:
        size: bytes; for a bit field, bytes of the integer that holds it
        shift: the lowest bit of a bit field
        mask: as many ones as a bit field has bits; -1 for a whole integer
        signed: whether the highest bit of a whole integer is its sign
    """

    offset: int
    size: int
    shift: int = 0
    mask: int = -1
    signed: bool = False

    def value_in(self, data: Buffer, base: int = 0) -> int:
        """Returns the member's value from a structure that starts at `base` in little-endian data. Raises
        ValueError when the data ends before the member does."""
        start = base + self.offset
        raw = data[start : start + self.size]
        if len(raw) != self.size:
            raise ValueError(f"the data ends before offset {start + self.size:#x}")
        return int.from_bytes(raw, "little", signed=self.signed) >> self.shift & self.mask


Lookup = Callable[[str], Optional[Field]]
"""Takes the path of a member (`u.VadFlags.VadType`); returns its Field, or None if there is none."""

INTEGER_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Codes of `struct` for unsigned integers and pointers, by size; lower-case codes are signed."""


def unsigned(data: Optional[Buffer]) -> Optional[int]:
    """Returns the unsigned little-endian integer in bytes; None without bytes."""
    return None if data is None else int.from_bytes(data, "little")


def signed(value: int, bits: int) -> int:
    """Returns the number whose two's complement is in the low bits of a value."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def integers(data: Buffer, size: int, start: int = 0, count: Optional[int] = None) -> Tuple[int, ...]:
    """Returns the unsigned integers of an array: pointers, or entries of a page table. `count` is the number
    of integers, None for as many as lie between `start` and the end of the data.

    Raises:
        struct.error: the data ends before the array does
    """
    if count is None:
        count = max(len(data) - start, 0) // size
    return struct.unpack_from(f"<{count}{INTEGER_CODES[size]}", data, start) if count else ()


class MissingMemberError(LookupError):
    """The symbol tables lack a type or a member without which nothing can be read."""


class Structure:
    """One structure: its name, its size in bytes, and where its members lie.

    Args:
        name: name in the symbols, such as `_HEAP_ENTRY`
        names: the structure's own members in the order of the table
        known: False for a structure that the tables lack: it has no members
    """

    def __init__(
        self, name: str, size: int, lookup: Lookup, names: Sequence[str] = (), known: bool = True
    ) -> None:
        self.name = name
        self.size = size
        self.names = tuple(names)
        self.known = known
        self._lookup = lookup
        self._fields: Dict[str, Optional[Field]] = {}

    def first_member(self, *paths: str) -> Optional[Field]:
        """Returns the first of several members that the structure has, or None."""
        for path in paths:
            if path not in self._fields:
                self._fields[path] = self._lookup(path)
            field = self._fields[path]
            if field is not None:
                return field
        return None

    def field(self, *paths: str) -> Field:
        """Returns the first of several members that the structure has. Raises MissingMemberError if the
        structure has none of them."""
        field = self.first_member(*paths)
        if field is None:
            raise MissingMemberError(self.lack(*paths))
        return field

    def lack(self, *paths: str) -> str:
        """Returns what the tables lack if the structure has none of several members, in words, else ""."""
        if self.first_member(*paths) is not None:
            return ""
        missing = f"{self.name} has no member {' or '.join(paths)}"
        return missing if self.known else f"the symbol tables have no {self.name}"

    def offset(self, *paths: str) -> int:
        """Returns the offset of the first of several members that the structure has. Raises
        MissingMemberError if the structure has none of them."""
        return self.field(*paths).offset

    def has(self, path: str) -> bool:
        """Returns whether the structure has a member."""
        return self.first_member(path) is not None

    def reader(self, *paths: str) -> Callable[[Buffer, int], Tuple[int, ...]]:
        """Returns a function that reads several members at once: (data, start of the structure) -> values.

        The members must be whole integers or pointers that do not overlap; the values come in the order of
        `paths`. The function raises struct.error if the data is too short. Raises MissingMemberError if the
        structure lacks one of them.
        """
        fields = [self.field(path) for path in paths]
        order = sorted(range(len(fields)), key=lambda position: fields[position].offset)
        unpack = self.packer(*(paths[position] for position in order)).unpack_from
        if order == list(range(len(order))):
            return unpack
        positions = [order.index(position) for position in range(len(order))]

        def read(data: Buffer, start: int = 0) -> Tuple[int, ...]:
            values = unpack(data, start)
            return tuple(values[position] for position in positions)

        return read

    def packer(self, *paths: str) -> struct.Struct:
        """Returns a struct.Struct that packs several members, given in ascending order of their offsets.

        The members must be whole integers or pointers that do not overlap; the gaps between them are zeros.
        Raises MissingMemberError if the structure lacks one of them.
        """
        code, end = "<", 0
        for field in map(self.field, paths):
            letter = INTEGER_CODES[field.size]
            code += f"{field.offset - end}x{letter.lower() if field.signed else letter}"
            end = field.offset + field.size
        return struct.Struct(code)

    def view(self, data: Buffer, start: int = 0) -> StructureView:
        """Returns the structure that begins at an offset in data."""
        return StructureView(self, data, start)


class StructureView:
    """A structure in bytes: its members by name."""

    def __init__(self, structure: Structure, data: Buffer, start: int = 0) -> None:
        self.structure = structure
        self._data = data
        self._start = start

    def __getitem__(self, path: str) -> int:
        """Returns a member's value.

        Raises:
            MissingMemberError: the structure has no such member
            ValueError: the data ends before the member does
        """
        return self.structure.field(path).value_in(self._data, self._start)

    def first_value(self, *paths: str) -> Optional[int]:
        """Returns the value of the first of several members that the structure has, or None. Raises
        ValueError if the data ends before the member does."""
        field = self.structure.first_member(*paths)
        return None if field is None else field.value_in(self._data, self._start)


def _nothing(_path: str) -> None:
    """Looks members up in a structure that has none."""


class Structures:
    """The structures of one or several symbol tables. Each is made at its first use, and kept. `make` finds a
    structure by its name, None if no table has it."""

    def __init__(self, make: Callable[[str], Optional[Structure]]) -> None:
        self._make = make
        self._structures: Dict[str, Optional[Structure]] = {}

    def first_structure(self, *names: str) -> Optional[Structure]:
        """Returns the first of several structures that the tables have, or None."""
        for name in names:
            if name not in self._structures:
                self._structures[name] = self._make(name)
            structure = self._structures[name]
            if structure is not None:
                return structure
        return None

    def __getitem__(self, name: str) -> Structure:
        """Returns a structure. Raises MissingMemberError if the tables do not have it."""
        return self.need(name)

    def need(self, *names: str) -> Structure:
        """Returns the first of several structures that the tables have. Raises MissingMemberError if the
        tables have none of them."""
        structure = self.first_structure(*names)
        if structure is None:
            raise MissingMemberError(f"the symbol tables have no {' or '.join(names)}")
        return structure

    def find(self, *names: str) -> Structure:
        """Returns the first of several structures that the tables have, else one that has no members."""
        structure = self.first_structure(*names)
        return Structure(" or ".join(names), 0, _nothing, known=False) if structure is None else structure

    def has(self, name: str) -> bool:
        return self.first_structure(name) is not None

    @classmethod
    def chain(cls, tables: Sequence[Structures]) -> Structures:
        """Returns the structures of several tables; each comes from the first table that has it."""

        def candidates(name: str) -> Iterator[Structure]:
            for table in tables:
                structure = table.first_structure(name)
                if structure is not None:
                    yield structure

        return cls(lambda name: next(candidates(name), None))
