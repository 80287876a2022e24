# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What Volatility remembers of images that were opened: its caches of functions keep them in memory."""

from __future__ import annotations

import functools
import sys
from typing import Any, List


def caches() -> List[Any]:
    """Returns the caches of functions and methods of Volatility and of its plugins."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("volatility3."):
            values = list(vars(module).values())
            inner = (
                attribute for value in values if isinstance(value, type) for attribute in vars(value).values()
            )
            for value in (*values, *inner):
                function = getattr(value, "__func__", value)  # that of a class method
                if isinstance(function, functools._lru_cache_wrapper):
                    found[id(function)] = function
    return list(found.values())


def forget() -> None:
    """Empties them."""
    for cach in caches():
        cach.cache_clear()
