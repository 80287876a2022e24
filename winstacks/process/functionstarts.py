# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""First bytes of functions that the input itself proves, without names and function tables.

address in image.service(function_starts)
"""

from __future__ import annotations

from typing import FrozenSet

from ..memory.image import Image


def function_starts(_image: Image) -> FrozenSet[int]:
    """Returns canonical addresses, for `image.service(function_starts)`: none in a kernel's image."""
    return frozenset()
