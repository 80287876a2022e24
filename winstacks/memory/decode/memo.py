# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Values that are made at their first use and kept, with a bound on all together."""

from __future__ import annotations

import sys
import types
import weakref
from typing import Callable, Dict, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Kept(Dict[Key, Value]):
    """Values by key. `most` is the maximum of the sizes of all values together, 0 for no limit: if more
    comes, all are forgotten first. A value that is larger is kept alone."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = self._most = most or sys.maxsize

    def keep(self, key: Key, value: Value, size: int = 1) -> Value:
        """Keeps the value of a key that has none, and returns it."""
        if size > self._left:
            self.clear()
            self._left = self._most
        self._left -= size
        self[key] = value
        return value

    def at_first_use(self, key: Key, make: Callable[[], Value], size: Callable[[Value], int]) -> Value:
        """Returns the value of a key; if it has none yet, that is made, and kept with its size."""
        if key not in self:
            value = make()
            return self.keep(key, value, size(value))
        return self[key]


class Memo(Kept[Key, Value]):
    """Values by key, each made at the first `memo[key]`. `make` makes the value of a key. A method is held
    weakly: most memos belong to the method's object, and the cycle would otherwise stay until Python's
    collector runs."""

    def __init__(self, make: Callable[[Key], Value], most: int = 0) -> None:
        super().__init__(most)
        # weakref.WeakMethod is a Python function that makes the method anew for each value.
        self._owner = weakref.ref(make.__self__) if isinstance(make, types.MethodType) else None
        self._make: Callable[..., Value] = make.__func__ if isinstance(make, types.MethodType) else make

    def __missing__(self, key: Key) -> Value:
        if self._owner is None:
            return self.keep(key, self._make(key))
        owner = self._owner()
        if owner is None:
            raise ReferenceError("the object that makes the values is gone")
        return self.keep(key, self._make(owner, key))
