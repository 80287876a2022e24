# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A structure at an address, whose members chain and stay absent.

    segment = image.at("_SECTION_OBJECT", image.at("_EPROCESS", eprocess)["SectionObject"])["Segment"]
    area = image.at("_SEGMENT", segment)["ControlArea"]

Whatever is missing on the way (an address, a structure or a member in the symbols, bytes in the image), the
result is None, and the caller asks once, at the end. Loops over many structures of one type look their fields
up once instead, and read them with `Memory.member`.
"""

from __future__ import annotations

from typing import Callable, Optional

from .memory import MAX_STRING, Memory
from .structure import Structure


class View:
    """A structure in the memory of an address space.

    Args:
        address: None or 0 if there is no structure
        report: takes the words of `lack`
    """

    __slots__ = ("_memory", "_report", "address", "structure")

    def __init__(
        self, memory: Memory, structure: Structure, address: Optional[int], report: Callable[[str], None]
    ) -> None:
        self._memory = memory
        self._report = report
        self.structure = structure
        self.address = address

    def __getitem__(self, path: str) -> Optional[int]:
        return self._memory.member(self.address, self.structure.first_member(path))

    def required(self, path: str) -> Optional[int]:
        """Returns the value of a member that every Windows has. Raises MissingMemberError if the symbols lack
        it."""
        return self._memory.member(self.address, self.structure.field(path))

    def first(self, *paths: str) -> Optional[int]:
        """Returns the value of the first of several members that the symbols have."""
        return self._memory.member(self.address, self.structure.first_member(*paths))

    def place(self, *paths: str) -> Optional[int]:
        """Returns the address of the first of several members that the symbols have."""
        field = self.structure.first_member(*paths)
        return self.address + field.offset if self.address and field is not None else None

    def data(self, path: str) -> Optional[bytes]:
        """Returns the bytes of a member, such as an array of characters."""
        field, place = self.structure.first_member(path), self.place(path)
        return None if field is None or place is None else self._memory.read(place, field.size)

    def text(self, path: str, limit: int = MAX_STRING) -> Optional[str]:
        """Returns the text of a UNICODE_STRING. `path` is the string, or its first member
        (`FileName.Length`)."""
        place = self.place(path)
        return None if place is None else self._memory.unicode_string_at(place, limit)

    def lack(self, *paths: str) -> str:
        """Returns what the symbols lack if they have none of several members, in words, else ""."""
        return self.structure.lack(*paths)

    def lacks(self, *paths: str) -> bool:
        """Returns whether the symbols have none of several members, and reports it: every kernel has one."""
        lack = self.structure.lack(*paths)
        if lack:
            self._report(lack)
        return bool(lack)
