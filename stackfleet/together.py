# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lets threads share commits: what arrives while one is written goes into the next."""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Callable

Waiting = tuple[Any, "Future[None]"]
"""A thing that waits for a commit, and its answer."""


class Together:
    """Groups things of many threads, in the order of their arrival.

    Args:
        most: the most things of a group
        error: the exception that `write` raises
    """

    def __init__(self, most: int, error: type[Exception]) -> None:
        self._most, self._error = most, error
        self._waiting: collections.deque[Waiting] = collections.deque()
        self._lock = threading.Lock()

    def add(self, thing: Any, write: Callable[[Sequence[Any]], None]) -> None:
        """Returns when a thing is written, by this thread or by another.

        Args:
            write: function that writes a group, whole or not at all

        Raises:
            error: what `write` raises for this thing alone
        """
        mine: Future[None] = Future()
        self._waiting.append((thing, mine))
        with self._lock:
            while not mine.done():
                group = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                try:
                    self._write(group, write)
                finally:
                    for _, answer in group:
                        if not answer.done():
                            answer.set_exception(self._error("the thread that wrote it ended"))
        mine.result()

    def _write(self, group: Sequence[Waiting], write: Callable[[Sequence[Any]], None]) -> None:
        try:
            write([thing for thing, _ in group])
        except self._error as error:
            if len(group) > 1:
                # One of them may be to blame.
                for item in group:
                    self._write([item], write)
                return
            group[0][1].set_exception(error)
            return
        for _, answer in group:
            answer.set_result(None)


_BY_NAME: dict[str, Together] = {}
_LOCK = threading.Lock()


def of_name(name: str, most: int, error: type[Exception]) -> Together:
    """Returns the groups of a name, which all threads of this process share."""
    with _LOCK:
        return _BY_NAME.setdefault(name, Together(most, error))
