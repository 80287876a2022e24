# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds deadlocks in a graph of threads that wait for locks, and locks that are held by threads.

A cycle is a deadlock: each of its threads waits for a lock that the next one holds. A thread that waits for a
lock with several owners waits for all of them, so one owner in the cycle is enough.
"""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, Sequence, Set, Tuple

from ...memory.decode.records import NamedTuple

Thread = Any
Lock = Any
"""Threads and locks are any hashable keys."""


class CycleStep(NamedTuple):
    """A thread of a cycle, and the lock for which it waits, which the next thread holds."""

    thread: Thread
    lock: Lock


Cycle = Tuple[CycleStep, ...]


def cycles(waits: Mapping[Thread, Lock], holders: Mapping[Lock, Collection[Thread]]) -> List[Cycle]:
    """Returns a cycle of each group of threads that wait for each other, in the order of `waits`.

    The work grows with the threads and with the holders, however many threads wait for one lock.
    """
    threads = list(waits)
    places = {thread: place for place, thread in enumerate(threads)}
    locks: Dict[Lock, int] = {}
    for lock in waits.values():
        locks.setdefault(lock, len(threads) + len(locks))
    edges: List[List[int]] = [[locks[lock]] for lock in waits.values()]
    edges += ([places[other] for other in holders.get(lock, ()) if other in places] for lock in locks)
    result: List[Cycle] = []
    for group in sorted(_groups(edges), key=min):
        path = _cycle(min(group), group, edges)
        result.append(tuple(CycleStep(threads[place], waits[threads[place]]) for place in path))
    return result


def ways_into(
    found: Sequence[Cycle], waits: Mapping[Thread, Lock], holders: Mapping[Lock, Collection[Thread]]
) -> Dict[Thread, Thread]:
    """Returns the next thread on the way into a cycle, for each thread that can never go on: one of a cycle,
    or one that waits for a cycle, however many threads lie between.

    The work grows with the threads and with the holders. `found` is what `cycles` returned.
    """
    waiters: Dict[Lock, List[Thread]] = {}
    for thread, lock in waits.items():
        waiters.setdefault(lock, []).append(thread)
    held: Dict[Thread, List[Lock]] = {}
    for lock in waiters:
        for thread in holders.get(lock, ()):
            held.setdefault(thread, []).append(lock)
    pairs = ((step, after) for cycle in found for step, after in zip(cycle, (*cycle[1:], cycle[0])))
    ways = {step.thread: after.thread for step, after in pairs}
    reached = list(ways)
    # The list grows while it is read.
    for thread in reached:
        for lock in held.get(thread, ()):
            for waiting in waiters.pop(lock, ()):
                if waiting not in ways:
                    ways[waiting] = thread
                    reached.append(waiting)
    return ways


def _cycle(first: int, group: Set[int], edges: Sequence[Sequence[int]]) -> List[int]:
    """Returns the threads of the shortest cycle through a thread of a group."""
    before: Dict[int, int] = {}
    level = [first]
    while level:
        following = []
        for node in level:
            for other in edges[node]:
                if other == first:
                    path = [node]
                    while path[-1] != first:
                        path.append(before[path[-1]])
                    # Each second node is a lock.
                    return path[::-1][::2]
                if other in group and other not in before:
                    before[other] = node
                    following.append(other)
        level = following
    return []


def _groups(edges: Sequence[Sequence[int]]) -> List[Set[int]]:
    """Returns the strongly connected groups of several nodes (Tarjan's algorithm, without recursion). `edges`
    has for each node, a thread or a lock, the nodes to which it leads."""
    number: Dict[int, int] = {}
    low: Dict[int, int] = {}
    path: List[int] = []
    on_path: Set[int] = set()
    groups: List[Set[int]] = []
    for start in range(len(edges)):
        if start in number:
            continue
        number[start] = low[start] = len(number)
        path.append(start)
        on_path.add(start)
        waiting = [(start, iter(edges[start]))]
        while waiting:
            node, others = waiting[-1]
            for other in others:
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
                    if len(group) > 1:
                        groups.append(group)
    return groups
