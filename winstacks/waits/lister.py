# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the waiting threads of an image or a dump, process by process.

    lister = WaitLister(image, symbolizer, ntdlls, locks)
    for found in lister.list_waits(pids): found.waits, found.threads

In user mode the memory of the process says what a thread waits for; in an image also the kernel's wait
blocks. An answer of user mode is more exact than the kernel's object behind it: a critical section is more
than its event.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ..columns import words
from ..locks.lock import Listed
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted, has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.image import AddressSpace, Image
from ..names.ntdll import Ntdlls
from ..names.symbolizer import Symbolizer
from ..process.thread import TERMINATED, WAITING, Thread, has_state
from ..process.threads import Threads
from ..stacks.lister import CallStack, StackLister
from ..traps.state import TrapState
from .clock import WaitClock
from .decode import calls
from .decode.answer import Answer
from .handlenames import HandleObject, handle_objects
from .inferred import Inference
from .kernellocks import KernelLocks
from .objects import KernelObjects
from .records import Awaited, ThreadWait, WaitOwner
from .userside import SymbolOf, UserSide, UserSides, UserStack, symbol_of

GATE_WAIT = 8
"""KTHREAD.State of a thread that waits for a gate (public enumeration; 7 and before)."""

_USER_REASONS = {6, 13, 21, 37}
"""KWAIT_REASON of waits that user mode asked for: UserRequest, WrUserRequest, WrKeyedEvent,
WrAlertByThreadId."""

_SUSPENDED = {5, 12}
"""Suspended and WrSuspended. The kernel breaks off the wait of a thread to suspend it, and the thread
takes it up again later (described: ReactOS, `KiSuspendThread`): what user mode waits for stays as it was."""

_SLEEPS, _QUEUES, _KEYED, _ALERT = {4, 11}, {15}, 21, 37
"""DelayExecution and WrDelayExecution; WrQueue; WrKeyedEvent; WrAlertByThreadId."""

_OF_LOCKS = (words.OTHER_WAIT, words.ALERT, words.KEYED_EVENT)
"""Kinds of waits behind which a lock of user mode may be."""

_KINDS_OF_TYPES = {
    "Event": words.EVENT,
    "Mutant": words.MUTANT,
    "Semaphore": words.SEMAPHORE,
    "Timer": words.TIMER,
    "Thread": words.JOINED_THREAD,
    "Process": words.JOINED_PROCESS,
    "File": words.FILE,
}
"""Kinds by types of the object manager."""

_USER_PARTS = (words.WOW64, words.USER)
_LOST = words_that(Means.FRAMES_LOST)

_UNMAPPED = 1 << 16


class ProcessWaits(NamedTuple):
    """The waits of a process.

    Attributes:
        others: where a chain ends that comes to one of the other threads, by TID: a word of
            `words.CHAIN_ENDS`
        lost: why no frame is known of some stacks; their threads may wait for anything
        unread: IDs of threads that are not in the image; None for one without an ID
    """

    space: AddressSpace
    threads: Tuple[Thread, ...]
    waits: Tuple[ThreadWait, ...]
    others: Dict[int, str]
    status: Status = NOTHING
    lost: Status = NOTHING
    unread: Tuple[Optional[int], ...] = ()


class _Seen(NamedTuple):
    """A thread that may wait, and what is known of it before the kernel is asked.

    Attributes:
        answers: what user mode says it waits for
        half: the half whose locks these are; None without answers
    """

    thread: Thread
    stacks: List[CallStack]
    sides: Dict[AddressSpace, UserSide]
    answers: List[Answer]
    half: Optional[AddressSpace]


class WaitLister:
    """Lists the waiting threads.

    Args:
        locks: lists the locks of the kernel or of one half of a process; called if a thread may wait for one
    """

    def __init__(
        self,
        image: Image,
        symbolizer: Symbolizer,
        ntdlls: Ntdlls,
        locks: Callable[[AddressSpace], Iterable[Listed]] = lambda space: (),
        symbol: Optional[SymbolOf] = None,
    ) -> None:
        self._image = image
        self._symbol = symbol or symbol_of(symbolizer)
        self._walker = StackLister(image, symbolizer)
        self._sides = UserSides(image, symbolizer, ntdlls, self._symbol)
        self._list = locks
        self._inference = Inference(self._symbol, locks)

    @cached_property
    def _objects(self) -> Optional[KernelObjects]:
        """Describes the kernel's objects; None without a kernel, or if its symbols do not describe them."""
        image = self._image
        return image.attempt(lambda: KernelObjects(image)) if image.table_name else None

    @cached_property
    def _locks(self) -> Optional[KernelLocks]:
        if self._objects is None:
            return None
        return KernelLocks(self._image, self._objects, lambda: self._list(self._image.kernel))

    @cached_property
    def _clock(self) -> WaitClock:
        return WaitClock(self._image)

    def list_waits(
        self, pids: Optional[Sequence[int]] = None, offset: Optional[int] = None
    ) -> Iterator[ProcessWaits]:
        """Yields the waits of each process.

        Args:
            pids: None for all
            offset: address of an _EPROCESS that no list holds: only its threads
        """
        listed = Threads.list_threads(self._image, pids, offset)
        for _, group in itertools.groupby(listed, key=lambda thread: thread.space):
            yield self.of_threads(tuple(group))

    def of_threads(self, threads: Sequence[Thread]) -> ProcessWaits:
        """Returns the waits of the threads of a process, whose stacks it walks."""
        return self.of_process(threads, [list(self._walker.thread_stacks(thread)) for thread in threads])

    def of_process(self, threads: Sequence[Thread], stacks: Sequence[List[CallStack]]) -> ProcessWaits:
        """Returns the waits of a process.

        Args:
            stacks: the stacks of each thread, as `StackLister.thread_stacks` yields them
        """
        sides: Dict[AddressSpace, UserSide] = {}
        for half in dict.fromkeys(half for thread in threads for half in thread.halves):
            places = [UserStack(thread, *_innermost(found, half)) for thread, found in zip(threads, stacks)]
            side = self._sides.of_half(half, places) if any(place.entry for place in places) else None
            if side is not None:
                sides[half] = side
        waits: List[ThreadWait] = []
        others: Dict[int, str] = {}
        for thread, found in zip(threads, stacks):
            wait = self._wait(thread, found, sides)
            if wait is not None:
                waits.append(wait)
            elif thread.tid is not None:
                others[thread.tid] = self._end(thread, found)
        absent = status(*(thread.status for thread in threads if not thread.tid))
        every = itertools.chain.from_iterable(stacks)
        lost = status(*(each.status for each in every if not each.frames and has_status(each.status, *_LOST)))
        unread = tuple(each.tid for each in threads if has_status(each.status, StatusCode.UNREADABLE))
        return ProcessWaits(threads[0].space, tuple(threads), tuple(waits), others, absent, lost, unread)

    def _end(self, thread: Thread, stacks: List[CallStack]) -> str:
        """Returns where a chain ends that comes to a thread without a known wait."""
        if has_status(thread.status, StatusCode.TERMINATED):
            return words.ENDS_EXITED
        if thread.unusable:
            return words.ENDS_ABSENT
        if thread.state is not None:
            return words.ENDS_RUNNING
        stack = _user_stack(stacks)
        if stack is None:
            return words.ENDS_ABSENT
        symbol = self._symbol(stack.space, stack.frames[0].address, False).lower()
        module, _, function = symbol.partition("!")
        unnamed = module.startswith("ntdll+")
        in_stub = module in ("ntdll", "win32u") and function.startswith(("nt", "zw", "ki"))
        return words.ENDS_UNKNOWN if in_stub or unnamed else words.ENDS_RUNNING

    def _wait(
        self, thread: Thread, stacks: List[CallStack], sides: Dict[AddressSpace, UserSide]
    ) -> Optional[ThreadWait]:
        """Returns what a thread waits for; None if it does not wait, or if that is unknown.

        One that is no thread by its type, but waits by its state, has a row: its status says so.
        """
        wrong_type = has_status(thread.status, StatusCode.NOT_A_THREAD) and thread.state == WAITING
        if thread.unusable and not wrong_type:
            return None
        if thread.tid is None or has_status(thread.status, StatusCode.TERMINATED):
            return None
        seen = _Seen(thread, stacks, sides, *self._answers(thread, sides))
        # One that has ended by its State alone may wait.
        if has_state(thread.state) and thread.state not in (WAITING, GATE_WAIT, TERMINATED):
            return self._not_waiting(seen)
        if thread.state is None or self._objects is None or self._locks is None:
            wait = self._of_user(seen)
        else:
            wait = self._of_kernel(seen, self._objects, self._locks)
        return None if wait is None else wait._replace(status=status(wait.status, _table_status(seen, wait)))

    def _answers(
        self, thread: Thread, sides: Dict[AddressSpace, UserSide]
    ) -> Tuple[List[Answer], Optional[AddressSpace]]:
        """Returns what user mode says a thread waits for, and the half whose locks these are."""
        for half in reversed(thread.halves):
            answers = sides[half].answers(thread.tid) if half in sides else []
            if answers:
                return answers, half
        return [], None

    def _not_waiting(self, seen: _Seen) -> Optional[ThreadWait]:
        """Returns a row for a thread that a lock or object has as a waiter, although State denies the wait.

        A woken thread that did not run yet leaves the tables and chains at once, but not its registers.
        """
        sure = [answer for answer in seen.answers if answer.known in (words.BY_TABLE, words.BY_CHAIN)]
        awaited = () if seen.half is None or seen.thread.running else self._of_answers(seen, seen.half, sure)
        if not awaited and self._objects is not None and not seen.thread.running:
            awaited = self._objects.still_awaited(seen.thread)
        stack, wrong = _stack_of(seen.stacks, seen.half), contradicted("KTHREAD.State")
        return ThreadWait(seen.thread, awaited, stack, None, wrong) if awaited else None

    def _of_answers(self, seen: _Seen, half: AddressSpace, answers: List[Answer]) -> Tuple[Awaited, ...]:
        side, count = seen.sides[half], len(answers)
        return tuple(self._of_answer(seen.thread, answer, half, side, count) for answer in answers)

    def _of_answer(
        self, thread: Thread, answer: Answer, half: AddressSpace, side: UserSide, count: int
    ) -> Awaited:
        owners, ownership = [], words.NOBODY if answer.owner == 0 else _ownership(answer.kind)
        wrong = [*answer.wrong, *(["WaitsFor"] if count > 1 else [])]
        if answer.owner:
            ownership = words.BY_THREAD
            owners = [WaitOwner(half.pid, half.known_name, answer.owner, half.eprocess)]
            if answer.owner == thread.tid:
                wrong.append("OwningThread")
        evidence = answer.evidence
        if answer.lock and answer.lock != answer.address:
            evidence += f", takes SRW lock {answer.lock:#x} again"
        if thread.wait_reason in _SUSPENDED and thread.wait_reason_name:
            evidence += f", {thread.wait_reason_name}"
        return Awaited(
            answer.kind,
            half,
            answer.address,
            side.name(answer.address),
            answer.mode,
            answer.known,
            evidence,
            ownership,
            tuple(owners),
            status(
                contradicted(*wrong),
                side.waits.status if answer.known == words.BY_TABLE else None,
            ),
        )

    # A dump, which has user mode only.

    def _of_user(self, seen: _Seen) -> Optional[ThreadWait]:
        thread = seen.thread
        if seen.half is not None:
            awaited = self._of_answers(seen, seen.half, seen.answers)
            return ThreadWait(thread, awaited, _stack_of(seen.stacks, seen.half))
        called = self._called(thread, seen.stacks)
        if called is None:
            return None
        kind, stack, name = called
        inferred = self._inference.section(thread, stack, seen.sides) if kind in _OF_LOCKS else None
        return ThreadWait(thread, (inferred or self._of_call(thread, kind, name, stack, seen.sides),), stack)

    def _called(self, thread: Thread, stacks: List[CallStack]) -> Optional[Tuple[str, CallStack, str]]:
        """Returns what the system call of a thread waits for, the stack that shows it, and its name."""
        for half in reversed(thread.halves):
            stack = _stack_of(stacks, half)
            function = "" if stack is None else self._stub(stack)
            kind = calls.kind_of(function)
            if kind and stack is not None:
                return kind, stack, function
        return None

    def _stub(self, stack: CallStack) -> str:
        """Returns the name of the stub in which a thread makes a system call; empty if it has no caller."""
        for frame in stack.frames[:-1][:2]:
            function = self._symbol(stack.space, frame.address, frame.returns).partition("+")[0]
            if frame.returns and not frame.sure:
                return ""
            if not calls.is_return(function):
                return function
        return ""

    def _of_call(
        self, thread: Thread, kind: str, name: str, stack: CallStack, sides: Dict[AddressSpace, UserSide]
    ) -> Awaited:
        """Returns what a system call waits for, as far as its name and the handle show."""
        side = sides.get(stack.space)
        view = None if side is None else side.view.by_tid.get(thread.tid or 0)
        call = None if side is None or view is None else side.view.call(view)
        place = calls.handle_place(name)
        handle = None if call is None or place is None else call.argument(place)
        if handle is None and call is not None and call.hints and place is not None:
            handle = call.hints[place]
        if handle is None or handle >= _UNMAPPED:
            return Awaited(kind, stack.space, evidence=name, ownership=_ownership(kind))
        evidence = f"{name}, handle {handle:#x}"
        found = self._image.service(handle_objects).object_of(handle) if kind == words.OTHER_WAIT else None
        object_kind = _KINDS_OF_TYPES.get(found.type or "") if found is not None else None
        if found is None or object_kind is None:
            return Awaited(kind, stack.space, evidence=evidence, ownership=_ownership(kind))
        ownership, owners = _owners_of(object_kind, found, stack.space)
        return Awaited(
            object_kind,
            stack.space,
            name=found.name or "",
            known=words.BY_HANDLE,
            evidence=evidence,
            ownership=ownership,
            owners=owners,
        )

    # An image, which has the kernel, too.

    def _of_kernel(self, seen: _Seen, kernel_objects: KernelObjects, locks: KernelLocks) -> ThreadWait:
        thread, stacks, half = seen.thread, seen.stacks, seen.half
        since = self._clock.since(thread)
        blocks = kernel_objects.blocks(thread)
        lost = status(None if blocks.whole else StatusCode.PARTLY_UNREADABLE, contradicted(*blocks.wrong))
        lock = locks.awaited(thread, blocks)
        kernel_stack = _stack_of(stacks, None)
        if lock is not None:
            return ThreadWait(thread, (lock,), kernel_stack, since, lost)
        suspended = thread.wait_reason in _SUSPENDED
        of_user = suspended or thread.wait_reason in _USER_REASONS
        if half is not None and of_user:
            awaited = self._of_answers(seen, half, seen.answers)
            return ThreadWait(thread, awaited, _stack_of(stacks, half), since, lost)
        objects = kernel_objects.awaited(thread, blocks)
        # Without its user stack a thread shows no system call: what it waits for may have another name.
        unseen = () if _user_stack(stacks) else (item.status for item in stacks if item.part in _USER_PARTS)
        doubt = status(lost, *unseen, None if half is None else contradicted("KTHREAD.WaitReason"))
        called = self._called(thread, stacks)
        kind = self._kind(thread, called, objects)
        shown = called[1] if called is not None else _user_stack(stacks) or kernel_stack
        inferred = (
            self._inference.section(thread, _user_stack(stacks), seen.sides) if kind in _OF_LOCKS else None
        )
        if inferred is not None and of_user:
            return ThreadWait(thread, (inferred,), shown, since, doubt)
        if kind in (words.OTHER_WAIT, words.OBJECTS) and objects and not suspended:
            return ThreadWait(thread, objects, shown, since, doubt)
        evidence = ", ".join(filter(None, (thread.wait_reason_name, called[2] if called is not None else "")))
        one = objects[0] if len(objects) == 1 else Awaited(kind, thread.space, ownership=_ownership(kind))
        known = one._replace(kind=kind, evidence=", ".join(filter(None, (evidence, one.evidence))))
        return ThreadWait(thread, (known,), shown, since, doubt)

    def _kind(
        self, thread: Thread, called: Optional[Tuple[str, CallStack, str]], objects: Tuple[Awaited, ...]
    ) -> str:
        """Returns the kind of a wait that is no lock: by the reason, the system call, and the objects."""
        reason = thread.wait_reason
        if reason in _SLEEPS:
            return words.SLEEP
        if reason in _QUEUES or any(item.kind == words.QUEUE for item in objects):
            return words.QUEUE
        if called is not None and called[0] in (words.INPUT, words.PORT, words.QUEUE, words.IO):
            return called[0]
        if reason == _ALERT:
            return words.ALERT
        if reason == _KEYED:
            return words.KEYED_EVENT
        return words.OTHER_WAIT


def _owners_of(kind: str, found: HandleObject, space: AddressSpace) -> Tuple[str, Tuple[WaitOwner, ...]]:
    """Returns who owns the object of a handle, as a dump says it: it has the owner of a mutex."""
    if kind in (words.JOINED_THREAD, words.JOINED_PROCESS):
        return words.OWNER_UNKNOWN, ()
    if kind != words.MUTANT:
        return words.NO_OWNER_KEPT, ()
    if found.owner is None:
        return words.OWNER_UNKNOWN, ()
    pid, tid = found.owner
    if not tid:
        return words.NOBODY, ()
    return words.BY_THREAD, (WaitOwner(pid, space.known_name if pid == space.pid else None, tid),)


def _table_status(seen: _Seen, wait: ThreadWait) -> Status:
    """Returns why tables and chains of wait blocks may have lost the lock of a thread."""
    lock = wait.awaited[0].kind in (*_OF_LOCKS, words.CRITICAL_SECTION)
    if not lock or seen.answers:
        return NOTHING
    halves = reversed(seen.thread.halves)
    return status(*(seen.sides[half].waits.missing for half in halves if half in seen.sides))


def _ownership(kind: str) -> str:
    """Returns the ownership of something whose owner is not known."""
    kept = (*_OF_LOCKS, words.CRITICAL_SECTION, words.OBJECTS)
    return words.OWNER_UNKNOWN if kind in kept else words.NO_OWNER_KEPT


def _innermost(stacks: List[CallStack], half: AddressSpace) -> Tuple[Optional[TrapState], Optional[object]]:
    """Returns entry and registers of the stack on which a thread is in one half."""
    stack = _stack_of(stacks, half)
    if stack is None or stack.entry is None:
        return None, None
    return stack.entry, stack.frames[0].registers if stack.frames else None


def _stack_of(stacks: List[CallStack], half: Optional[AddressSpace]) -> Optional[CallStack]:
    """Returns the newest stack of a thread in a half; None for the half: its kernel stack."""
    part = words.KERNEL if half is None else words.WOW64 if half.wow64 else words.USER
    return next((stack for stack in stacks if stack.part == part), None)


def _user_stack(stacks: List[CallStack]) -> Optional[CallStack]:
    """Returns the stack of user mode with frames, the 32-bit one first."""
    found = [stack for part in _USER_PARTS for stack in stacks if stack.part == part]
    return next((stack for stack in found if stack.frames), None)
