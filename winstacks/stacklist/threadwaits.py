# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The waits of threads as records of the flat table, from stacks that are walked for other tables, too.

    waits = ThreadWaits(symbolizer, frames)
    for stack in StackCollector(symbolizer, frames, waits.add).list_stacks(...): ...
    for row in waits.rows(): ...

Only what the rows show is kept of a stack.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Collection, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ..columns import words
from ..locks.lister import LockLister
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import Status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import MissingMemberError
from ..memory.decode.text import counted
from ..memory.image import AddressSpace, Image
from ..names.symbolizer import Symbolizer
from ..process.thread import Thread
from ..stacks.lister import CallStack
from ..tracedb.finder import Databases
from ..waits.chains import Chains, is_inferred, key_of
from ..waits.lister import ProcessWaits, WaitLister
from ..waits.records import Awaited, ThreadWait
from ..waits.userside import SymbolOf
from .frames import NamedFrame, NamedFrames

_WAITING_MODULES = frozenset(
    ("nt", "ntdll", "kernelbase", "kernel32", "win32u", "wow64", "wow64cpu", "user32")
)
"""Modules through which a program asks for a wait."""

NO_WAIT = "No thread of the selected processes waits, as far as the input tells"
_ONLY_CRASHED = (
    "A small kernel dump has one thread, which ran when Windows stopped: what other threads waited for is "
    "not in it"
)
_UNKNOWN = (
    "It is not known whether {}: the name or the caller of the system call is missing. The file of ntdll "
    "(--binaries) or a dump with full memory would help"
)
_UNREAD = "It is not known whether {}: no more than the ID is in the image"


class WaitRow(NamedTuple):
    """A row of the table: a thing for which a thread waits, or a deadlock.

    Attributes:
        wait: the waiting thread; of a deadlock the first thread
        awaited: what the thread waits for; None for a deadlock
        end: where the chain behind the thread ends, a word of `words.CHAIN_ENDS`
        deadlock: number of the deadlock to which the thread belongs; None if it is in none
        symbol: name of the code that asked for the wait
    """

    wait: ThreadWait
    awaited: Optional[Awaited]
    end: str
    deadlock: Optional[int]
    trace_id: Optional[str]
    symbol: Optional[str]
    evidence: Optional[str]
    status: Status


class _Shown(NamedTuple):
    """A wait, and what rows show of its stack, whose frames are dropped."""

    wait: ThreadWait
    trace_id: Optional[str]
    symbol: Optional[str]


class ThreadWaits:
    """Gathers the waits of threads.

    Args:
        pids: the processes that are listed; None for all
        tids: the threads that are listed; None for all
    """

    def __init__(
        self,
        symbolizer: Symbolizer,
        frames: NamedFrames,
        pids: Optional[Collection[int]] = None,
        tids: Optional[Collection[int]] = None,
    ) -> None:
        self._image = symbolizer.image
        self._frames = frames
        self._selected = pids, tids
        databases = Databases(self._image, symbolizer.indexes)
        locks = LockLister(self._image, databases)
        self._lister = WaitLister(
            self._image, symbolizer, databases.ntdlls, locks.list_locks, symbol_of(frames)
        )
        self._threads: List[Thread] = []
        self._stacks: List[Sequence[Tuple[CallStack, str]]] = []
        self._known: Set[AddressSpace] = set()
        self._processes: List[ProcessWaits] = []
        self._shown: List[_Shown] = []

    def add(self, thread: Thread, stacks: Sequence[Tuple[CallStack, str]]) -> None:
        """Adds a thread with its stacks and their TraceIds; a `ThreadWatch`.

        Threads that only a scan finds come after all others. Those of a known process are left out: its table
        of waiting threads does not have them.
        """
        if self._threads and thread.space != self._threads[0].space:
            self._end_process()
        if thread.space not in self._known:
            self._threads.append(thread)
            self._stacks.append(stacks)

    def _end_process(self) -> None:
        """Finds the waits of the threads since the last process."""
        threads, stacks = self._threads, self._stacks
        self._threads, self._stacks = [], []
        if not threads:
            return
        self._known.add(threads[0].space)
        try:
            found = self._lister.of_process(threads, [[stack for stack, _ in each] for each in stacks])
        except MissingMemberError as error:
            self._image.rows_end(error)
            return
        ids = {id(stack): trace_id for each in stacks for stack, trace_id in each}
        shown = [self._lean(wait, ids.get(id(wait.stack))) for wait in found.waits]
        self._shown += shown
        self._processes.append(found._replace(threads=(), waits=tuple(each.wait for each in shown)))

    def take(self) -> Any:
        """Returns the waits of the threads that were added, and forgets them."""
        self._end_process()
        taken, self._shown, self._processes = (self._shown, self._processes), [], []
        return taken

    def merge(self, found: Any) -> None:
        """Adds waits that were taken from another list, whose threads follow."""
        shown, processes = found
        self._shown += shown
        self._processes += processes

    def _lean(self, wait: ThreadWait, trace_id: Optional[str]) -> _Shown:
        stack = wait.stack
        if stack is None:
            return _Shown(wait, trace_id, None)
        asked = caller(self._frames.for_space(stack.space).name_walked(stack.frames))
        symbol = None if asked is None else asked.symbol(self._image.machine.address_mask)
        lean = wait._replace(stack=stack._replace(frames=(), candidates=(), entry=None))
        return _Shown(lean, trace_id, None if symbol is None else str(symbol))

    @cached_property
    def chains(self) -> Chains:
        """The graph of all waits, made when it is first asked for: after the last thread was added."""
        self._end_process()
        return Chains(self._processes, *self._selected)

    def rows(self, tids: Optional[Collection[int]] = None) -> Iterator[WaitRow]:
        """Yields the rows: deadlocks, then the waiting threads in the order of the input. `tids` are the
        threads whose rows are shown, with the deadlocks to which their chains lead; None for all."""
        chains = self.chains
        shown = [each for each in self._shown if tids is None or each.wait.thread.tid in tids]
        numbers: Iterable[int] = range(len(chains.deadlocks))
        if tids is not None:
            numbers = sorted(chains.reached_deadlocks(each.wait for each in shown))
        for number in numbers:
            cycle = chains.deadlocks[number]
            wait = chains.waits[cycle[0].thread]
            sentence, doubts = chains.sentence(cycle), chains.doubts(cycle)
            yield WaitRow(wait, None, words.DEADLOCK, number + 1, None, None, sentence, doubts)
        for wait, trace_id, symbol in shown:
            end, place = chains.end(wait), chains.deadlock_of.get(key_of(wait))
            deadlock = None if place is None else place + 1
            for awaited in wait.awaited:
                faults = wait_status(wait, awaited)
                yield WaitRow(
                    wait, awaited, end, deadlock, trace_id, symbol, awaited.evidence or None, faults
                )


def why_no_wait(image: Image) -> str:
    """Returns what to say where no thread waits."""
    return _ONLY_CRASHED if image.threads_only else NO_WAIT


def unknown_waits(chains: Chains, tids: Optional[Collection[int]] = None) -> str:
    """Returns the sentence that some threads may wait or not; empty if this is known of all. `tids` are the
    threads that it is about; None for all."""
    counts = ((_UNKNOWN, chains.unknown(tids)), (_UNREAD, chains.unread(tids)))
    said = (text.format(counted(count, "thread waits", "threads wait")) for text, count in counts if count)
    return ". ".join(said)


def symbol_of(frames: NamedFrames) -> SymbolOf:
    """Returns the names of named frames: an address is named once for the waits and for the rows."""

    def symbol(space: AddressSpace, address: int, returns: bool) -> str:
        name = frames.for_space(space).frame(address, returns).name
        return "" if name is None else name.symbol

    return symbol


def caller(frames: Sequence[NamedFrame]) -> Optional[NamedFrame]:
    """Returns the innermost frame that is in no module of Windows's waits: who asked for the wait."""
    for frame in frames:
        if (frame.details.module or "").lower() not in _WAITING_MODULES:
            return frame
    return frames[0] if frames else None


def shown_space(wait: ThreadWait) -> AddressSpace:
    """Returns the half of a process, or the kernel, in which a thread waits."""
    if not wait.awaited[0].space.kernel:
        return wait.awaited[0].space
    return wait.thread.space if wait.stack is None else wait.stack.space


def wait_status(wait: ThreadWait, awaited: Awaited) -> Status:
    """Returns what is doubtful about a wait and one thing for which the thread waits."""
    stack = () if wait.stack is None else wait.stack.status
    inferred = StatusCode.UNSURE if is_inferred(awaited) else None
    return status(awaited.status, inferred, wait.status, stack or wait.thread.status)
