# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of an address space as the stack walkers need them: code, function tables, unwind data."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from volatility3.framework import interfaces

from ..names.decode.pe import Headers
from ..names.imagereader import ImageReader
from ..names.symbolizer import KnownModule, SpaceNames
from .decode.frames import Image

_CODE = 0x20000020
"""IMAGE_SCN_MEM_EXECUTE, IMAGE_SCN_CNT_CODE."""


class StackModules:
    """Finds modules by address.

    Args:
        context: the context that holds the layer
        layer_name: the layer of the address space
        names: its names
    """

    def __init__(
        self, context: interfaces.context.ContextInterface, layer_name: str, names: SpaceNames
    ) -> None:
        self._context = context
        self._layer_name = layer_name
        self._names = names
        self._images: Dict[int, Image] = {}

    def find(self, address: int) -> Optional[Image]:
        """Returns the module that holds an address, or None."""
        known = self._names.module_at(address)
        if known is None:
            return None
        base = known.module.base
        if base not in self._images:
            self._images[base] = self._image(known)
        return self._images[base]

    def _image(self, known: KnownModule) -> Image:
        module, table = known.module, known.image.functions
        if table is not None:
            read_rva = table.read_rva
        else:
            read_rva = ImageReader(self._context, self._layer_name, module.base, module.size).read
        return Image(module.base, module.size, read_rva, table, _code(known.image.headers))


def _code(headers: Optional[Headers]) -> Optional[Tuple[Tuple[int, int], ...]]:
    """Returns the RVA ranges of the sections that may hold code."""
    if headers is None:
        return None
    return tuple((each.start, each.end) for each in headers.sections if each.characteristics & _CODE)
