# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How Volatility opens files in the processes of the tests."""

from __future__ import annotations

import functools
import urllib.request


def share() -> None:
    """Has Volatility open files by one opener. A new one for each is most of the time of a small file."""
    if not hasattr(urllib.request.build_opener, "cache_info"):
        urllib.request.build_opener = functools.lru_cache(maxsize=4)(urllib.request.build_opener)
