# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The function tables of code that a process made at run time: which unwind data is for it.

    for table in image.service(dynamic_tables).list_tables(space): ...

RtlAddFunctionTable and its kin tell Windows of them. Who writes a dump asks Windows for their entries.
"""

from __future__ import annotations

from typing import List, NamedTuple, Protocol

from ..memory.image import AddressSpace, Image


class DynamicTable(NamedTuple):
    """A function table of x64.

    Attributes:
        start, end: the addresses of its code, canonical; `end` is behind the last
        base: address to which the RVAs in it are relative
        entries: its RUNTIME_FUNCTIONs
    """

    start: int
    end: int
    base: int
    entries: bytes


class DynamicTables(Protocol):
    """Lists the function tables of code that processes made."""

    def list_tables(self, space: AddressSpace) -> List[DynamicTable]:
        """Returns those of an address space; of tables that share addresses the first counts."""


class NoDynamicTables:
    """The provider of a kernel's image: it lists none, so that a walk through such code is a guess."""

    def list_tables(self, space: AddressSpace) -> List[DynamicTable]:
        """Returns none."""
        return []


def dynamic_tables(image: Image) -> DynamicTables:
    """Returns what lists them, for `image.service(dynamic_tables)`."""
    return NoDynamicTables()
