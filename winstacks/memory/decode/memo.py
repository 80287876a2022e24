# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A dictionary that makes each value at its first use."""

from __future__ import annotations

import types
import weakref
from typing import Callable, Dict, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(Dict[Key, Value]):
    """Values by key, each made at the first `memo[key]`.

    Args:
        make: makes the value of a key. A method is held weakly: most memos belong to the method's object, and
            the cycle would otherwise stay until Python's collector runs
        most: maximum number of values: if one more comes, all are forgotten. 0: no limit
    """

    def __init__(self, make: Callable[[Key], Value], most: int = 0) -> None:
        super().__init__()
        self._make = weakref.WeakMethod(make) if isinstance(make, types.MethodType) else lambda: make
        self._most = most

    def __missing__(self, key: Key) -> Value:
        make = self._make()
        if make is None:
            raise ReferenceError("the object that makes the values is gone")
        value = make(key)
        if self._most and len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
