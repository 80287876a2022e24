# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Threads that wait for one lock with many owners share what is kept of the owners."""

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
