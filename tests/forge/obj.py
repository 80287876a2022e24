# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Typed writing: structures of a symbol table in a space, by member path."""

from __future__ import annotations

import datetime
from typing import Optional, Sequence, Union

from .isf import Isf, Place
from .space import Space

Value = Union[int, bytes, "Obj", Sequence[int]]

_EPOCH = datetime.datetime(1601, 1, 1, tzinfo=datetime.timezone.utc)
CREATED = datetime.datetime(2024, 2, 29, 12, 0, 0, tzinfo=datetime.timezone.utc)
"""Processes and threads are created in the hours after this time, in the order of their IDs."""
CAPTURED = CREATED + datetime.timedelta(days=7)
"""The clock of every forged image, which is later than everything in it."""


def filetime(when: datetime.datetime = CREATED, seconds: int = 0) -> int:
    """A FILETIME (100 ns since 1601), `seconds` after `when` (default: CREATED)."""
    past = when - _EPOCH
    return (past.days * 86400 + past.seconds + seconds) * 10_000_000 + past.microseconds * 10


class Obj:
    """A structure at an address: `obj["Tcb.State"] = 5`, `obj["Links.Flink"]`.

    Setting takes an integer (cut to the member's size; enumerations, pointers, bit fields and
    unions of up to eight bytes too), bytes (padded with nothing, must fit unless the member is an
    array at the end), another Obj (its address) or a list of integers for an array.
    """

    def __init__(self, space: Space, isf: Isf, type_name: str, address: int) -> None:
        self.space = space
        self.isf = isf
        self.type_name = type_name
        self.address = address

    def __repr__(self) -> str:
        return f"<{self.type_name} at {self.address:#x}>"

    @property
    def size(self) -> int:
        return self.isf.size(self.type_name)

    def has(self, path: str) -> bool:
        return self.isf.has(self.type_name, path)

    def at(self, path: str) -> int:
        """Address of a member."""
        return self.address + self.isf.offset(self.type_name, path)

    def member(self, path: str) -> Obj:
        """An embedded structure."""
        place = self.isf.place(self.type_name, path)
        return Obj(self.space, self.isf, place.name, self.address + place.offset)

    def __setitem__(self, path: str, value: Value) -> None:
        self._put(self.isf.place(self.type_name, path), self.address, value)

    def __getitem__(self, path: str) -> int:
        place = self.isf.place(self.type_name, path)
        value = int.from_bytes(
            self.space.read(self.address + place.offset, place.size), "little", signed=place.signed
        )
        if place.bits is not None:
            position, length = place.bits
            value = value >> position & (1 << length) - 1
        return value

    def put(self, **members: Value) -> Obj:
        """Sets several top-level members, ignoring those that this build does not have."""
        for name, value in members.items():
            self.maybe(name, value)
        return self

    def maybe(self, path: str, value: Value) -> bool:
        """Sets a member if this build has it; returns whether it does."""
        if not self.has(path):
            return False
        self[path] = value
        return True

    def first(self, paths: Sequence[str], value: Value) -> str:
        """Sets the first of several members that this build has. Raises KeyError if none."""
        path = self.isf.first(self.type_name, *paths)
        if path is None:
            raise KeyError(f"{self.type_name} has none of {', '.join(paths)}")
        self[path] = value
        return path

    def text(self, path: str, text: str, buffer: Optional[int] = None) -> None:
        """Fills a `_UNICODE_STRING`; its characters go to `buffer` (default: a fresh place)."""
        data = text.encode("utf-16-le")
        if buffer is None:
            buffer = self.space.allocate(len(data) + 2, 8)
        self.space.write(buffer, data + b"\0\0")
        self[f"{path}.Length"] = len(data)
        self[f"{path}.MaximumLength"] = len(data) + 2
        self[f"{path}.Buffer"] = buffer

    def _put(self, place: Place, base: int, value: Value) -> None:
        address = base + place.offset
        if isinstance(value, Obj):
            value = value.address
        if isinstance(value, (bytes, bytearray)):
            self.space.write(address, bytes(value))
        elif not isinstance(value, int):
            element_place = self.isf.element(place)
            for index, element in enumerate(value):
                self._put(element_place, address + index * element_place.size, element)
        elif place.bits is not None:
            position, length = place.bits
            mask = (1 << length) - 1 << position
            old = self.space.read_int(address, place.size)
            self.space.write_int(address, old & ~mask | value << position & mask, place.size)
        else:
            self.space.write_int(address, value, min(place.size, 8))


def ring(space: Space, links: Sequence[int]) -> None:
    """Joins LIST_ENTRYs (addresses, the head first) to a circle; one alone points to itself."""
    size = space.pointer_size
    for index, link in enumerate(links):
        space.write_int(link, links[(index + 1) % len(links)])
        space.write_int(link + size, links[index - 1])
