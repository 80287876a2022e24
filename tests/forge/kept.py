# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is made once for many images: symbol tables, their texts and types, by a digest of their contents."""

from __future__ import annotations

from typing import Callable, Dict, TypeVar

MOST = 8
"""How many are kept of each: one takes up to 30 MB."""
FEW = 4
"""How many are kept of files that are soon read again: a test asks for few, and the next for others."""

Key = TypeVar("Key")
Value = TypeVar("Value")


def keep(kept: Dict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
    """Returns the value of a key, which is made if it is not among those that are kept.

    If there is no room, the oldest one goes.
    """
    if key not in kept:
        if len(kept) >= MOST:
            del kept[next(iter(kept))]
        kept[key] = make()
    return kept[key]
