# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A dictionary that makes its values when they are asked for."""

from __future__ import annotations

from typing import Callable, Dict, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(Dict[Key, Value]):
    """Values by key, each made when it is first asked for as `memo[key]`.

    Args:
        make: makes the value of a key
    """

    def __init__(self, make: Callable[[Key], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Value:
        value = self[key] = self._make(key)
        return value
