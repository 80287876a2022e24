# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Values that are made at their first use and kept: one by one, or lists with a bound on all together."""

from __future__ import annotations

import types
import weakref
from typing import Callable, Dict, Generic, List, Tuple, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Kept(Dict[Key, Value]):
    """Values by key.

    Args:
        most: maximum number of values: if one more comes, all are forgotten. 0: no limit
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: Key, value: Value) -> Value:
        """Keeps a value, and returns it."""
        if self._most and len(self) >= self._most:
            self.clear()
        self[key] = value
        return value


class Memo(Kept[Key, Value]):
    """Values by key, each made at the first `memo[key]`.

    Args:
        make: makes the value of a key. A method is held weakly: most memos belong to the method's object, and
            the cycle would otherwise stay until Python's collector runs
    """

    def __init__(self, make: Callable[[Key], Value], most: int = 0) -> None:
        super().__init__(most)
        self._make = weakref.WeakMethod(make) if isinstance(make, types.MethodType) else lambda: make

    def __missing__(self, key: Key) -> Value:
        make = self._make()
        if make is None:
            raise ReferenceError("the object that makes the values is gone")
        return self.keep(key, make(key))


class KeptLists(Generic[Key, Value]):
    """Lists by key, each with whether it is whole: those made first are dropped first.

    Args:
        most: maximum number of elements of all lists together, a list itself counted as one; the last list
            is kept even if it is longer
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._lists: Dict[Key, Tuple[List[Value], bool]] = {}

    def get(self, key: Key, make: Callable[[], Tuple[List[Value], bool]]) -> Tuple[List[Value], bool]:
        """Returns the list of a key, made at the first use."""
        kept = self._lists.get(key)
        if kept is None:
            kept = make()
            self._count += len(kept[0]) + 1
            while self._lists and self._count > self._most:
                self._count -= len(self._lists.pop(next(iter(self._lists)))[0]) + 1
            self._lists[key] = kept
        return kept
