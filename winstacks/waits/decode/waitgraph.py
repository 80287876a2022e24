# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds deadlocks in a graph of threads that wait for locks, and locks that are held by threads.

A cycle is a deadlock: each of its threads waits for a lock that the next one holds. A thread that waits for a
lock with several owners waits for all of them, so one owner in the cycle is enough.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Set, Tuple

Thread = Any
Lock = Any
"""Threads and locks are any hashable keys."""


class CycleStep(NamedTuple):
    """A thread of a cycle, and the lock for which it waits, which the next thread holds."""

    thread: Thread
    lock: Lock


Cycle = Tuple[CycleStep, ...]


def cycles(waits: Mapping[Thread, Lock], holders: Mapping[Lock, Sequence[Thread]]) -> List[Cycle]:
    """Returns a cycle of each group of threads that wait for each other, in the order of `waits`."""
    result: List[Cycle] = []
    order = {thread: number for number, thread in enumerate(waits)}
    for group in _groups({thread: holders.get(lock, ()) for thread, lock in waits.items()}):
        cycle = _cycle(min(group, key=order.__getitem__), group, waits, holders)
        if cycle:
            result.append(cycle)
    result.sort(key=lambda cycle: order[cycle[0].thread])
    return result


def _cycle(
    first: Thread,
    group: Set[Thread],
    waits: Mapping[Thread, Lock],
    holders: Mapping[Lock, Sequence[Thread]],
) -> Cycle:
    """Returns the shortest cycle through a thread of a group; empty if there is none."""
    before: Dict[Thread, Thread] = {}
    level = [first]
    while level:
        following = []
        for thread in level:
            for other in holders.get(waits[thread], ()):
                if other == first:
                    path = [thread]
                    while path[-1] != first:
                        path.append(before[path[-1]])
                    return tuple(CycleStep(folder, waits[folder]) for folder in reversed(path))
                if other in group and other not in before:
                    before[other] = thread
                    following.append(other)
        level = following
    return ()


def _groups(edges: Mapping[Thread, Iterable[Thread]]) -> List[Set[Thread]]:
    """Returns the strongly connected groups that contain a cycle (Tarjan's algorithm, without recursion)."""
    number: Dict[Thread, int] = {}
    low: Dict[Thread, int] = {}
    path: List[Thread] = []
    on_path: Set[Thread] = set()
    groups: List[Set[Thread]] = []
    for start in edges:
        if start in number:
            continue
        number[start] = low[start] = len(number)
        path.append(start)
        on_path.add(start)
        waiting = [(start, iter(edges[start]))]
        while waiting:
            node, others = waiting[-1]
            for other in others:
                if other not in edges:
                    continue
                if other not in number:
                    number[other] = low[other] = len(number)
                    path.append(other)
                    on_path.add(other)
                    waiting.append((other, iter(edges[other])))
                    break
                if other in on_path:
                    low[node] = min(low[node], number[other])
            else:
                waiting.pop()
                if waiting:
                    low[waiting[-1][0]] = min(low[waiting[-1][0]], low[node])
                if low[node] == number[node]:
                    group = {path.pop()}
                    while node not in group:
                        group.add(path.pop())
                    on_path -= group
                    if len(group) > 1 or node in edges[node]:
                        groups.append(group)
    return groups
