# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Addresses at which the processor refused to execute, as the input itself shows.

address in image.service(refused_places)
"""

from __future__ import annotations

from typing import FrozenSet

from ..memory.image import Image


def refused_places(_image: Image) -> FrozenSet[int]:
    """Returns canonical addresses, for `image.service(refused_places)`: none in a kernel's image."""
    return frozenset()
