# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Physical memory of an opened image that can be damaged, and that notes what is read of it."""

from __future__ import annotations

from typing import Any, List, Optional, Set, Tuple

from volatility3.framework import exceptions, interfaces

from tests.forge.context import Opened
from tests.support import remembered


class Memory(interfaces.layers.DataLayerInterface):
    """Takes the place of an image file's layer.

    Args:
        replaced: the layer whose name and place it takes
        data: the bytes of the file

    Attributes:
        data: the bytes, to be changed in place; cut off to truncate the image
        noted: (offset, length) of what was read, if `note` was called
    """

    def __init__(self, replaced: interfaces.layers.DataLayerInterface, data: bytes) -> None:
        super().__init__(replaced.context, replaced.config_path, replaced.name, {})
        self.data = bytearray(data)
        self.noted: Optional[Set[Tuple[int, int]]] = None

    @property
    def maximum_address(self) -> int:
        return len(self.data) - 1

    @property
    def minimum_address(self) -> int:
        return 0

    def note(self) -> Set[Tuple[int, int]]:
        """Notes the reads from now on."""
        self.noted = set()
        return self.noted

    def is_valid(self, offset: int, length: int = 1) -> bool:
        if length <= 0:
            raise ValueError("Length must be positive")  # as the layer of a file does
        return offset >= 0 and offset + length <= len(self.data)

    def read(self, offset: int, length: int, pad: bool = False) -> bytes:
        if not self.is_valid(offset, length):
            raise exceptions.InvalidAddressException(self.name, offset, "Offset outside of the file")
        if self.noted is not None:
            self.noted.add((offset, length))
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        raise NotImplementedError("the image is read only")

    @classmethod
    def get_requirements(cls) -> List[Any]:
        return []


def install(opened: Opened, data: bytes) -> Memory:
    """Puts an image's bytes in the place of its file's layer; forgets what Volatility remembers of it."""
    layers = opened.context.layers
    name = opened.layer.config["memory_layer"]
    memory = Memory(layers[name], data)
    layers._layers[name] = memory
    remembered.forget()
    return memory
