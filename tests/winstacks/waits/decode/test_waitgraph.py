# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Deadlocks among very many threads: the work grows with the threads."""

from __future__ import annotations

from typing import Dict, List

import pytest

from winstacks.waits.decode.waitgraph import cycles

COUNT = 2000
STEPS = 60
"""Comparisons and look-ups of a thread, at most, for each thread."""


class Key:
    """A thread or lock that counts how often it is asked for."""

    asked = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        Key.asked += 1
        return self.number

    def __eq__(self, other: object) -> bool:
        Key.asked += 1
        return isinstance(other, Key) and self.number == other.number


@pytest.mark.parametrize(
    ("step", "found"), [("next", 0), ("itself", COUNT), ("pair", COUNT // 2), ("ring", 1)]
)
def test_work_grows_with_the_threads(step: str, found: int) -> None:
    """A chain of threads, threads that wait for themselves, pairs, one ring of all."""
    keys = [Key(number) for number in range(COUNT + 1)]
    following = {
        "next": lambda number: number + 1,
        "itself": lambda number: number,
        "pair": lambda number: number ^ 1,
        "ring": lambda number: (number + 1) % COUNT,
    }[step]
    waits: Dict[Key, Key] = {key: key for key in keys[:COUNT]}
    holders: Dict[Key, List[Key]] = {key: [keys[following(key.number)]] for key in keys[:COUNT]}
    Key.asked = 0
    result = cycles(waits, holders)
    assert Key.asked < STEPS * COUNT
    assert len(result) == found
    assert [cycle[0].thread.number for cycle in result] == sorted(cycle[0].thread.number for cycle in result)


def test_a_lock_with_many_owners_is_looked_at_once() -> None:
    """All threads own the lock for which all of them wait."""
    keys = [Key(number) for number in range(COUNT)]
    Key.asked = 0
    found = cycles(dict.fromkeys(keys, keys[0]), {keys[0]: keys[1:]})
    assert Key.asked < STEPS * COUNT
    assert [[step.thread.number for step in cycle] for cycle in found] == [[1]]
