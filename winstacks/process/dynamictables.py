# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Function tables that a process registered for code it generated at run time: the unwind data of that code.

    for table in image.service(dynamic_tables).list_tables(space): ...

Programs register the tables with RtlAddFunctionTable and related functions. The writer of a dump asks Windows
for their entries.
"""

from __future__ import annotations

from typing import List, Protocol

from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace, Image


class DynamicTable(NamedTuple):
    """A function table of x64. `base` is the canonical address to which the RVAs in the table are
    relative."""

    start: int
    end: int
    base: int
    entries: bytes


class DynamicTables(Protocol):
    """Lists the function tables of generated code."""

    def list_tables(self, space: AddressSpace) -> List[DynamicTable]:
        """Returns the tables of an address space; if tables share addresses, the first one counts."""


class NoDynamicTables:
    """The provider of a kernel's image: it has no tables, so a walk through generated code is a guess."""

    def list_tables(self, space: AddressSpace) -> List[DynamicTable]:
        return []


def dynamic_tables(image: Image) -> DynamicTables:
    """Returns the lister of dynamic tables, for `image.service(dynamic_tables)`."""
    return NoDynamicTables()
