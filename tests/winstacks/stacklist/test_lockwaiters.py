# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Waiting threads of very many locks: the work grows with the locks and with the threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from tests.support.work import calls
from winstacks.columns import words
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.stacklist import lockwaiters
from winstacks.stacklist.lockwaiters import LockWaiters
from winstacks.waits.records import WaitOwner

SPACE = SimpleNamespace(pid=1000, eprocess=0x1000, kernel=False, known_name="a.exe")


def image(count: int, monkeypatch: pytest.MonkeyPatch) -> Tuple[LockWaiters, List[Any]]:
    """Returns the finder, and locks for which threads wait: each two threads wait for each other. The locks
    are in the opposite order of their deadlocks.
    """
    waits, locks = [], []
    for tid in reversed(range(count)):
        awaited = SimpleNamespace(
            kind=words.CRITICAL_SECTION,
            space=SPACE,
            address=tid,
            name="",
            mode=words.FOR_EXCLUSIVE,
            known=words.BY_CALL,
            owners=(WaitOwner(SPACE.pid, "a.exe", tid ^ 1),),
            status=(),
        )
        thread = SimpleNamespace(tid=tid, ethread=tid, space=SPACE, status=())
        waits.append(SimpleNamespace(thread=thread, awaited=(awaited,), stack=None, status=()))
        # Of two threads that wait for it one is not found.
        locks.append(SimpleNamespace(address=tid, space=SPACE, waiters=2, owners=()))
    lost = status(StatusCode.STACK_UNREADABLE)
    process = SimpleNamespace(space=SPACE, status=(), lost=lost, others={}, unread=(), waits=waits)
    lister = SimpleNamespace(list_waits=lambda pids: [process])
    monkeypatch.setattr(lockwaiters, "WaitLister", lambda *_: lister)
    monkeypatch.setattr(lockwaiters, "symbol_of", lambda _: None)
    symbolizer: Any = SimpleNamespace(image=SimpleNamespace(possible=lambda items: items))
    locks_of: Any = SimpleNamespace(ntdlls=None, list_locks=None)
    named: Any = None
    return LockWaiters(symbolizer, named, locks_of), locks[::-1]


def test_deadlocks_and_doubts_of_very_many_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(count: int) -> int:
        waiters, locks = image(count, monkeypatch)

        def told() -> Tuple[int, int]:
            sentences, doubted = 0, 0
            for lock in locks:
                found = waiters.of_lock(lock)
                sentences += len(list(waiters.deadlocks(found)))
                doubted += StatusCode.STACK_UNREADABLE in [
                    item.code for item in waiters.lost_statuses(lock, found)
                ]
            return sentences, doubted

        done, called = calls(told)
        assert done == (count // 2, count)
        return called

    assert cost(400) < 2.2 * cost(200)
