# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images for the tests of trap frames: one whose memory can be changed while it is open."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, Iterable, List, Optional, Tuple

from volatility3.framework import interfaces
from volatility3.framework.layers import segmented
from volatility3.plugins.windows import trapframes as plugin

from tests.forge import context, isf
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.kernels import KnownKernel

Row = Dict[str, Any]

_SHIFT = 0x200000


def with_functions(known: KnownKernel, name: str, functions: Iterable[Tuple[str, int]]) -> KnownKernel:
    """A kernel whose entry points lie where a real one had them; all else moves out of the way.

    Args:
        known: the kernel to start from
        name: of the new one
        functions: names and RVAs
    """
    symbols = {
        symbol: dict(entry, address=entry["address"] + _SHIFT)
        for symbol, entry in known.table.symbols.items()
    }
    for symbol, rva in functions:
        symbols[symbol] = {"address": rva}
    variant = known.variant(name)
    table = isf.Isf(dict(variant.table.data, symbols=symbols)).renamed(variant.identity.guid)
    return KnownKernel(variant.identity, table)


class LiveImage:
    """An opened image whose file can be written to.

    Args:
        kernel: what is in it
        directory: where its file goes
        image: how it was when this was made; default: as it is now
        suffix: of the file: `.dmp` opens fast, in `.raw` Volatility searches for the page tables
    """

    def __init__(
        self,
        kernel: Kernel,
        directory: pathlib.Path,
        image: Optional[Image] = None,
        suffix: str = ".dmp",
    ) -> None:
        self._path = directory / f"{kernel.isf.guid}{suffix}"
        self.opened = context.open_image(image or kernel.image(), directory, self._path.name)

    def poke(self, address: int, data: bytes) -> None:
        """Writes bytes at a kernel address that is mapped."""
        with self._path.open("r+b") as file:
            for offset in range(0, len(data), 0x1000):
                piece = data[offset : offset + 0x1000]
                file.seek(self._place(address + offset))
                file.write(piece)
        interfaces.layers.TranslationLayerInterface.read.cache_clear()

    def _place(self, address: int) -> int:
        """Returns where a kernel address is in the file."""
        layer = self.opened.layer
        place, below = layer.translate(address & layer.address_mask)
        dump = self.opened.context.layers[below]
        return int(dump.translate(place)[0]) if isinstance(dump, segmented.SegmentedLayer) else int(place)

    def rows(self, **options: Any) -> List[Row]:
        """What the plugin prints: rows of states, absent values as None."""
        return [cells for depth, cells in self.cells(**options) if depth == 0]

    def cells(self, **options: Any) -> List[Tuple[int, Row]]:
        """The same with the rows of members and their depth."""
        listed = self.opened.rows(plugin.TrapFrames, **options)
        return [(depth, {name: _plain(value) for name, value in row.items()}) for depth, row in listed]


def _plain(value: Any) -> Any:
    return None if isinstance(value, interfaces.renderers.BaseAbsentValue) else value
