# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The part of a page about waits: the rows of `windows.tracewaits`, and the locks that threads hold.

    held = HeldLocks()
    for space in ...: held.add(lister.list_locks(space))
    part = waits_part(waits.rows(), waits.chains, held)

A thing for which threads wait has a box in the drawings if a thread owns it, or if it is a listed lock.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

from ..columns import words
from ..columns.words import CRITICAL_SECTION, WAITING
from ..locks.lock import Listed, Lock
from ..memory.decode.status import text
from ..memory.decode.text import process_label
from ..process.threadids import ThreadOwner
from ..stacklist.threadwaits import WaitRow, unknown_waits
from ..tracedb.gap import Gap
from ..waits.chains import Chains, described, is_inferred
from ..waits.decode.waitgraph import Cycle
from ..waits.records import Awaited, LockKey, lock_key

MAX_SHOWN_LOCKS = 1 << 13
"""Greatest number of locks in a page; the page states how many more exist."""
MAX_SHOWN_WAITS = 1 << 14
"""Greatest number of waits in a page; the page states how many more exist."""

MAX_LOCKS = 1 << 16
"""The most locks that are stored."""


class HeldLocks:
    """The listed locks that threads hold, or for which they wait.

    Attributes:
        gaps: number of gaps: places where locks may be missing
        more: number of locks that are left out, because there are more than MAX_LOCKS
    """

    def __init__(self) -> None:
        self.locks: Dict[LockKey, Lock] = {}
        self.gaps = self.more = 0

    def add(self, listed: Iterable[Listed]) -> None:
        for lock in listed:
            if isinstance(lock, Gap):
                self.gaps += 1
            elif lock.address is not None and (lock.held or lock.waiters):
                self._add(lock_key(lock.space, lock.address), lock)

    def merge(self, other: HeldLocks) -> None:
        """Adds the locks of address spaces that follow."""
        for key, lock in other.locks.items():
            self._add(key, lock)
        self.gaps += other.gaps
        self.more += other.more

    def _add(self, key: LockKey, lock: Lock) -> None:
        if len(self.locks) < MAX_LOCKS:
            self.locks[key] = lock
        else:
            self.more += 1


def waits_part(rows: Iterable[WaitRow], chains: Chains, held: HeldLocks) -> Dict[str, Any]:
    """Returns the locks of the page, the waiting threads, and a sentence for each deadlock. `rows` are the
    rows of `windows.tracewaits`."""
    return _Part(rows, chains, held).data()


class _Part:
    def __init__(self, rows: Iterable[WaitRow], chains: Chains, held: HeldLocks) -> None:
        self._rows = [row for row in rows if row.awaited is not None]
        order = list(words.CHAIN_ENDS)
        self._rows.sort(key=lambda row: order.index(row.end))
        self._chains, self._held = chains, held
        self._threads: Dict[str, int] = {}
        self._numbers: Dict[LockKey, int] = {}
        self._locks: List[Dict[str, Any]] = []
        self._more = held.more

    def data(self) -> Dict[str, Any]:
        """Returns the data that `locks.js` draws."""
        awaited = {_key(row.awaited): row.awaited for row in self._rows if row.awaited is not None}
        # Things that threads are known to wait for come first.
        for key, thing in awaited.items():
            if key in self._held.locks or any(owner.tid is not None for owner in thing.owners):
                self._lock(key, thing)
        for key in self._held.locks:
            self._lock(key, None)
        waits = [self._wait(row, row.awaited) for row in self._rows[:MAX_SHOWN_WAITS] if row.awaited]
        found = [self._deadlock(cycle) for cycle in self._chains.deadlocks]
        return {
            "locks": self._locks,
            "more": self._more,
            "threads": list(self._threads),
            "waits": waits,
            "moreWaits": max(len(self._rows) - MAX_SHOWN_WAITS, 0),
            "cycles": found,
            "gaps": self._held.gaps,
            "unknown": unknown_waits(self._chains),
        }

    def _thread(self, process: Optional[str], pid: Optional[int], tid: Optional[int]) -> int:
        called = f"thread {tid} of {process_label(process, pid)}"
        return self._threads.setdefault(called, len(self._threads))

    def _lock(self, key: LockKey, thing: Optional[Awaited]) -> None:
        """Adds a lock with its holders: those that its own members name, or that the wait has found."""
        if key in self._numbers:
            return
        if len(self._locks) >= MAX_SHOWN_LOCKS:
            self._more += 1
            return
        self._numbers[key] = len(self._locks)
        lock = self._held.locks.get(key)
        owners = () if thing is None else thing.owners
        known = [owner for owner in owners if owner.tid is not None]
        threads = [*known, *(_holders(lock) if lock is not None else ())]
        holders = [self._thread(owner.process, owner.pid, owner.tid) for owner in threads]
        space = lock.space if lock is not None else thing.space if thing is not None else None
        called = described_thing(thing) if thing is not None else _listed(lock)
        self._locks.append(
            {
                "text": called + ("" if space is None or space.kernel else f" of {space.label}"),
                "process": "" if space is None else space.label,
                "waiters": "unknown" if lock is None or lock.waiters is None else lock.waiters,
                "holders": list(dict.fromkeys(holders)),
                "status": "" if lock is None else text(lock.status),
            }
        )

    def _wait(self, row: WaitRow, thing: Awaited) -> List[Any]:
        space = row.wait.thread.space
        thread = self._thread(space.known_name, space.pid, row.wait.thread.tid)
        number = -1 if thing.address is None else self._numbers.get(_key(thing), -1)
        how = "; ".join(filter(None, (words.KNOWN[thing.known], row.evidence, text(row.status))))
        return [
            thread,
            number,
            how,
            not is_inferred(thing),
            row.symbol or "",
            described_thing(thing),
            row.end,
        ]

    def _deadlock(self, cycle: Cycle) -> Dict[str, Any]:
        waits = [self._chains.waits[step.thread] for step in cycle]
        threads = []
        for wait in waits:
            space = wait.thread.space
            threads.append(self._thread(space.known_name, space.pid, wait.thread.tid))
        evidence = [words.KNOWN[wait.awaited[0].known] for wait in waits]
        evidence.append(text(self._chains.contradictions(cycle)))
        return {
            "text": self._chains.sentence(cycle),
            "inferred": self._chains.inferred(cycle),
            "evidence": list(dict.fromkeys(filter(None, evidence))),
            "threads": threads,
            "locks": [self._numbers.get(_key(wait.awaited[0]), -1) for wait in waits],
            "things": [described(wait) for wait in waits],
        }


def described_thing(thing: Awaited) -> str:
    """Returns what a thread waits for, in words."""
    name = f" ({thing.name})" if thing.name else ""
    return f"{thing.kind}{'' if thing.address is None else f' {thing.address:#x}'}{name}"


def _listed(lock: Optional[Lock]) -> str:
    return "" if lock is None else f"{lock.type} {lock.address or 0:#x}"


def _key(thing: Optional[Awaited]) -> LockKey:
    return (0, None) if thing is None else lock_key(thing.space, thing.address)


def _holders(lock: Lock) -> List[ThreadOwner]:
    """Returns the threads that hold a lock by its own members."""
    owners = [lock.owner, *(owner.owner for owner in lock.owners if owner.kind != WAITING)]
    found = [owner for owner in owners if owner is not None]
    if lock.type == CRITICAL_SECTION:
        found = [owner for owner in found if owner.pid == lock.space.pid]
    return found
