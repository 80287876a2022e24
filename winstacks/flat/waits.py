# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which thread waits for which lock, and which threads wait for each other.

    waits = Waits(image)
    for stack in ...: waits.see(stack)          # stacks of threads
    graph = waits.graph(LockLister(image, databases))

Windows keeps no list of the threads that wait for a critical section, and of those that wait for a resource
only the fast ones have one. That a thread waits for some lock is known by its stack: a function that takes
locks is on it. For which one it waits is known by the lock's address among what that function and those that
it called keep on the stack; else, where only one lock is possible, by exclusion.

SRW locks and condition variables have no owner, and no list has them: who waits for one is named, and is in
no cycle. Either is found where a word on the stack leads to it: it leads back to the stack of a thread that
waits in the same way, and an SRW lock has the bits Locked and Waiting. Source: _RTL_SRWLOCK (public symbols:
Locked, Waiting, Waking and MultipleShared are its low four bits), RTL_CONDITION_VARIABLE ("winnt.h": one
pointer). That the rest leads to a wait block on the stack of a waiting thread is inferred; what the block
holds is not read. A word on such a stack is no condition variable: wait blocks lead to each other.
"""

from __future__ import annotations

import bisect
from functools import cached_property
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..columns.words import CRITICAL_SECTION, KERNEL, WAITING
from ..locks.lister import LockLister
from ..locks.lock import Lock, LockGap
from ..memory.decode.ranges import flatten
from ..memory.decode.status import Word, says
from ..memory.image import AddressSpace, Image
from ..process.spaces import AddressSpaces
from ..process.threadids import ThreadOwner
from .decode.waitgraph import Cycle, cycles
from .stack import FlatStack

ON_STACK = "its address is on the stack of the waiting thread"
LISTED = "the resource lists the thread"
EXCLUDED = "it is the only lock there that another thread holds and that somebody waits for"
UNKNOWN = "for which lock is not known"
SRW_LOCK = "an SRW lock, which keeps no owner"
SRW_LOCK_AT = "the SRW lock {:#x}, which keeps no owner"
CONDITION_VARIABLE = "a condition variable, which nobody holds"
CONDITION_VARIABLE_AT = "the condition variable {:#x}, which nobody holds"

MAX_WAITING = 1 << 14
"""Waiting threads that are kept."""
MAX_LOCKS = 1 << 16
"""Locks that are kept: those that are held, or that somebody waits for."""
_MOST_STACK = 1 << 14
"""Bytes of a stack that are searched for the address of a lock."""
_HOME = 4
"""Pointers above a frame in which the called function may keep its arguments."""

_SECTION = (
    *("rtlentercriticalsection", "rtlpentercriticalsection", "rtlpwaitoncriticalsection"),
    "rtlpwaitforcriticalsection",
)
_RESOURCE = (
    *("exacquireresource", "exacquireshared", "expacquireresource", "expwaitforresource"),
    *("exenterpriorityregionandacquire", "exentercriticalregionandacquire", "exacquirefastresource"),
)
_SRW_LOCK = ("rtlacquiresrwlock", "rtlpacquiresrwlock")
_CONDITION_VARIABLE = ("rtlsleepconditionvariable",)
"""How the functions begin that take critical sections, resources and SRW locks, or wait for a variable."""

_IN_PROCESSES: Dict[Tuple[str, ...], str] = {
    _SECTION: UNKNOWN,
    _SRW_LOCK: SRW_LOCK,
    _CONDITION_VARIABLE: CONDITION_VARIABLE,
}
"""What is said of who waits in one of these functions, unless more is found out."""

_OWNERLESS: Dict[str, Tuple[str, int]] = {
    SRW_LOCK: (SRW_LOCK_AT, 3),
    CONDITION_VARIABLE: (CONDITION_VARIABLE_AT, 0),
}
"""What is said of one whose address is known, and which of its low bits are set while somebody waits."""
_LOW_BITS = 0xF
_MOST_WORDS = 1 << 16
"""Words that are looked at for something without an owner, in all stacks together."""

ThreadKey = Tuple[Optional[int], int]
"""PID and TID."""
LockKey = Tuple[int, Optional[int]]
"""_EPROCESS (0 for the kernel) and address."""


class Waiting(NamedTuple):
    """A thread that waits for some lock.

    Attributes:
        space: where the lock is: the kernel, or a half of the thread's process
        process: name of the thread's process
        key: PID and TID
        function: which function takes the lock
        low, high: what that function and those that it called keep on the stack
        sure: whether no guess led to the function
        trace_id: of the stack
        how: what is said of the lock where nothing else is found out: UNKNOWN, SRW_LOCK, CONDITION_VARIABLE
    """

    space: AddressSpace
    process: str
    key: ThreadKey
    function: str
    low: int
    high: int
    sure: bool
    trace_id: str
    how: str


class Wait(NamedTuple):
    """A thread that waits, and for what.

    Attributes:
        waiting: the thread; None where only the lock knows it
        key: PID and TID
        lock: the lock, None where it is not known
        how: how that is known
        sure: whether that is no inference
    """

    waiting: Optional[Waiting]
    key: ThreadKey
    lock: Optional[LockKey]
    how: str
    sure: bool


class WaitGraph(NamedTuple):
    """Who waits for whom.

    Attributes:
        locks: those that are held, or that somebody waits for
        holders: who holds them
        waits: who waits
        cycles: threads that wait for each other: deadlocks
        names: the process of each thread
        gaps: how many places there are where locks may be missing
        cut: whether there are more than MAX_LOCKS locks or MAX_WAITING threads
    """

    locks: Dict[LockKey, Lock]
    holders: Dict[LockKey, Tuple[ThreadKey, ...]]
    waits: List[Wait]
    cycles: List[Cycle]
    names: Dict[ThreadKey, str]
    gaps: int
    cut: bool


class Waits:
    """Finds out who waits for which lock.

    Args:
        image: the image
    """

    def __init__(self, image: Image) -> None:
        self._image = image
        self._waiting: List[Waiting] = []
        self._cut = False
        self._words = 0

    def see(self, stack: FlatStack) -> None:
        """Takes note of a stack if its thread waits for a lock."""
        thread = stack.thread
        if thread is None or thread.running or not stack.walked or stack.tid is None:
            return
        where = [frame.details for frame in stack.frames]
        names = [(each.function or "").lower() if _in_windows(each.module) else "" for each in where]
        known: Dict[Tuple[str, ...], str] = {_RESOURCE: UNKNOWN} if stack.kind == KERNEL else _IN_PROCESSES
        # The innermost of them waits: who sleeps on a variable takes its lock again.
        starts = next((each for name in names for each in known if name.startswith(each)), None)
        if starts is None:
            return
        last = max(number for number, name in enumerate(names) if name.startswith(starts))
        if len(self._waiting) >= MAX_WAITING:
            self._cut = True
            return
        above = stack.walked[last + 1].sp if last + 1 < len(stack.walked) else stack.walked[last].sp
        space = self._image.kernel if stack.kind == KERNEL else stack.space
        self._waiting.append(
            Waiting(
                space,
                thread.space.process,
                (thread.space.pid, stack.tid),
                f"{where[last].module}!{where[last].function}",
                stack.walked[0].sp,
                above + _HOME * space.pointer_size,
                all(walked.sure for walked in stack.walked[: last + 1]),
                stack.trace_id,
                known[starts],
            )
        )

    def graph(self, lister: LockLister, pids: Sequence[int] = ()) -> WaitGraph:
        """Returns who waits for whom.

        Args:
            lister: lists locks
            pids: the processes wanted, 0 for the kernel; all when empty
        """
        found = WaitGraph({}, {}, [], [], {}, 0, self._cut)
        gaps, cut = 0, self._cut
        for space in AddressSpaces.list_spaces(self._image, pids):
            here: Dict[int, Lock] = {}
            for each in self._image.possible(lister.list_locks(space)):
                if isinstance(each, LockGap):
                    gaps += 1
                elif each.address is not None and (each.held or _waiters(each)):
                    if len(found.locks) + len(here) < MAX_LOCKS:
                        here[each.address] = each
                    else:
                        cut = True
            self._space(space, here, found)
        waits = {wait.key: wait.lock for wait in found.waits if wait.lock is not None}
        return found._replace(cycles=cycles(waits, found.holders), gaps=gaps, cut=cut)

    @cached_property
    def _stacks(self) -> Dict[Tuple[int, str, str], Tuple[List[int], List[int]]]:
        """Starts and ends of what threads that wait in one way keep, disjoint, by process and bitness."""
        found: Dict[Tuple[int, str, str], List[Tuple[int, int, None]]] = {}
        for each in self._waiting:
            found.setdefault(_way(each), []).append((each.low, each.high, None))
        flat = {key: flatten(spans) for key, spans in found.items()}
        return {key: ([low for low, *_ in each], [high for _, high, _ in each]) for key, each in flat.items()}

    def _space(self, space: AddressSpace, here: Dict[int, Lock], found: WaitGraph) -> None:
        """Adds the locks of a space, and who waits for them."""
        place = _place(space)
        listed = set()
        for address, each in here.items():
            key = place, address
            found.locks[key] = each
            found.holders[key] = tuple(_holders(each, found.names))
            for owner in each.owners:
                if owner.kind == WAITING and owner.owner is not None:
                    waiter = _thread(owner.owner, found.names)
                    listed.add(waiter)
                    found.waits.append(Wait(None, waiter, key, LISTED, True))
        for waiting in self._waiting:
            same = _place(waiting.space) == place and waiting.space.arch == space.arch
            if same and waiting.key not in listed:
                found.names[waiting.key] = waiting.process
                found.waits.append(self._wait(waiting, place, here, found.holders))

    def _wait(
        self,
        waiting: Waiting,
        place: int,
        here: Dict[int, Lock],
        holders: Dict[LockKey, Tuple[ThreadKey, ...]],
    ) -> Wait:
        """Returns for which of the locks of a space a thread waits."""
        if waiting.how != UNKNOWN:
            return Wait(waiting, waiting.key, None, self._ownerless(waiting), waiting.sure)
        # Who holds a lock does not wait for it: both kinds may be taken again by their owner.
        possible = [
            address
            for address, each in here.items()
            if waiting.key not in holders[place, address] and each.held is not False
        ]
        seen = [address for address in self._on_stack(waiting) if address in here]
        named = [address for address in possible if address in seen]
        if len(named) > 1:
            named = [address for address in named if _waiters(here[address])]
        if len(named) == 1:
            return Wait(waiting, waiting.key, (place, named[0]), ON_STACK, waiting.sure)
        waited = [address for address in possible if _waiters(here[address])]
        if not named and len(waited) == 1:
            return Wait(waiting, waiting.key, (place, waited[0]), EXCLUDED, False)
        return Wait(waiting, waiting.key, None, UNKNOWN, False)

    def _ownerless(self, waiting: Waiting) -> str:
        """Returns for what a thread waits that has no owner, with its address where one alone is possible."""
        said, bits = _OWNERLESS[waiting.how]
        memory, found = self._image.memory(waiting.space), set()
        for address in dict.fromkeys(self._on_stack(waiting)):
            if not address or self._words >= _MOST_WORDS or (not bits and self._keeps(waiting, address)):
                continue
            self._words += 1
            word = memory.pointer(address)
            if word is not None and word & bits == bits and self._keeps(waiting, word & ~_LOW_BITS):
                found.add(address)
        return said.format(*found) if len(found) == 1 else waiting.how

    def _keeps(self, waiting: Waiting, address: int) -> bool:
        """Returns whether an address is in what a thread keeps that waits in the same way."""
        lows, highs = self._stacks[_way(waiting)]
        place = bisect.bisect_right(lows, address) - 1
        return place >= 0 and address < highs[place]

    def _on_stack(self, waiting: Waiting) -> Iterator[int]:
        """Yields the pointers on the part of a stack that belongs to the functions that take a lock."""
        size = waiting.space.pointer_size
        low = waiting.low & -size
        length = min(max(waiting.high - low, 0), _MOST_STACK) & -size
        data = self._image.memory(waiting.space).read(low, length) if length else None
        for at in range(0, len(data or b""), size):
            yield int.from_bytes((data or b"")[at : at + size], "little")


def _in_windows(module: Optional[str]) -> bool:
    return module is not None and module.lower() in ("nt", "ntdll")


def _place(space: AddressSpace) -> int:
    return 0 if space.kernel else space.eprocess


def _way(waiting: Waiting) -> Tuple[int, str, str]:
    return _place(waiting.space), waiting.space.arch, waiting.how


def _waiters(each: Lock) -> int:
    """Returns how many threads wait for a lock, as far as it says so."""
    return (each.waiting_shared or 0) + (each.waiting_exclusive or 0)


def _holders(each: Lock, names: Dict[ThreadKey, str]) -> Iterator[ThreadKey]:
    """Yields the threads that hold a lock, each once."""
    owners = [each.owner, *(owner.owner for owner in each.owners if owner.kind != WAITING)]
    if each.type == CRITICAL_SECTION:
        owners = [owner for owner in owners if owner is not None and owner.pid == each.space.pid]
    known = [
        _thread(owner, names)
        for owner in owners
        if owner is not None and not says(owner.status, Word.NO_THREAD)
    ]
    yield from dict.fromkeys(known)


def _thread(owner: ThreadOwner, names: Dict[ThreadKey, str]) -> ThreadKey:
    key = owner.pid, owner.tid
    names.setdefault(key, owner.process or "")
    return key
