# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small reads of a virtual layer at canonical addresses: None instead of an exception."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from volatility3.framework import exceptions, interfaces

from . import bulk
from .decode.pagetable import PAGE_SIZE

MAX_STRING = 0x1000
MAX_PAGES = 0x400
"""Pages that are kept: list entries, tree nodes and names lie close together."""


class Peek:
    """Reads single values of a layer.

    Args:
        context: the context that holds the layer
        layer_name: a virtual layer
        pointer_size: bytes of a pointer in the structures to be read (4 in a WoW64 process' 32-bit half)
    """

    def __init__(
        self, context: interfaces.context.ContextInterface, layer_name: str, pointer_size: int
    ) -> None:
        self._layer = context.layers[layer_name]
        self.layer_name = layer_name
        self.pointer_size = pointer_size
        self._pages: Dict[int, Optional[bytes]] = {}

    def read(self, address: int, length: int) -> Optional[bytes]:
        """Returns the bytes at an address, None unless all can be read."""
        offset = address % PAGE_SIZE
        if offset + length > PAGE_SIZE:
            return self._read(address, length)
        page = address - offset
        if page not in self._pages:
            if len(self._pages) >= MAX_PAGES:
                self._pages.clear()
            self._pages[page] = self._read(page, PAGE_SIZE)
        data = self._pages[page]
        return None if data is None else data[offset : offset + length]

    def _read(self, address: int, length: int) -> Optional[bytes]:
        try:
            return bytes(self._layer.read(bulk.masked(self._layer, address), length))
        except exceptions.InvalidAddressException:
            return None

    def pointer(self, address: int) -> Optional[int]:
        """Returns the pointer stored at an address."""
        data = self.read(address, self.pointer_size)
        return None if data is None else int.from_bytes(data, "little")

    def links(self, address: int) -> Optional[Tuple[int, int]]:
        """Returns Flink and Blink of a LIST_ENTRY."""
        data = self.read(address, 2 * self.pointer_size)
        if data is None:
            return None
        half = self.pointer_size
        return int.from_bytes(data[:half], "little"), int.from_bytes(data[half:], "little")

    def unicode_string(self, data: bytes, limit: int = MAX_STRING) -> Optional[str]:
        """Returns the text of a UNICODE_STRING, given the structure's bytes; None if it is paged out.

        Args:
            data: Length, MaximumLength and Buffer
            limit: bytes of text that are read at most
        """
        length = min(int.from_bytes(data[:2], "little"), limit)
        start = self.pointer_size
        text = self.read(int.from_bytes(data[start : 2 * start], "little"), length) if length else b""
        return None if text is None else text.decode("utf-16-le", "replace")
