# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is made when it is asked for: values of a dictionary, regular expressions."""

from __future__ import annotations

import re
import types
import weakref
from typing import Any, AnyStr, Callable, Dict, Pattern, TypeVar, cast

Key = TypeVar("Key")
Value = TypeVar("Value")


class Memo(Dict[Key, Value]):
    """Values by key, each made when it is first asked for as `memo[key]`.

    Args:
        make: makes the value of a key. A method is held weakly: most memos belong to its object, and such a
            circle would stay until Python's collector runs
        most: so many values are kept: all are forgotten when one more comes. 0 for any number
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


class _LatePattern:
    """A regular expression that is compiled when a method of it is first called."""

    def __init__(self, source: object, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(cast(str, self._source), self._flags), name)
        setattr(self, name, method)
        return method


def late_pattern(source: AnyStr, flags: int = 0) -> Pattern[AnyStr]:
    """Returns a regular expression for a constant of a module, which costs nothing at the import."""
    return cast("Pattern[AnyStr]", _LatePattern(source, flags))
