# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Keeps Python's collector of cycles from running while many rows are made."""

from __future__ import annotations

import contextlib
import gc
import itertools
from typing import Callable, Iterable, Iterator, TypeVar

Item = TypeVar("Item")

_froze = False


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keeps Python's collector of cycles from running, and lets it run again at the end if it did before.

    Grids keep every row. The collector goes through all rows again and again and finds nothing to free: with
    a hundred thousand rows that takes a quarter of the time. Objects outside cycles are freed as usual.
    Objects created meanwhile count as old afterwards, without being examined. Use it around code that makes
    many rows and few cycles.
    """
    if not gc.isenabled():
        yield
        return
    # Cycles that were made before this are young: they would be old afterwards.
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        # This moves all young objects to the old generation. It would also unfreeze objects frozen by others.
        if not _frozen():
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def freeze() -> None:
    """Takes all objects out of later searches: a process does so that forks, or was forked."""
    global _froze
    gc.freeze()
    _froze = True


def _frozen() -> bool:
    """Returns whether anybody froze objects. Python counts them all, and is asked until there are some."""
    global _froze
    _froze = _froze or gc.get_freeze_count() > 0
    return _froze


def paused_by_group(items: Iterable[Item], group: Callable[[Item], object]) -> Iterator[Item]:
    """Yields items unchanged. The collector runs only between groups of adjacent items with one key."""
    for _, members in itertools.groupby(items, group):
        with collector_paused():
            yield from members
