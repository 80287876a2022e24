# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Chains of waiting threads: who owns what they wait for, and what is kept of the owners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import pytest

from tests.support.only import only
from winstacks.columns import words
from winstacks.waits import chains
from winstacks.waits.records import WaitOwner

PID, COUNT = 4, 40


def test_owners_are_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two threads own the lock for which they wait, which is a deadlock of both."""
    made: List[Dict[Any, Sequence[Any]]] = []
    find = chains.cycles

    def cycles(waits: Dict[Any, Any], holders: Dict[Any, Sequence[Any]]) -> Any:
        made.append(holders)
        return find(waits, holders)

    monkeypatch.setattr(chains, "cycles", cycles)
    owners = tuple(WaitOwner(PID, "a.exe", tid) for tid in range(30))
    awaited = SimpleNamespace(owners=owners, mode=words.FOR_EXCLUSIVE)
    waits = [
        SimpleNamespace(thread=SimpleNamespace(tid=tid), awaited=(awaited,))
        for tid in (0, 1, *range(50, 50 + COUNT))
    ]
    process: Any = SimpleNamespace(space=SimpleNamespace(pid=PID), status=(), others={}, waits=waits)
    found = chains.Chains([process]).deadlocks
    assert [[step.thread for step in cycle] for cycle in found] == [[(PID, 0), (PID, 1)]]
    holders = only(made)
    # Those of all other threads are one, and each owner leaves itself out.
    assert len(holders) == 3


def test_a_thread_with_the_id_of_an_owner_that_has_ended_is_not_the_owner() -> None:
    """Windows gives the ID to a new thread, which waits for the first one here."""
    waits = [
        SimpleNamespace(
            thread=SimpleNamespace(tid=tid, space=SimpleNamespace(pid=PID)),
            awaited=(SimpleNamespace(owners=(owner,), mode=words.FOR_EXCLUSIVE),),
        )
        for tid, owner in ((1, WaitOwner(99, "gone.exe", 2, ended=True)), (2, WaitOwner(PID, "a.exe", 1)))
    ]
    process: Any = SimpleNamespace(space=SimpleNamespace(pid=PID), status=(), others={}, waits=waits)
    found = chains.Chains([process])
    first: Any = waits[0]
    assert found.deadlocks == []
    assert found.follow(first).end == words.ENDS_EXITED
