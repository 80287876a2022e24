# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What Volatility remembers of images that were opened: its caches of functions keep them in memory."""

from __future__ import annotations

import functools
import gc
from typing import Any, List


def caches() -> List[Any]:
    """Returns the caches of functions of Volatility and of its plugins: what the tests made stays."""
    found = (each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper))
    return [
        each for each in found if str(getattr(each.__wrapped__, "__module__", "")).startswith("volatility3.")
    ]


def forget() -> None:
    """Empties them."""
    for each in caches():
        each.cache_clear()
