# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Follows a waiting thread to the owner of what it waits for, to what that owner waits for, and so on.

chains = Chains(processes, pids)
end = chains.end(wait)               # the word for the end of the chain behind a thread
chain = chains.follow(wait)          # its steps, too
for cycle in chains.deadlocks: sentence(cycle, chains)
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Collection, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ..columns import words
from ..memory.decode import text
from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from .decode.waitgraph import Cycle, cycles, ways_into
from .lister import ProcessWaits
from .records import Awaited, ThreadWait, WaitOwner

Key = Tuple[Optional[int], Optional[int]]
"""PID and TID of a thread."""

_ENDS = {
    words.INPUT: words.ENDS_INPUT,
    words.SLEEP: words.ENDS_ASLEEP,
    words.TIMER: words.ENDS_ASLEEP,
    words.QUEUE: words.ENDS_IDLE,
    words.PORT: words.ENDS_IDLE,
    words.IO: words.ENDS_IO,
    words.FILE: words.ENDS_IO,
    words.ALERT: words.ENDS_UNKNOWN,
    words.KEYED_EVENT: words.ENDS_UNKNOWN,
    words.OTHER_WAIT: words.ENDS_UNKNOWN,
    words.OBJECTS: words.ENDS_UNKNOWN,
}
"""Ends of chains by the kind of the last wait, if that has no owner."""

_OWNERLESS = {
    words.NOBODY: words.NOBODY,
    words.NO_OWNER_KEPT: words.NO_OWNER_KEPT,
    words.OWNER_UNKNOWN: words.ENDS_ABSENT,
    words.BY_PROCESS: words.ENDS_PROCESS,
}

_DISAGREES = words_that(Means.DISAGREES)

MAX_STEPS = 1 << 10
"""The most steps of a chain that are shown. A chain without a circle has at most one for each thread."""

MAX_TOLD = 16
"""The most threads that the sentence for a deadlock names: it stands in one cell."""


class ChainStep(NamedTuple):
    """A step of a chain: an owner, and its wait if it waits."""

    owner: WaitOwner
    wait: Optional[ThreadWait]


class OwnerChain(NamedTuple):
    """The steps behind a waiting thread, and where they end: a word of `words.CHAIN_ENDS`, which is
    ENDS_UNKNOWN behind the last of MAX_STEPS."""

    steps: Tuple[ChainStep, ...]
    end: str


class _Owners(NamedTuple):
    """The owners of a lock, the first of each key, and the one to follow that leads into no deadlock: the
    first that waits, or else the first."""

    by_key: Dict[Key, WaitOwner]
    first: WaitOwner


class _Graph(NamedTuple):
    """The deadlocks, and the next thread on the way into one, of each thread that can never go on."""

    cycles: List[Cycle]
    ways: Dict[Key, Key]


class Chains:
    """The waits of an image as a graph.

    Args:
        pids: the processes that were selected; None for all
        tids: the threads that were read; None for all
    """

    def __init__(
        self,
        processes: Iterable[ProcessWaits],
        pids: Optional[Collection[int]] = None,
        tids: Optional[Collection[int]] = None,
    ) -> None:
        self._pids, self._tids = pids, tids
        self.waits: Dict[Key, ThreadWait] = {}
        self._ends: Dict[Key, str] = {}
        self._unread: List[Optional[int]] = []
        self._examined: Set[Optional[int]] = set()
        self._incomplete: Set[Optional[int]] = set()
        for process in processes:
            pid = process.space.pid
            self._examined.add(pid)
            if process.status:
                self._incomplete.add(pid)
            self._ends.update({(pid, tid): end for tid, end in process.others.items()})
            self._unread += process.unread
            for wait in process.waits:
                self.waits.setdefault((pid, wait.thread.tid), wait)
        self._keys = {key[1]: key for key in (*self._ends, *self.waits)}
        self._known_ends: Dict[Key, str] = {}
        # Thousands of threads may wait for one lock with thousands of owners: they share the keys of these.
        self._owners: Memo[Tuple[WaitOwner, ...], _Owners] = Memo(self._by_key)

    def end(self, wait: ThreadWait) -> str:
        """Returns where the chain behind a waiting thread ends: a word of `words.CHAIN_ENDS`.

        Chains that join are followed once: the work grows with the threads and their owners.
        """
        passed: Set[Key] = set()
        current, end = wait, ""
        while not end:
            key = key_of(current)
            if self.waits.get(key) is current:
                end = words.DEADLOCK if key in passed else self._known_ends.get(key, "")
                if end:
                    break
                passed.add(key)
            step = self._step(current)
            if step is None or step.wait is None:
                end = _end(current) if step is None else self._end_of(step.owner)
            else:
                current = step.wait
        self._known_ends.update(dict.fromkeys(passed, end))
        return end

    def follow(self, wait: ThreadWait) -> OwnerChain:
        """Returns the chain behind a waiting thread."""
        steps = tuple(itertools.islice(self._steps(wait), MAX_STEPS + 1))
        if len(steps) > MAX_STEPS:
            return OwnerChain(steps[:MAX_STEPS], words.ENDS_UNKNOWN)
        return OwnerChain(steps, self.end(wait))

    def reached(self, wait: ThreadWait) -> Set[Key]:
        """Returns the keys of a waiting thread and of the threads in the chain behind it."""
        return {key_of(wait), *(self._key(step.owner) for step in self._steps(wait))}

    def _steps(self, wait: ThreadWait) -> Iterator[ChainStep]:
        """Yields the steps behind a waiting thread, up to its end or once around a deadlock."""
        passed = {key_of(wait)}
        step = self._step(wait)
        while step is not None:
            yield step
            key = self._key(step.owner)
            step = None if step.wait is None or key in passed else self._step(step.wait)
            passed.add(key)

    def _step(self, wait: ThreadWait) -> Optional[ChainStep]:
        """Returns the owner to follow: one on the way into a deadlock, else the first that waits, else the
        first."""
        owners = blockers(wait)
        if not owners:
            return None
        known, key = self._owners[owners], key_of(wait)
        # A thread that waits for what it owns itself stays where it is, too.
        way = self._graph.ways.get(key, key)
        owner = known.by_key.get(way, known.first)
        return ChainStep(owner, self.waits.get(self._key(owner)))

    def _key(self, owner: WaitOwner) -> Key:
        """Returns the key of an owner.

        The list of processes may have another ID for its process than PspCidTable: then the ID of the thread
        decides, which no other thread has while it lives.
        """
        key = owner.pid, owner.tid
        known = owner.ended or owner.pid in self._examined
        return key if known else self._keys.get(owner.tid, key)

    def _end_of(self, owner: WaitOwner) -> str:
        """Returns the end of a chain whose last thread does not wait."""
        key = self._key(owner)
        if owner.ended:
            return words.ENDS_EXITED
        if key in self._ends:
            return self._ends[key]
        if self._tids is not None and owner.tid not in self._tids:
            return words.ENDS_LEFT_OUT
        if owner.pid in self._examined:
            return words.ENDS_ABSENT if owner.pid in self._incomplete else words.ENDS_EXITED
        return (
            words.ENDS_LEFT_OUT
            if self._pids is not None and owner.pid not in self._pids
            else words.ENDS_ABSENT
        )

    def reached_deadlocks(self, waits: Iterable[ThreadWait]) -> Set[int]:
        """Returns the numbers, from 0, of the deadlocks to which the chains behind some threads lead."""
        reached: Set[Key] = set().union(*map(self.reached, waits))
        return {self.deadlock_of[key] for key in reached if key in self.deadlock_of}

    def unknown(self, tids: Optional[Collection[int]] = None) -> int:
        """Returns the number of threads that may wait or not: their system call has no known name or caller.
        `tids` are the threads that are counted; None for all."""
        ends = ((tid, end) for (_, tid), end in self._ends.items() if tids is None or tid in tids)
        return sum(end == words.ENDS_UNKNOWN for _, end in ends)

    def unread(self, tids: Optional[Collection[int]] = None) -> int:
        """Returns the number of threads that are not in the image; `tids` is as in `unknown`."""
        return sum(tids is None or tid in tids for tid in self._unread)

    @property
    def deadlocks(self) -> List[Cycle]:
        """Each group of threads that wait for each other in a circle, as a cycle of keys."""
        return self._graph.cycles

    @cached_property
    def deadlock_of(self) -> Dict[Key, int]:
        """The number of the deadlock in which a thread is, from 0, by its key: it is in one at most."""
        return {step.thread: number for number, cycle in enumerate(self.deadlocks) for step in cycle}

    @cached_property
    def _graph(self) -> _Graph:
        holders: Dict[int, Collection[Key]] = {}
        awaited: Dict[Key, int] = {}
        for key, wait in self.waits.items():
            owners = blockers(wait)
            if not owners:
                continue
            held: Collection[Key] = self._owners[owners].by_key
            # A thread is its own only contradiction: it cannot wait for what it owns.
            held = tuple(other for other in held if other != key) if key in held else held
            if held:
                # Locks of the same owners are one lock here.
                awaited[key] = id(held)
                holders[id(held)] = held
        found = cycles(awaited, holders)
        return _Graph(found, ways_into(found, awaited, holders))

    def _by_key(self, owners: Sequence[WaitOwner]) -> _Owners:
        by_key: Dict[Key, WaitOwner] = {}
        for owner in owners:
            by_key.setdefault(self._key(owner), owner)
        waiting = (owner for key, owner in by_key.items() if key in self.waits)
        return _Owners(by_key, next(waiting, owners[0]))

    def inferred(self, cycle: Cycle) -> bool:
        """Returns whether a step of a deadlock is inferred and not proved."""
        return any(is_inferred(item) for step in cycle for item in self.waits[step.thread].awaited)

    def contradictions(self, cycle: Cycle) -> Status:
        """Returns what contradicts the waits of a deadlock, or their threads."""
        waits = [self.waits[step.thread] for step in cycle]
        found = [item.status for wait in waits for item in wait.awaited]
        found += [each for wait in waits for each in (wait.status, wait.thread.status)]
        return status(*(item for item in status(*found) if item.code in _DISAGREES))

    def doubts(self, cycle: Cycle) -> Status:
        """Returns what is doubtful about a deadlock: an inferred step, and contradictions."""
        inferred = StatusCode.UNSURE if self.inferred(cycle) else None
        return status(self.contradictions(cycle), inferred)

    def sentence(self, cycle: Cycle) -> str:
        """Returns the sentence for a deadlock; of more than MAX_TOLD threads it counts the others."""
        pairs = list(zip(cycle, (*cycle[1:], cycle[0])))
        left_out = len(pairs) - MAX_TOLD
        parts: List[str] = []
        process: object = None
        for step, following in pairs if left_out <= 0 else (*pairs[: MAX_TOLD - 1], pairs[-1]):
            wait = self.waits[step.thread]
            same = wait.thread.space == process
            who = f"thread {wait.thread.tid}" if same else _thread(wait)
            process = wait.thread.space
            parts.append(f"{who} waits for {described(wait)}, which thread {following.thread[1]} holds")
        if left_out > 0:
            parts.insert(-1, text.counted(left_out, "more thread"))
        how = ", by inference" if self.inferred(cycle) else ""
        return f"Deadlock{how}: " + "; ".join(parts) + "."


def key_of(wait: ThreadWait) -> Key:
    return wait.thread.space.pid, wait.thread.tid


def blockers(wait: ThreadWait) -> Tuple[WaitOwner, ...]:
    """Returns the threads without which a wait cannot end."""
    several = len(wait.awaited) > 1 and any(item.mode == words.FOR_ANY for item in wait.awaited)
    owners = (owner for item in wait.awaited for owner in item.owners if owner.tid is not None)
    return () if several else tuple(dict.fromkeys(owners))


def is_inferred(awaited: Awaited) -> bool:
    unsure = has_status(awaited.status, StatusCode.UNSURE)
    return unsure or awaited.known in (words.ON_STACK, words.BY_EXCLUSION)


def _end(wait: ThreadWait) -> str:
    """Returns the end of a chain whose last thread waits for something without an owner that is a thread."""
    first = wait.awaited[0]
    if first.kind in _ENDS:
        return _ENDS[first.kind]
    return _OWNERLESS.get(first.ownership, words.ENDS_UNKNOWN)


def described(wait: ThreadWait) -> str:
    """Returns what a thread waits for, in words."""
    first = wait.awaited[0]
    kind = f"{first.kind} that has to end:" if first.kind == words.JOINED_THREAD else first.kind
    name = f" ({first.name})" if first.name else ""
    return f"{kind}{'' if first.address is None else f' {first.address:#x}'}{name}"


def _thread(wait: ThreadWait) -> str:
    space = wait.thread.space
    return f"thread {wait.thread.tid} of {text.process_label(space.known_name, space.pid)}"
