# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds what is at addresses that are in no list: drivers by their headers, user pages by the page tables.

A driver that was removed from PsLoadedModuleList keeps its headers. If a VAD was removed from its tree, its
pages stay in the page tables.
"""

from __future__ import annotations

from typing import Callable, Dict, Optional, Tuple

from volatility3.framework import interfaces

from ..memory import bulk
from ..memory.decode import text
from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.decode.status import status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from .decode.pe import HeaderError, Headers, read_codeview, read_headers
from .kernelmodules import Module
from .moduleindex import ModuleIndex
from .places import ModulePlace

MAX_DRIVER = 1 << 24
"""Maximum bytes below an address that are searched for the headers of its driver."""
MAX_BLOCKS = 1 << 12
"""Maximum number of blocks that are searched in an image. Addresses in no module are rare and close
together."""

_BLOCK = 1 << 20
"""Bytes that are read at once. Each block of this size is searched once."""
_KEPT = 1 << 12
"""Pages whose result is kept."""


class UnlistedDrivers:
    """Finds drivers that are missing in the kernel's list, by their headers."""

    def __init__(self, image: Image, index: Callable[[Module], ModuleIndex]) -> None:
        self._memory = image.memory(image.kernel)
        self._read = image.reader(str(image.layer.name))
        self._index = index
        self._found: Dict[int, ModulePlace] = {}
        self._blocks: Dict[int, Tuple[Tuple[int, Headers, str], ...]] = {}
        self._pages: Memo[int, Optional[ModulePlace]] = Memo(self._search_below, _KEPT)

    def place(self, address: int) -> Optional[ModulePlace]:
        """Returns the driver whose headers cover a canonical address, None if there is none."""
        for place in self._found.values():
            if place.module.base <= address < place.module.end:
                return place
        return self._pages[address // PAGE_SIZE]

    def _search_below(self, page: int) -> Optional[ModulePlace]:
        """Searches the blocks below a page, numbered from address 0, for a driver that covers it."""
        address = page * PAGE_SIZE
        for block in range(address // _BLOCK, max(address - MAX_DRIVER, 0) // _BLOCK - 1, -1):
            for base, headers, name in self._headers_in(block):
                if base <= address < base + headers.size:
                    return self._make_place(base, headers, name)
        return None

    def _headers_in(self, block: int) -> Tuple[Tuple[int, Headers, str], ...]:
        """Returns (base, headers, name) of the images that begin in a block, the highest base first."""
        if block not in self._blocks:
            if len(self._blocks) >= MAX_BLOCKS:
                return ()
            start = block * _BLOCK
            extents = self._read(start, _BLOCK)
            bases = range(start + _BLOCK - PAGE_SIZE, start - 1, -PAGE_SIZE)
            images = [
                (base, self._headers(base)) for base in bases if bytes(extents.read(base, 2) or b"") == b"MZ"
            ]
            self._blocks[block] = tuple((base, *headers) for base, headers in images if headers is not None)
        return self._blocks[block]

    def _headers(self, base: int) -> Optional[Tuple[Headers, str]]:
        """Returns the headers of an image and the name of its PDB without extension, empty if it has none."""

        def read(rva: int, length: int) -> Optional[bytes]:
            return self._memory.read(base + rva, length)

        try:
            headers = read_headers(read)
        except HeaderError:
            return None
        record = read_codeview(read, headers)
        return headers, "" if record is None else record.pdb_name.rpartition(".")[0]

    def _make_place(self, base: int, headers: Headers, name: str) -> ModulePlace:
        """Returns the place of a driver, and keeps it."""
        label = text.module_name(name) or f"driver_{base:x}"
        module = Module(base, headers.size, label, label, status(StatusCode.IN_NO_MODULE_LIST))
        place = self._found[base] = ModulePlace(module, self._index)
        return place


class Residents:
    """Decides by the page tables whether user addresses are in memory."""

    def __init__(self, layer: interfaces.layers.DataLayerInterface) -> None:
        self._layer = layer
        self._pages: Memo[int, bool] = Memo(self._is_resident, _KEPT)

    def holds(self, address: int) -> bool:
        """Returns whether the page of a canonical user address is in memory."""
        return self._pages[address // PAGE_SIZE]

    def _is_resident(self, page: int) -> bool:
        """Returns whether a page, numbered from address 0, is in memory."""
        return bool(self._layer.is_valid(bulk.masked(self._layer, page * PAGE_SIZE)))
