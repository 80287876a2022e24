# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds out which thread waits for which lock that `windows.locks` lists.

    waits = Waits(image, sides)
    for stack in ...: waits.add_stack(stack)          # stacks of threads
    found = waits.of_locks(LockLister(image, databases), pids)

The stack of a thread shows that it waits for a lock: a function that takes locks is on it. Which one: the
memory of a process says so (`waits/userside.py`: the table in the PEB, chains of wait blocks, handles), and a
fast resource lists its waiters. Without that, the lock is identified by its address in the part of the stack
that the function and its callees use; else, where only one lock is possible, by exclusion.

A thread that waits for an SRW lock, or on a condition variable, waits for no listed lock.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..columns.words import (
    CONDITION_VARIABLE,
    CRITICAL_SECTION,
    KERNEL,
    SRW_LOCK,
    USER,
    WAITING,
    WOW64,
)
from ..locks.lister import LockLister
from ..locks.lock import Lock
from ..memory.decode.status import Status, has_status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..process.spaces import AddressSpaces
from ..tracedb.gap import Gap
from ..waits.decode.answer import Answer
from ..waits.userside import UserSide, UserSides, UserStack
from .stack import StackRecord

ON_STACK = "the address of the lock is on the stack of the waiting thread"
EXCLUDED = "of all locks there, only this one is held by another thread and has a waiter"
PROVEN = "the memory of the process proves the wait"
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
_SRW_LOCKS = ("rtlacquiresrwlock", "rtlpacquiresrwlock")
_CONDITION_VARIABLES = ("rtlsleepconditionvariable",)
"""Prefixes of the functions that take critical sections, resources or SRW locks, or that wait on a condition
variable."""

_IN_PROCESSES = (_SECTION, _SRW_LOCKS, _CONDITION_VARIABLES)

_UNLISTED = (SRW_LOCK, CONDITION_VARIABLE)
"""Kinds of locks that no list has."""

ThreadKey = Tuple[Optional[int], int]
"""PID and TID of a thread."""
LockKey = Tuple[int, Optional[int]]
"""Address of the _EPROCESS (0 for the kernel) and address of the lock."""


class Waiting(NamedTuple):
    """A thread that waits for a lock.

    Attributes:
        space: address space of the lock: the kernel, or a half of the thread's process
        process: name of the thread's process
        low, high: stack range of the function that takes the lock, and its callees; `high` is exclusive
        sure: whether the walk reached that function without a guess
    """

    space: AddressSpace
    process: str
    key: ThreadKey
    low: int
    high: int
    sure: bool
    stack: StackRecord


class Wait(NamedTuple):
    """A waiting thread and its lock.

    Attributes:
        waiting: the thread
        key: PID and TID
        lock: key of the lock
        how: how the lock was found
        sure: whether the wait is proved, not inferred
    """

    waiting: Waiting
    key: ThreadKey
    lock: LockKey
    how: str
    sure: bool


class _Found(NamedTuple):
    """Threads whose stacks show that they wait for a lock.

    Attributes:
        holders: the threads that hold each lock that is held or awaited
        doubts: contradictions of tables in which waiting threads may be missing
    """

    holders: Dict[LockKey, Tuple[ThreadKey, ...]]
    waits: List[Wait]
    doubts: List[Status]


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
        ways = (_RESOURCE,) if stack.kind == KERNEL else _IN_PROCESSES
        # The innermost function decides: when its sleep on a condition variable ends, a thread takes its lock
        # again.
        prefixes = next((way for name in names for way in ways if name.startswith(way)), None)
        if prefixes not in (_RESOURCE, _SECTION) or len(self._waiting) >= MAX_WAITING:
            return
        last = max(number for number, name in enumerate(names) if name.startswith(prefixes))
        above = stack.walked[last + 1].sp if last + 1 < len(stack.walked) else stack.walked[last].sp
        space = self._image.kernel if stack.kind == KERNEL else stack.space
        self._waiting.append(
            Waiting(
                space,
                thread.space.process,
                (thread.space.pid, stack.tid),
                stack.walked[0].sp,
                above + _HOME * space.pointer_size,
                all(walked.sure for walked in stack.walked[: last + 1]),
                stack,
            )
        )

    def of_locks(self, lister: LockLister, pids: Sequence[int] = ()) -> Tuple[List[Wait], List[Status]]:
        """Returns the threads that wait for listed locks, and contradictions of tables that may lack some.

        Threads on a lock's own list of waiters are left out.

        Args:
            pids: PIDs to list, 0 for the kernel; all when empty
        """
        found = _Found({}, [], [])
        for space in AddressSpaces.list_spaces(self._image, pids):
            space_locks: Dict[int, Lock] = {}
            for lock in self._image.possible(lister.list_locks(space)):
                room = len(found.holders) + len(space_locks) < MAX_LOCKS
                if isinstance(lock, Gap) or lock.address is None or not room:
                    continue
                if lock.held or lock.waiters:
                    space_locks[lock.address] = lock
            self._space(space, space_locks, found)
        return found.waits, found.doubts

    def _space(self, space: AddressSpace, space_locks: Dict[int, Lock], found: _Found) -> None:
        """Adds the locks of an address space, and the threads that wait for them."""
        place = _place(space)
        waiting_here = any(_is_in(waiting, space) for waiting in self._waiting)
        places = self._places.get(space, {}) if waiting_here else {}
        side = self._sides.of_half(space, list(places.values())) if self._sides and places else None
        if side is not None:
            found.doubts.append(side.waits.status)
        listed = set()
        for address, lock in space_locks.items():
            found.holders[place, address] = tuple(_holders(lock))
            for owner in lock.owners:
                if owner.kind == WAITING and owner.owner is not None:
                    listed.add((owner.owner.pid, owner.owner.tid))
        for waiting in self._waiting:
            if _is_in(waiting, space) and waiting.key not in listed:
                answer = _answer(waiting, side)
                if answer is not None and answer.kind == CRITICAL_SECTION:
                    found.waits.append(Wait(waiting, waiting.key, (place, answer.address), PROVEN, True))
                elif answer is None or answer.kind not in _UNLISTED:
                    found.waits.extend(self._wait(waiting, place, space_locks, found.holders))

    def _wait(
        self,
        waiting: Waiting,
        place: int,
        space_locks: Dict[int, Lock],
        holders: Dict[LockKey, Tuple[ThreadKey, ...]],
    ) -> Iterator[Wait]:
        """Yields which of the locks of an address space a thread waits for; nothing if it is unknown."""
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
            yield Wait(waiting, waiting.key, (place, named[0]), ON_STACK, waiting.sure)
        awaited = [address for address in possible if space_locks[address].waiters]
        if not named and len(awaited) == 1:
            yield Wait(waiting, waiting.key, (place, awaited[0]), EXCLUDED, False)

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


def _answer(waiting: Waiting, side: Optional[UserSide]) -> Optional[Answer]:
    """Returns the only answer of the memory of a process; None if it has none or several."""
    answers = [] if side is None else side.answers(waiting.key[1])
    return answers[0] if len(answers) == 1 else None


def _in_windows(module: Optional[str]) -> bool:
    return module is not None and module.lower() in ("nt", "ntdll")


def _place(space: AddressSpace) -> int:
    return 0 if space.kernel else space.eprocess


def lock_key(lock: Lock) -> LockKey:
    """Returns the key of a lock."""
    return _place(lock.space), lock.address


def _holders(lock: Lock) -> Iterator[ThreadKey]:
    """Yields the threads that hold a lock, each once."""
    owners = [lock.owner, *(owner.owner for owner in lock.owners if owner.kind != WAITING)]
    if lock.type == CRITICAL_SECTION:
        owners = [owner for owner in owners if owner is not None and owner.pid == lock.space.pid]
    keys = [
        (owner.pid, owner.tid)
        for owner in owners
        if owner is not None and not has_status(owner.status, StatusCode.NO_THREAD)
    ]
    yield from dict.fromkeys(keys)
