# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The function tables in a dump, for code that its process generated at run time."""

from __future__ import annotations

from functools import cached_property
from typing import Iterator, List

from ..memory.image import AddressSpace, Image
from ..names.moduleindex import TABLES
from ..process.dynamictables import DynamicTable
from .decode.dumpfile import Minidump
from .decode.functions import function_tables


class DumpFunctions:
    """Lists the tables of FunctionTableStream: the provider of `dynamic_tables`."""

    def __init__(self, image: Image, dump: Minidump) -> None:
        self._image = image
        self._dump = dump

    def list_tables(self, space: AddressSpace) -> List[DynamicTable]:
        """Returns the tables of the process; a 32-bit half has none."""
        return self._tables if space.machine is self._image.machine else []

    @cached_property
    def _tables(self) -> List[DynamicTable]:
        return list(self._read())

    def _read(self) -> Iterator[DynamicTable]:
        canonical, form = self._image.machine.canonical, TABLES.get(self._image.machine.number)
        if form is None:
            return
        for table in function_tables(self._dump)[0]:
            size, rva = table.Entries
            if size != table.EntryCount * form.ENTRY_SIZE or not table.MinimumAddress < table.MaximumAddress:
                continue
            entries = self._dump.read(rva, size)
            if entries is not None:
                start, end = canonical(table.MinimumAddress), canonical(table.MaximumAddress)
                yield DynamicTable(start, end, canonical(table.BaseAddress), bytes(entries))
