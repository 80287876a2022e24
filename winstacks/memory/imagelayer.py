# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A layer that opens an image by itself, as the layers of dumps do."""

from __future__ import annotations

from typing import Optional, Protocol

from .decode.machine import Machine
from .decode.status import Status
from .image import Image


class ImageLayer(Protocol):
    """A layer that is a whole image, without a kernel that can be walked: the memory of a dump.

    The first two methods raise UnsupportedMachineError if the machine is not supported or not known.
    """

    def machine(self) -> Machine:
        """Returns the machine whose memory the layer holds."""

    def open_image(self, config_path: str, kernel_symbols: Optional[str] = None) -> Image:
        """Returns the image."""

    def faults(self) -> Status:
        """Returns the faults of the dump as a whole: of its header, its directory and its memory."""
