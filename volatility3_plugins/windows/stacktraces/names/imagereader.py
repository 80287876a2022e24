# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads a module's image by RVA, in windows that are read once."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from volatility3.framework import interfaces

from ..base import bulk
from ..base.decode.extents import Extents
from .decode.unwindinfo import Bytes

WINDOW = 0x4000
_NOTHING = (0, b"")


class ImageReader:
    """The image of a module as one layer maps it.

    Args:
        context: the context that holds the layer
        layer_name: the virtual layer
        base: where the module lies, canonical
        size: how far it reaches; nothing beyond is read
    """

    def __init__(
        self, context: interfaces.context.ContextInterface, layer_name: str, base: int, size: int
    ) -> None:
        self._context = context
        self.layer_name = layer_name
        self.base = base
        self.size = size
        self._windows: Dict[int, Extents] = {}
        self._first_runs: Dict[int, Tuple[int, bytes]] = {}

    def load(self, rva: int, length: int) -> Extents:
        """Returns what is present of a range, by RVA, and does not keep it."""
        length = max(min(length, self.size - rva), 0)
        found = bulk.read_extents(self._context, self.layer_name, self.base + rva, length)
        return Extents((start - self.base, data) for start, data in found.runs)

    def read(self, rva: int, length: int) -> Optional[Bytes]:
        """Returns the bytes of a short range, or None unless all are present."""
        window = rva // WINDOW
        first, data = self._first_runs.get(window, _NOTHING)
        start = rva - first
        if start >= 0 and start + length <= len(data):
            return data[start : start + length]
        if rva < 0 or rva + length > self.size:
            return None
        if (rva + length - 1) // WINDOW > window:
            return self.load(rva, length).read(rva, length)
        if window not in self._windows:
            self._windows[window] = found = self.load(window * WINDOW, WINDOW)
            self._first_runs[window] = found.runs[0] if found.runs else _NOTHING
        return self._windows[window].read(rva, length)
