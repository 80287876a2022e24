# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What checks ask of an image: the VAD and the page behind an address, runtimes, function tables."""

from __future__ import annotations

import bisect
from typing import Dict, List, Mapping, Optional, Tuple

from volatility3.framework.layers import intel

from ...base import bulk
from ...base.decode import pagetable
from ...base.decode.memo import Memo
from ...base.decode.record import Record
from ...base.image import AddressSpace
from ...base.pages import Tables
from ...base.vads import PROTECTIONS, Vad
from ...names.symbolizer import SpaceNames, Symbolizer
from ...names.usermodules import vad_at
from ..functiontables import Range, registered

RUNTIMES = ("clr", "coreclr", "mscorwks", "jvm", "mono-2.0-sgen", "v8", "mozjs", "chakracore", "luajit")
"""Modules of runtimes that make code in private memory; V8 is linked into the program as a rule."""

_BYTES = 8
_MAX_KEPT = 1 << 16
_PROCESSES = 64
"""The most processes whose function tables are kept."""
_END = 1 << 64


class Page(Record):
    """The page table's entry of a page that is in memory: valid, or in transition."""

    entry: int
    executable: bool


class CheckFacts:
    """The facts of an image.

    Args:
        symbolizer: knows the modules of every address space
        pids: the processes wanted; all when empty
        scan: whether a pool scan has added processes and threads

    Attributes:
        image: the image
        pids, scan: as given
    """

    def __init__(self, symbolizer: Symbolizer, pids: Tuple[int, ...] = (), scan: bool = False) -> None:
        self._symbolizer = symbolizer
        self.image = symbolizer.image
        self.pids = pids
        self.scan = scan
        self._tables: Memo[AddressSpace, List[Range]] = Memo(self._registered)
        self._runtimes: Memo[AddressSpace, List[str]] = Memo(self._loaded)
        self._pages: Dict[Tuple[str, int], Optional[Page]] = {}
        self._said: Dict[Tuple[str, int], str] = {}
        self._entries: Tuple[object, Dict[int, str]] = (None, {})

    def names(self, space: AddressSpace) -> SpaceNames:
        """Returns the names of an address space."""
        return self._symbolizer.names(space)

    def is_user(self, address: int) -> bool:
        """Tells whether an address is in the user's half."""
        return 0 < address < self._symbolizer.halves.user_end

    def has_no_execute(self, space: AddressSpace) -> bool:
        """Tells whether the page tables have a bit that forbids execution."""
        layer = self.image.layer_of(space)
        return isinstance(layer, intel.Intel) and Tables(self.image.context, layer).entry_size == 8

    def vad(self, space: AddressSpace, address: int) -> Optional[Vad]:
        """Returns the VAD that holds an address of a process; None if there is none."""
        process = self.names(space).process
        return None if process is None else vad_at(process.vads, address)

    def vads_whole(self, space: AddressSpace) -> bool:
        """Tells whether all VADs of a process could be read."""
        process = self.names(space).process
        return process is not None and process.vads_whole

    def page(self, space: AddressSpace, address: int) -> Optional[Page]:
        """Returns the page of an address; None if it is not in memory, or no page table tells."""
        layer = self.image.layer_of(space)
        key = (str(layer.name), address // pagetable.PAGE_SIZE)
        if key not in self._pages:
            if len(self._pages) >= _MAX_KEPT:
                self._pages.clear()
            self._pages[key] = self._page(layer, address) if isinstance(layer, intel.Intel) else None
        return self._pages[key]

    def _page(self, layer: intel.Intel, address: int) -> Optional[Page]:
        if not bulk.is_canonical(layer, address):
            return None
        found = Tables(self.image.context, layer).entry(bulk.masked(layer, address))
        if found is None or not pagetable.leads(found[0]):
            return None
        return Page(found[0], pagetable.executable(*found))

    def executable(self, space: AddressSpace, address: int) -> bool:
        """Tells whether memory of a process may be executed: by its page, or else as its VAD began."""
        page, vad = self.page(space, address), self.vad(space, address)
        if page is not None and self.has_no_execute(space):
            return page.executable
        return vad is not None and "EXECUTE" in PROTECTIONS[vad.protection & 7]

    def function_table(self, space: AddressSpace, address: int) -> Optional[Range]:
        """Returns the range with an address for which a process registered a function table, or None."""
        if space.kernel or space.pointer_size == 4 or not space.layer_name:
            return None
        if len(self._tables) >= _PROCESSES:
            self._tables.clear()
        tables = self._tables[space]
        place = bisect.bisect_right(tables, (address, _END)) - 1
        return tables[place] if place >= 0 and address < tables[place].end else None

    def _registered(self, space: AddressSpace) -> List[Range]:
        return registered(self.image.memory(space), self.image, self.names(space))

    def entry_points(self, space: AddressSpace, wanted: Mapping[str, Tuple[str, ...]]) -> Dict[int, str]:
        """Returns functions of a process by their addresses, as they are written in Symbol.

        Args:
            space: of the process
            wanted: the names of functions, by module
        """
        key = (space.layer_name, space.eprocess, tuple(wanted.items()))
        if self._entries[0] != key:
            names, found = self.names(space), {}
            for module, functions in wanted.items():
                for known in names.modules(module):
                    for function in functions:
                        rva = known.image.names.rva_of(function)
                        if rva is not None:
                            found[known.module.base + rva] = f"{known.module.name}!{function}"
            self._entries = key, found
        return self._entries[1]

    def runtimes(self, space: AddressSpace) -> List[str]:
        """Returns the files of the runtimes that a process has loaded."""
        return self._runtimes[space]

    def _loaded(self, space: AddressSpace) -> List[str]:
        process = self.names(space).process
        listed = () if process is None else process.modules
        return sorted({each.file for each in listed if each.name.lower() in RUNTIMES})

    def memory(self, space: AddressSpace, address: int) -> str:
        """Returns what lies at an address in words: its VAD, its page, its first bytes."""
        key = (space.layer_name, address)
        if key not in self._said:
            if len(self._said) >= _MAX_KEPT:
                self._said.clear()
            self._said[key] = self._described(space, address)
        return self._said[key]

    def _described(self, space: AddressSpace, address: int) -> str:
        said = []
        if self.is_user(address):
            vad = self.vad(space, address)
            if vad is None:
                said.append("no VAD")
            else:
                kind = "image" if vad.image else "mapped" if vad.control_area else "private"
                said.append(f"VAD {vad.start:#x}-{vad.end - 1:#x} {kind} {vad.protection_name}")
        page = self.page(space, address)
        if page is None:
            said.append("page not in memory")
        else:
            said.append(f"PTE {page.entry:#x} {'executable' if page.executable else 'not executable'}")
        data = self.image.memory(space).read(address, _BYTES)
        if data is not None:
            said.append(f"bytes {data.hex(' ')}")
        return ", ".join(said)
