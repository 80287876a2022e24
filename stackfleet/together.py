# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lets threads share commits: what arrives while one is written goes into the next."""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence
from typing import Any, Callable, Optional


class _Waiting:
    """A thing that waits for a commit; `error` is its answer once `done` is set."""

    def __init__(self, thing: Any) -> None:
        self.thing, self.done = thing, False
        self.error: Optional[Exception] = None


class Together:
    """Groups things of many threads, in the order of their arrival.

    Args:
        most: the most things of a group
        error: the exception that `write` raises
    """

    def __init__(self, most: int, error: type[Exception]) -> None:
        self._most, self._error = most, error
        self._waiting: collections.deque[_Waiting] = collections.deque()
        self._lock = threading.Lock()

    def add(self, thing: Any, write: Callable[[Sequence[Any]], None]) -> None:
        """Returns when a thing is written, by this thread or by another.

        Args:
            write: function that writes a group, whole or not at all

        Raises:
            error: what `write` raises for this thing alone
        """
        mine = _Waiting(thing)
        self._waiting.append(mine)
        with self._lock:
            while not mine.done:
                group = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                self._write(group, write)
        if mine.error is not None:
            raise mine.error

    def _write(self, group: Sequence[_Waiting], write: Callable[[Sequence[Any]], None]) -> None:
        try:
            write([item.thing for item in group])
        except self._error as error:
            if len(group) > 1:
                # One of them may be to blame.
                for item in group:
                    self._write([item], write)
                return
            group[0].error = error
        for item in group:
            item.done = True


_BY_NAME: dict[str, Together] = {}
_LOCK = threading.Lock()


def of_name(name: str, most: int, error: type[Exception]) -> Together:
    """Returns the groups of a name, which all threads of this process share."""
    with _LOCK:
        return _BY_NAME.setdefault(name, Together(most, error))
