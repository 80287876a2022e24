# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Chains of waiting threads: who owns what they wait for, and what is kept of the owners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import pytest

from tests.hostile.pluginruns import MAX_CELL
from tests.support.only import only
from tests.support.work import calls
from winstacks.columns import words
from winstacks.memory.decode.text import MAX_NAME, counted, printable
from winstacks.waits import chains
from winstacks.waits.records import WaitOwner

PID, COUNT = 4, 40
SPACE = SimpleNamespace(pid=PID, known_name="a.exe")


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
        SimpleNamespace(thread=SimpleNamespace(tid=tid, space=SPACE), awaited=(awaited,))
        for tid in (0, 1, *range(50, 50 + COUNT))
    ]
    process: Any = SimpleNamespace(space=SPACE, status=(), others={}, unread=(), waits=waits)
    found = chains.Chains([process]).deadlocks
    assert [[step.thread for step in cycle] for cycle in found] == [[(PID, 0), (PID, 1)]]
    holders = only(made)
    # Those of all other threads are one, and each owner leaves itself out.
    assert len(holders) == 3


def test_a_thread_with_the_id_of_an_owner_that_has_ended_is_not_the_owner() -> None:
    """Windows gives the ID to a new thread, which waits for the first one here."""
    found, (first, _) = graph({1: [WaitOwner(99, "gone.exe", 2, ended=True)], 2: [owner_of(1)]})
    assert found.deadlocks == []
    assert found.end(first) == found.follow(first).end == words.ENDS_EXITED


def test_a_thread_that_waits_for_a_deadlock_never_goes_on() -> None:
    """A lock of several owners is free only if all of them release it: one in a deadlock is enough."""
    found, (_, *waits) = graph(
        {9: [], 1: [owner_of(9), owner_of(2)], 2: [owner_of(1)], 3: [owner_of(9), owner_of(1)]}
    )
    assert [[step.thread[1] for step in cycle] for cycle in found.deadlocks] == [[1, 2]]
    for wait in waits:
        chain = found.follow(wait)
        assert found.end(wait) == chain.end == words.DEADLOCK
        assert 9 not in [step.owner.tid for step in chain.steps]


def test_the_end_of_a_chain_that_is_longer_than_what_is_shown() -> None:
    count = chains.MAX_STEPS + 10
    found, waits = graph({tid: [owner_of(tid + 1)] for tid in range(count)}, {count: words.ENDS_RUNNING})
    assert {found.end(wait) for wait in waits} == {words.ENDS_RUNNING}
    first, last = found.follow(waits[0]), found.follow(waits[-1])
    assert (len(first.steps), first.end) == (chains.MAX_STEPS, words.ENDS_UNKNOWN)
    assert (len(last.steps), last.end) == (1, words.ENDS_RUNNING)


@pytest.mark.parametrize("closed", [False, True])
def test_the_ends_of_all_chains_cost_what_the_threads_do(closed: bool) -> None:
    """Each thread waits for the next one, and the last one for nothing or for the first."""

    def cost(count: int) -> int:
        last = [] if closed else [count]
        found, waits = graph(
            {tid: [owner_of((tid + 1) % (count + len(last)))] for tid in range(count)},
            dict.fromkeys(last, words.ENDS_ASLEEP),
        )
        ends, called = calls(lambda: {found.end(wait) for wait in waits})
        assert ends == {words.DEADLOCK if closed else words.ENDS_ASLEEP}
        return called

    assert cost(600) < 2.2 * cost(300)


def test_threads_with_one_id() -> None:
    """The second thread of an ID has the end of its own wait, and others follow the first."""
    found, waits = graph({1: [owner_of(2)], 2: [owner_of(9)]}, {9: words.ENDS_ASLEEP, 8: words.ENDS_RUNNING})
    other = waiting(2, [owner_of(8)])
    assert found.end(other) == words.ENDS_RUNNING
    assert [found.end(wait) for wait in waits] == [words.ENDS_ASLEEP] * 2


def test_a_thread_that_waits_for_itself() -> None:
    """The kernel does not let it; its chain comes back to it, and there is no deadlock of several threads."""
    found, (wait,) = graph({1: [owner_of(9), owner_of(1)]}, {9: words.ENDS_ASLEEP})
    assert found.end(wait) == found.follow(wait).end == words.DEADLOCK
    assert found.deadlocks == []


@pytest.mark.parametrize("count", [2, chains.MAX_TOLD, chains.MAX_TOLD + 1, 1000])
def test_the_sentence_for_a_deadlock_fits_in_a_cell(count: int) -> None:
    found, waits = graph({tid: [owner_of((tid + 1) % count)] for tid in range(count)})
    for wait in waits:
        wait.awaited[0].name = printable("\ufffe" * MAX_NAME)
    sentence = found.sentence(only(found.deadlocks))
    assert len(sentence) <= MAX_CELL
    named = min(count, chains.MAX_TOLD)
    assert sentence.count(" waits for ") == named
    assert sentence.startswith("Deadlock: thread 0 of a.exe (4) waits for ")
    assert sentence.endswith(", which thread 0 holds.")
    assert (f"; {counted(count - named, 'more thread')}; thread {count - 1} " in sentence) == (count > named)


def owner_of(tid: int) -> WaitOwner:
    return WaitOwner(PID, "a.exe", tid)


def waiting(tid: int, owners: Sequence[WaitOwner]) -> Any:
    awaited = SimpleNamespace(
        kind=words.SLEEP,
        address=None,
        name="",
        mode=words.FOR_EXCLUSIVE,
        known=words.BY_CALL,
        owners=tuple(owners),
        status=(),
    )
    return SimpleNamespace(thread=SimpleNamespace(tid=tid, space=SPACE), awaited=(awaited,))


def graph(
    owners: Dict[int, List[WaitOwner]], others: Mapping[int, str] = {}
) -> Tuple[chains.Chains, List[Any]]:
    """Returns the chains of threads of a process, and their waits.

    Args:
        owners: of what each thread waits for
        others: ends at the threads that do not wait
    """
    waits = [waiting(tid, held) for tid, held in owners.items()]
    process: Any = SimpleNamespace(space=SPACE, status=(), others=others, unread=(), waits=waits)
    return chains.Chains([process]), waits
