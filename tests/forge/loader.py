# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The user-mode loader of one bitness: modules, PEB_LDR_DATA and its entries."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from .isf import Isf
from .module import Module, Spec, fill_entry, load
from .obj import Obj, filetime, ring
from .sections import Sections
from .space import Space

_ORDERS = {
    "InLoadOrderModuleList": "InLoadOrderLinks",
    "InMemoryOrderModuleList": "InMemoryOrderLinks",
    "InInitializationOrderModuleList": "InInitializationOrderLinks",
}
# wow64.json gives the entry without its whole size.
_ENTRY_SIZE = 0x140


class Loader:
    """The modules of a process (or of one half of it), and the three lists below its PEB.

    Args:
        space: the process' memory, in the view of this bitness.
        isf: with `_PEB_LDR_DATA` and `_LDR_DATA_TABLE_ENTRY` of this bitness.
        arena: where modules go that are given no base.
        directory: path of modules that are given none.
        sections: the kernel's image sections.
    """

    def __init__(self, space: Space, isf: Isf, arena: int, directory: str, sections: Sections) -> None:
        self.modules: list[Module] = []
        self._space = space
        self._isf = isf
        self._arena = arena
        self._directory = directory
        self._sections = sections
        self.head = self._obj("_PEB_LDR_DATA", isf.size("_PEB_LDR_DATA"))
        self.head.put(Length=self.head.size, Initialized=1)
        self._entries: dict[str, list[Obj]] = {order: [] for order in _ORDERS}

    def module(
        self,
        name: str,
        base: Optional[int] = None,
        *,
        path: Optional[str] = None,
        listed: bool = True,
        orders: Optional[Sequence[str]] = None,
        **options: Any,
    ) -> Module:
        """Loads a module; see `Process.module`."""
        spec, bits = Spec(**options), self._isf.pointer_size * 8
        if base is None:
            base = self._arena
            self._arena += -(-spec.pe(name, bits, 0).size // 0x10000) * 0x10000 + 0x10000
        path = path or f"{self._directory}\\{name}"
        module = load(self._space, name, bits, base, path, spec, self._sections)
        self.modules.append(module)
        if listed:
            entry = self._obj("_LDR_DATA_TABLE_ENTRY", _ENTRY_SIZE)
            fill_entry(entry, module)
            entry.maybe("LoadTime.QuadPart", filetime())
            for order in _ORDERS if orders is None else orders:
                self._entries[order].append(entry)
        return module

    def adopt(self, module: Module, entry: int) -> None:
        """Lists a module that is mapped already, with an entry that is written but for its links."""
        module.entry = Obj(self._space, self._isf, "_LDR_DATA_TABLE_ENTRY", entry)
        self.modules.append(module)
        for entries in self._entries.values():
            entries.append(module.entry)

    def link(self) -> None:
        """Closes the rings."""
        for order, links in _ORDERS.items():
            addresses = [entry.at(links) for entry in self._entries[order]]
            ring(self._space, [self.head.at(order), *addresses])

    def _obj(self, type_name: str, size: int) -> Obj:
        return Obj(self._space, self._isf, type_name, self._space.allocate(size))
