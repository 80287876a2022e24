# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Follows a waiting thread to the owner of what it waits for, to what that owner waits for, and so on.

chains = Chains(processes, pids)
chain = chains.follow(wait)          # its steps, and the word for its end
for cycle in chains.deadlocks: sentence(cycle, chains)
"""

from __future__ import annotations

from functools import cached_property
from typing import Collection, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..columns import words
from ..memory.decode import text
from ..memory.decode.memo import Memo
from ..memory.decode.status import Status, has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from .decode.waitgraph import Cycle, cycles
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


class ChainStep(NamedTuple):
    """A step of a chain: an owner, and its wait if it waits."""

    owner: WaitOwner
    wait: Optional[ThreadWait]


class OwnerChain(NamedTuple):
    """The steps behind a waiting thread, and where they end: a word of `words.CHAIN_ENDS`."""

    steps: Tuple[ChainStep, ...]
    end: str


class Chains:
    """The waits of an image as a graph.

    Args:
        pids: the processes that were selected; all if empty
        tids: the threads that were read; all if empty
    """

    def __init__(
        self, processes: Iterable[ProcessWaits], pids: Collection[int] = (), tids: Collection[int] = ()
    ) -> None:
        self._pids, self._tids = frozenset(pids), frozenset(tids)
        self.waits: Dict[Key, ThreadWait] = {}
        self._ends: Dict[Key, str] = {}
        self._examined: Set[Optional[int]] = set()
        self._incomplete: Set[Optional[int]] = set()
        for process in processes:
            pid = process.space.pid
            self._examined.add(pid)
            if process.status:
                self._incomplete.add(pid)
            self._ends.update({(pid, tid): end for tid, end in process.others.items()})
            for wait in process.waits:
                self.waits.setdefault((pid, wait.thread.tid), wait)
        self._keys = {key[1]: key for key in (*self._ends, *self.waits)}

    def follow(self, wait: ThreadWait) -> OwnerChain:
        """Returns the chain behind a waiting thread."""
        key = wait.thread.space.pid, wait.thread.tid
        seen: Set[Key] = {key}
        steps: List[ChainStep] = []
        current = wait
        while len(steps) < MAX_STEPS:
            blocking = blockers(current)
            if not blocking:
                return OwnerChain(tuple(steps), _end(current))
            owner = self._worst(blocking, seen)
            key = self._key(owner)
            following = self.waits.get(key)
            steps.append(ChainStep(owner, following))
            if key in seen:
                return OwnerChain(tuple(steps), words.DEADLOCK)
            if following is None:
                return OwnerChain(tuple(steps), self._end_of(owner))
            seen.add(key)
            current = following
        return OwnerChain(tuple(steps), words.ENDS_UNKNOWN)

    def reached(self, wait: ThreadWait) -> Set[Key]:
        """Returns the keys of a waiting thread and of the threads in the chain behind it."""
        owners = (self._key(step.owner) for step in self.follow(wait).steps)
        return {(wait.thread.space.pid, wait.thread.tid), *owners}

    def _worst(self, owners: Sequence[WaitOwner], seen: Set[Key]) -> WaitOwner:
        """Returns the owner to follow: one that closes a circle, else one that waits, else the first."""
        closing = [owner for owner in owners if self._key(owner) in seen]
        waiting = [owner for owner in owners if self._key(owner) in self.waits]
        return (closing or waiting or list(owners))[0]

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
        if self._tids and owner.tid not in self._tids:
            return words.ENDS_LEFT_OUT
        if owner.pid in self._examined:
            return words.ENDS_ABSENT if owner.pid in self._incomplete else words.ENDS_EXITED
        return words.ENDS_LEFT_OUT if self._pids and owner.pid not in self._pids else words.ENDS_ABSENT

    @cached_property
    def deadlocks(self) -> List[Cycle]:
        """Each group of threads that wait for each other in a circle, as a cycle of keys."""
        # Thousands of threads may wait for one lock with thousands of owners: they share the keys of these.
        keys: Memo[Tuple[WaitOwner, ...], Tuple[Key, ...]] = Memo(
            lambda owners: tuple(map(self._key, owners))
        )
        holders: Dict[int, Tuple[Key, ...]] = {}
        awaited: Dict[Key, int] = {}
        for key, wait in self.waits.items():
            held = keys[blockers(wait)]
            # A thread is its own only contradiction: it cannot wait for what it owns.
            held = tuple(other for other in held if other != key) if key in held else held
            if held:
                # Locks of the same owners are one lock here.
                awaited[key] = id(held)
                holders[id(held)] = held
        return cycles(awaited, holders)

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
        """Returns the sentence for a deadlock."""
        parts: List[str] = []
        process: object = None
        for step, following in zip(cycle, (*cycle[1:], cycle[0])):
            wait = self.waits[step.thread]
            same = wait.thread.space == process
            who = f"thread {wait.thread.tid}" if same else _thread(wait)
            process = wait.thread.space
            parts.append(f"{who} waits for {described(wait)}, which thread {following.thread[1]} holds")
        how = ", by inference" if self.inferred(cycle) else ""
        return f"Deadlock{how}: " + "; ".join(parts) + "."


def blockers(wait: ThreadWait) -> Tuple[WaitOwner, ...]:
    """Returns the threads without which a wait cannot end."""
    several = len(wait.awaited) > 1 and any(item.mode == words.FOR_ANY for item in wait.awaited)
    owners = (owner for item in wait.awaited for owner in item.owners if owner.tid is not None)
    return () if several else tuple(dict.fromkeys(owners))


def is_inferred(awaited: Awaited) -> bool:
    """Returns whether what a thread waits for is inferred."""
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
