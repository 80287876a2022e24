# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The user-mode loader's lists: PEB_LDR_DATA and its entries, of one bitness."""

from __future__ import annotations

from typing import Optional, Sequence

from .isf import Isf
from .module import Module, fill_entry
from .obj import Obj, filetime, ring
from .space import Space

_ORDERS = {
    "InLoadOrderModuleList": "InLoadOrderLinks",
    "InMemoryOrderModuleList": "InMemoryOrderLinks",
    "InInitializationOrderModuleList": "InInitializationOrderLinks",
}
# wow64.json gives the entry without its whole size.
_ENTRY_SIZE = 0x140


class LoaderLists:
    """The three module lists below a PEB.

    Args:
        space: the process' memory, in the view of this bitness.
        isf: with `_PEB_LDR_DATA` and `_LDR_DATA_TABLE_ENTRY` of this bitness.
    """

    def __init__(self, space: Space, isf: Isf) -> None:
        self._space = space
        self._isf = isf
        self.head = self._obj("_PEB_LDR_DATA", isf.size("_PEB_LDR_DATA"))
        self.head.put(Length=self.head.size, Initialized=1)
        self._entries: dict[str, list[Obj]] = {order: [] for order in _ORDERS}

    def add(self, module: Module, orders: Optional[Sequence[str]] = None) -> Obj:
        """Lists a module, in all lists or in those named ("InLoadOrderModuleList", ...)."""
        entry = self._obj("_LDR_DATA_TABLE_ENTRY", _ENTRY_SIZE)
        fill_entry(entry, module)
        entry.maybe("LoadTime.QuadPart", filetime())
        for order in _ORDERS if orders is None else orders:
            self._entries[order].append(entry)
        return entry

    def link(self) -> None:
        """Closes the rings."""
        for order, links in _ORDERS.items():
            addresses = [entry.at(links) for entry in self._entries[order]]
            ring(self._space, [self.head.at(order), *addresses])

    def _obj(self, type_name: str, size: int) -> Obj:
        return Obj(self._space, self._isf, type_name, self._space.allocate(size))
