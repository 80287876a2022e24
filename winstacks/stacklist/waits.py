# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds out which thread waits for which lock, and which threads wait for each other.

    waits = Waits(image)
    for stack in ...: waits.add_stack(stack)          # stacks of threads
    graph = waits.graph(LockLister(image, databases))

The stack of a thread shows that it waits for a lock: a function that takes locks is on it. Which one: the
memory of a process says so (`waits/userside.py`: the table in the PEB, chains of wait blocks, handles), and a
fast resource lists its waiters. Without that, the lock is identified by its address in the part of the stack
that the function and its callees use; else, where only one lock is possible, by exclusion.

SRW locks and condition variables have no owner, and no list contains them: a thread that waits for one is
named, and is part of no cycle. Such a lock or variable is found through a word on the stack that points to
it: its value leads back to the stack of a thread that waits in the same way, and an SRW lock has the bits
Locked and Waiting set. Source: _RTL_SRWLOCK (public symbols: Locked, Waiting, Waking and MultipleShared are
its low four bits), RTL_CONDITION_VARIABLE ("winnt.h": one pointer). That the other bits lead to a wait block
on the stack of a waiting thread is inferred; the content of the block is not read. A word that lies on such a
stack is not taken for a condition variable, because wait blocks point to each other.
"""

from __future__ import annotations

import bisect
from functools import cached_property
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..columns import words
from ..columns.words import (
    BY_ARGUMENT,
    BY_CHAIN,
    BY_HANDLE,
    BY_KEY,
    BY_REGISTER,
    BY_TABLE,
    CRITICAL_SECTION,
    KERNEL,
    USER,
    WAITING,
    WOW64,
)
from ..locks.lister import LockLister
from ..locks.lock import Lock
from ..memory.decode.ranges import flatten
from ..memory.decode.status import Status, has_status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..process.spaces import AddressSpaces
from ..process.threadids import ThreadOwner
from ..tracedb.gap import Gap
from ..waits.decode.waitgraph import Cycle, cycles
from ..waits.userside import UserSide, UserSides, UserStack
from .stack import StackRecord

PROVEN = {
    BY_TABLE: "the table of waiting threads has the thread and the lock",
    BY_CHAIN: "the word of the lock leads to a wait block on the stack of the thread",
    BY_HANDLE: "the thread waits for the event of the lock, by its handle",
    BY_KEY: "the thread waits for a keyed event whose key is the lock",
    BY_REGISTER: "a register that ntdll keeps for the lock has its address, and its members agree",
    BY_ARGUMENT: "the system call's argument and a wait block on the stack name the lock",
}
"""Texts for waits that the memory of a process proves, by words of Known."""

ON_STACK = "the address of the lock is on the stack of the waiting thread"
LISTED = "the resource lists the waiting thread"
EXCLUDED = "of all locks there, only this one is held by another thread and has a waiter"
UNKNOWN = "the lock is unknown"
SRW_LOCK = "an SRW lock, which does not record its owner"
SRW_LOCK_AT = "the SRW lock {:#x}, which does not record its owner"
CONDITION_VARIABLE = "a condition variable, which nobody holds"
CONDITION_VARIABLE_AT = "the condition variable {:#x}, which nobody holds"

MAX_WAITING = 1 << 14
"""The most waiting threads that are stored."""
MAX_LOCKS = 1 << 16
"""The most locks that are stored: locks that are held, or for which a thread waits."""
_MOST_STACK = 1 << 14
"""The most bytes of a stack that are searched for the address of a lock."""
_HOME = 4
"""Number of pointers above a frame in which the called function may store its arguments."""

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
"""Prefixes of the functions that take critical sections, resources or SRW locks, or that wait on a condition
variable."""

_IN_PROCESSES: Dict[Tuple[str, ...], str] = {
    _SECTION: UNKNOWN,
    _SRW_LOCK: SRW_LOCK,
    _CONDITION_VARIABLE: CONDITION_VARIABLE,
}
"""The `how` of a thread that waits in one of these functions, unless more is found."""

_OWNERLESS: Dict[str, Tuple[str, int]] = {
    SRW_LOCK: (SRW_LOCK_AT, 3),
    CONDITION_VARIABLE: (CONDITION_VARIABLE_AT, 0),
}
"""The text for a lock or variable whose address is found, and the low bits that are set while a thread
waits."""
_LOW_BITS = 0xF
_MOST_WORDS = 1 << 16
"""The most words that are examined for locks without an owner, in all stacks together."""

ThreadKey = Tuple[Optional[int], int]
"""PID and TID of a thread."""
LockKey = Tuple[int, Optional[int]]
"""Address of the _EPROCESS (0 for the kernel) and address of the lock."""


class Waiting(NamedTuple):
    """A thread that waits for a lock.

    Attributes:
        space: address space of the lock: the kernel, or a half of the thread's process
        process: name of the thread's process
        function: the function that takes the lock, as module!function
        low, high: stack range of that function and its callees; `high` is exclusive
        sure: whether the walk reached the function without a guess
        trace_id: TraceId of the stack
        how: kind of the lock before the search: UNKNOWN, SRW_LOCK or CONDITION_VARIABLE
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
    stack: StackRecord


class Wait(NamedTuple):
    """A waiting thread and its lock.

    Attributes:
        waiting: the thread; None if only the lock's list names it
        key: PID and TID
        lock: key of the lock, None if unknown
        how: how the lock was found
        sure: whether the wait is proved, not inferred
    """

    waiting: Optional[Waiting]
    key: ThreadKey
    lock: Optional[LockKey]
    how: str
    sure: bool


class WaitGraph(NamedTuple):
    """The locks of an image, their holders, and the threads that wait.

    Attributes:
        locks: locks that are held, or for which a thread waits
        holders: the threads that hold each lock
        cycles: threads that wait for each other in a circle: deadlocks
        names: process name of each thread
        gaps: number of gaps: places where locks may be missing
        doubts: contradictions of tables in which waiting threads may be missing
        cut: whether there are more than MAX_LOCKS locks or MAX_WAITING threads
    """

    locks: Dict[LockKey, Lock]
    holders: Dict[LockKey, Tuple[ThreadKey, ...]]
    waits: List[Wait]
    cycles: List[Cycle]
    names: Dict[ThreadKey, str]
    gaps: int
    doubts: List[Status]
    cut: bool


class Waits:
    """Finds the lock of each waiting thread.

    Args:
        sides: reads the waits of processes from their memory; None: only stacks are used
    """

    def __init__(self, image: Image, sides: Optional[UserSides] = None) -> None:
        self._image = image
        self._sides = sides
        self._places: Dict[AddressSpace, Dict[Optional[int], UserStack]] = {}
        self._waiting: List[Waiting] = []
        self._cut = False
        self._words = 0

    def add_stack(self, stack: StackRecord) -> None:
        """Stores a stack if its thread waits for a lock, and where each thread stands in its process."""
        thread = stack.thread
        if thread is not None and stack.kind in (USER, WOW64) and stack.entry is not None:
            place = UserStack(thread, stack.entry, stack.walked[0].registers if stack.walked else None)
            self._places.setdefault(stack.space, {}).setdefault(stack.tid, place)
        if thread is None or thread.running or not stack.walked or stack.tid is None:
            return
        details = [frame.details for frame in stack.frames]
        names = [(detail.function or "").lower() if _in_windows(detail.module) else "" for detail in details]
        ways: Dict[Tuple[str, ...], str] = {_RESOURCE: UNKNOWN} if stack.kind == KERNEL else _IN_PROCESSES
        # The innermost function decides: when its sleep on a condition variable ends, a thread takes its lock
        # again.
        prefixes = next((way for name in names for way in ways if name.startswith(way)), None)
        if prefixes is None:
            return
        last = max(number for number, name in enumerate(names) if name.startswith(prefixes))
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
                f"{details[last].module}!{details[last].function}",
                stack.walked[0].sp,
                above + _HOME * space.pointer_size,
                all(walked.sure for walked in stack.walked[: last + 1]),
                stack.trace_id,
                ways[prefixes],
                stack,
            )
        )

    def graph(self, lister: LockLister, pids: Sequence[int] = ()) -> WaitGraph:
        """Returns the locks, their holders and the waiting threads.

        Args:
            pids: PIDs to list, 0 for the kernel; all when empty
        """
        graph = WaitGraph({}, {}, [], [], {}, 0, [], self._cut)
        gaps, cut = 0, self._cut
        for space in AddressSpaces.list_spaces(self._image, pids):
            space_locks: Dict[int, Lock] = {}
            for lock in self._image.possible(lister.list_locks(space)):
                if isinstance(lock, Gap):
                    gaps += 1
                elif lock.address is not None and (lock.held or lock.waiters):
                    if len(graph.locks) + len(space_locks) < MAX_LOCKS:
                        space_locks[lock.address] = lock
                    else:
                        cut = True
            self._space(space, space_locks, graph)
        waits = {wait.key: wait.lock for wait in graph.waits if wait.lock is not None}
        return graph._replace(cycles=cycles(waits, graph.holders), gaps=gaps, cut=cut)

    @cached_property
    def _stacks(self) -> Dict[Tuple[int, str, str], Tuple[List[int], List[int]]]:
        """Disjoint stack ranges, as starts and ends, by process, bitness and way to wait."""
        ranges: Dict[Tuple[int, str, str], List[Tuple[int, int, None]]] = {}
        for waiter in self._waiting:
            ranges.setdefault(_way(waiter), []).append((waiter.low, waiter.high, None))
        disjoint = {key: flatten(spans) for key, spans in ranges.items()}
        return {
            key: ([low for low, *_ in entry], [high for _, high, _ in entry])
            for key, entry in disjoint.items()
        }

    def _space(self, space: AddressSpace, space_locks: Dict[int, Lock], graph: WaitGraph) -> None:
        """Adds the locks of an address space, and the threads that wait for them."""
        place = _place(space)
        waiting_here = any(_is_in(waiting, space) for waiting in self._waiting)
        places = self._places.get(space, {}) if waiting_here else {}
        side = self._sides.of_half(space, list(places.values())) if self._sides and places else None
        if side is not None:
            graph.doubts.append(side.waits.status)
        listed = set()
        for address, lock in space_locks.items():
            key = place, address
            graph.locks[key] = lock
            graph.holders[key] = tuple(_holders(lock, graph.names))
            for owner in lock.owners:
                if owner.kind == WAITING and owner.owner is not None:
                    waiter = _thread(owner.owner, graph.names)
                    listed.add(waiter)
                    graph.waits.append(Wait(None, waiter, key, LISTED, True))
        for waiting in self._waiting:
            if _is_in(waiting, space) and waiting.key not in listed:
                graph.names[waiting.key] = waiting.process
                proven = None if side is None else _proven(waiting, side, place, graph)
                graph.waits.append(proven or self._wait(waiting, place, space_locks, graph.holders))

    def _wait(
        self,
        waiting: Waiting,
        place: int,
        space_locks: Dict[int, Lock],
        holders: Dict[LockKey, Tuple[ThreadKey, ...]],
    ) -> Wait:
        """Returns which of the locks of an address space a thread waits for."""
        if waiting.how != UNKNOWN:
            return Wait(waiting, waiting.key, None, self._ownerless(waiting), waiting.sure)
        # The holder of a lock does not wait for it: both kinds of lock can be taken again by their owner.
        possible = [
            address
            for address, lock in space_locks.items()
            if waiting.key not in holders[place, address] and lock.held is not False
        ]
        on_stack = [address for address in self._on_stack(waiting) if address in space_locks]
        named = [address for address in possible if address in on_stack]
        if len(named) > 1:
            named = [address for address in named if space_locks[address].waiters]
        if len(named) == 1:
            return Wait(waiting, waiting.key, (place, named[0]), ON_STACK, waiting.sure)
        awaited = [address for address in possible if space_locks[address].waiters]
        if not named and len(awaited) == 1:
            return Wait(waiting, waiting.key, (place, awaited[0]), EXCLUDED, False)
        return Wait(waiting, waiting.key, None, UNKNOWN, False)

    def _ownerless(self, waiting: Waiting) -> str:
        """Returns the text for the ownerless lock of a thread, with its address if only one is possible."""
        text, bits = _OWNERLESS[waiting.how]
        memory, addresses = self._image.memory(waiting.space), set()
        for address in dict.fromkeys(self._on_stack(waiting)):
            if not address or self._words >= _MOST_WORDS or (not bits and self._keeps(waiting, address)):
                continue
            self._words += 1
            word = memory.pointer(address)
            if word is not None and word & bits == bits and self._keeps(waiting, word & ~_LOW_BITS):
                addresses.add(address)
        return text.format(*addresses) if len(addresses) == 1 else waiting.how

    def _keeps(self, waiting: Waiting, address: int) -> bool:
        """Returns whether an address lies in the stack range of a thread that waits in the same way."""
        lows, highs = self._stacks[_way(waiting)]
        place = bisect.bisect_right(lows, address) - 1
        return place >= 0 and address < highs[place]

    def _on_stack(self, waiting: Waiting) -> Iterator[int]:
        """Yields the pointers in the stack range of the functions that take a lock."""
        size = waiting.space.pointer_size
        low = waiting.low & -size
        length = min(max(waiting.high - low, 0), _MOST_STACK) & -size
        data = self._image.memory(waiting.space).read(low, length) if length else None
        for at in range(0, len(data or b""), size):
            yield int.from_bytes((data or b"")[at : at + size], "little")


def _is_in(waiting: Waiting, space: AddressSpace) -> bool:
    """Returns whether a thread waits for a lock of an address space."""
    return _place(waiting.space) == _place(space) and waiting.space.arch == space.arch


def _proven(waiting: Waiting, side: UserSide, place: int, graph: WaitGraph) -> Optional[Wait]:
    """Returns the wait of a thread that the memory of its process proves; None if it proves none.

    A critical section that no list has is added to the graph.
    """
    answers = side.answers(waiting.key[1])
    if len(answers) != 1:
        return None
    (answer,) = answers
    if answer.kind == words.SRW_LOCK:
        return Wait(waiting, waiting.key, None, SRW_LOCK_AT.format(answer.address), True)
    if answer.kind == words.CONDITION_VARIABLE:
        return Wait(waiting, waiting.key, None, CONDITION_VARIABLE_AT.format(answer.address), True)
    if answer.kind != CRITICAL_SECTION:
        return None
    key = place, answer.address
    if key not in graph.locks and len(graph.locks) < MAX_LOCKS:
        owner = ThreadOwner(answer.owner, waiting.space.pid, waiting.process) if answer.owner else None
        graph.locks[key] = Lock(
            waiting.space, answer.address, CRITICAL_SECTION, owner=owner, held=owner is not None
        )
        graph.holders[key] = tuple(_holders(graph.locks[key], graph.names))
    return Wait(waiting, waiting.key, key, PROVEN.get(answer.known, answer.known), True)


def _in_windows(module: Optional[str]) -> bool:
    return module is not None and module.lower() in ("nt", "ntdll")


def _place(space: AddressSpace) -> int:
    return 0 if space.kernel else space.eprocess


def _way(waiting: Waiting) -> Tuple[int, str, str]:
    return _place(waiting.space), waiting.space.arch, waiting.how


def lock_key(lock: Lock) -> LockKey:
    """Returns the key of a lock."""
    return _place(lock.space), lock.address


def _holders(lock: Lock, names: Dict[ThreadKey, str]) -> Iterator[ThreadKey]:
    """Yields the threads that hold a lock, each once."""
    owners = [lock.owner, *(owner.owner for owner in lock.owners if owner.kind != WAITING)]
    if lock.type == CRITICAL_SECTION:
        owners = [owner for owner in owners if owner is not None and owner.pid == lock.space.pid]
    keys = [
        _thread(owner, names)
        for owner in owners
        if owner is not None and not has_status(owner.status, StatusCode.NO_THREAD)
    ]
    yield from dict.fromkeys(keys)


def _thread(owner: ThreadOwner, names: Dict[ThreadKey, str]) -> ThreadKey:
    key = owner.pid, owner.tid
    names.setdefault(key, owner.process or "")
    return key
