# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.waits`."""

from __future__ import annotations

import itertools
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from volatility3.framework import interfaces

from ..columns import words
from ..locks.lister import LockLister
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.text import moment
from ..memory.image import AddressSpace
from ..process.thread import Thread
from ..process.threads import Threads
from ..rows.databasecommand import DatabaseCommand
from ..rows.divided import WorkerPortion
from ..rows.entries import ShownEntry
from ..rows.grid import (
    NOT_APPLICABLE,
    NOT_AVAILABLE,
    UNREADABLE,
    Cells,
    Grid,
    Row,
    or_not_applicable,
    or_unreadable,
)
from ..stacklist.frames import NamedFrame
from ..stacklist.threadwaits import (
    caller,
    shown_space,
    symbol_of,
    unknown_waits,
    wait_status,
    why_no_wait,
)
from ..tracedb.gap import Gap, gap
from ..waits.chains import Chains, OwnerChain
from ..waits.decode.waitgraph import Cycle
from ..waits.lister import ProcessWaits, WaitLister
from ..waits.records import Awaited, ThreadWait

GRID = Grid.for_plugin("waits")
_STEP = GRID.maker("PID", "Process", "TID", "ChainEnd", "Step", "Status")
_NO_THREAD = words_that(Means.NO_THREAD)


class ShownWait(NamedTuple):
    """A waiting thread and the end of its chain, or a deadlock; `more` threads that wait for the same have no
    row."""

    wait: Optional[ThreadWait]
    end: str = ""
    deadlock: Optional[Cycle] = None
    more: int = 0


class WaitChains(DatabaseCommand[AddressSpace, ShownWait]):
    """The work of `windows.waits`."""

    grid = GRID
    key = ("TID",)
    things = "waits"
    kernel = False

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._names: Dict[int, Sequence[NamedFrame]] = {}
        self._unknown = ""

    @cached_property
    def _lister(self) -> WaitLister:
        locks = LockLister(self.image, self.databases)
        return WaitLister(
            self.image,
            self.symbolizer,
            self.databases.ntdlls,
            locks.list_locks,
            symbol_of(self.named),
        )

    @cached_property
    def _processes(self) -> List[ProcessWaits]:
        return list(self._lister.list_waits(self.pids, self.config.get("offset")))

    @cached_property
    def _chains(self) -> Chains:
        return Chains(self._processes, self.pids)

    def divides(self) -> bool:
        return True

    def portions(self) -> List[WorkerPortion]:
        """Returns a portion for each process, whose waits are gathered: their chains join processes."""
        self._processes = []
        listed = Threads.list_threads(self.image, self.pids, self.config.get("offset"))
        return [
            WorkerPortion(
                f"Reading the waits of process {space.pid_text}",
                f"process {space.pid_text}",
                partial(self._read, list(threads)),
                partial(self._lose, space),
            )
            for space, threads in itertools.groupby(listed, attrgetter("space"))
        ]

    def _read(self, threads: Sequence[Thread]) -> Iterable[AddressSpace]:
        """Gathers the waits of the threads of a process."""
        found = self.image.attempt(lambda: self._lister.of_threads(threads))
        if found is not None:
            self._processes.append(found)
        return ()

    def _lose(self, space: AddressSpace) -> Iterable[AddressSpace]:
        """Gathers what stands for a process that was not read to its end."""
        self._processes.append(ProcessWaits(space, (), (), {}, status(StatusCode.WORKER_ENDED)))
        return ()

    def take(self) -> Any:
        processes, self._processes = self._processes, []
        lean = [
            process._replace(threads=(), waits=tuple(map(_without_registers, process.waits)))
            for process in processes
        ]
        names = [list(map(self._named, process.waits)) for process in processes]
        return lean, names, super().take()

    def merge(self, counted: Any) -> None:
        processes, names, others = counted
        super().merge(others)
        self._processes += processes
        for process, named in zip(processes, names):
            self._names.update(zip(map(id, process.waits), named))

    def finish_portions(self) -> List[AddressSpace]:
        return self.steps()

    def steps(self) -> List[AddressSpace]:
        return [self.image.kernel]

    def describe(self, step: AddressSpace) -> str:
        return "Reading the waits of all threads"

    def items(self, step: AddressSpace) -> Iterator[Union[ShownWait, Gap]]:
        """Yields deadlocks first, then the threads in the order of the input, then what may hide threads."""
        tids, shown = self.config.get("tid") or None, list(self._threads())
        self._unknown = unknown_waits(self._chains, tids)
        self.nothing = "" if self._unknown else why_no_wait(self.image)
        reached = self._chains.reached_deadlocks(each.wait for each in shown if each.wait) if tids else ()
        for number, cycle in enumerate(self._chains.deadlocks):
            if not tids or number in reached:
                yield ShownWait(None, deadlock=cycle)
        yield from self._in_brief(shown) if self.option("brief") else shown
        for process in self._processes:
            if has_status(process.status, *_NO_THREAD, StatusCode.WORKER_ENDED):
                yield gap(process.space, process.status)
            for tid in filter(None, process.unread):
                self.requested.mark_seen("tid", tid)
                if not tids or tid in tids:
                    yield Gap(process.space, status(StatusCode.UNREADABLE), {"TID": tid})

    def finish(self) -> Iterator[Row]:
        if self._unknown:
            self.log.warning(self._unknown)
        return super().finish()

    def _threads(self) -> Iterator[ShownWait]:
        tids = self.config.get("tid")
        for process in self._processes:
            for wait in process.waits:
                self.requested.mark_seen("tid", wait.thread.tid)
                if not tids or wait.thread.tid in tids:
                    yield ShownWait(wait, self._chains.end(wait))

    def _in_brief(self, shown: Sequence[ShownWait]) -> Iterator[ShownWait]:
        """Yields one thread of those that wait for the same, the worst ends of chains first."""
        first: Dict[object, ShownWait] = {}
        for number, item in enumerate(shown):
            assert item.wait is not None
            key = _same(item.wait, item.end, number)
            known = first.get(key)
            first[key] = item if known is None else known._replace(more=known.more + 1)
        order = list(words.CHAIN_ENDS)
        yield from sorted(first.values(), key=lambda item: order.index(item.end))

    def frames(self, item: ShownWait) -> Optional[Sequence[NamedFrame]]:
        """Returns the named frames of the stack that shows a wait; of all threads of a deadlock."""
        if item.wait is not None:
            return self._named(item.wait)
        assert item.deadlock is not None
        waits = (self._chains.waits[step.thread] for step in item.deadlock)
        return [frame for wait in waits for frame in self._named(wait)]

    def _named(self, wait: ThreadWait) -> Sequence[NamedFrame]:
        """Returns the named frames of the stack that shows a wait."""
        if id(wait) in self._names:
            return self._names[id(wait)]
        return () if wait.stack is None else self.frames_of(wait.stack.space).name_walked(wait.stack.frames)

    def rows(self, item: ShownWait, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        """Returns the row of a waiting thread, with --chains a row for each owner behind it, and frames."""
        if item.wait is None:
            assert item.deadlock is not None
            return self.entries.rows(self._deadlock(item.deadlock))
        wait, brief = item.wait, self.option("brief")
        first, *more = wait.awaited
        if brief:
            first = first._replace(evidence=self._evidence(item, frames))
        below = [(1, self.entries.cells(self._entry(wait, awaited))) for awaited in more]
        if self.option("chains"):
            chain = self._chains.follow(wait)
            below += [(1, self._step(number, chain)) for number in range(len(chain.steps))]
        entry = self._entry(wait, first, frames, {"ChainEnd": item.end})._replace(below=below)
        if brief or wait.stack is None:
            return itertools.chain([(0, self.entries.folded(entry, frames))], below)
        return self.entries.rows(entry, frames, wait.stack.frames)

    def _deadlock(self, cycle: Cycle) -> ShownEntry:
        cells = {
            "WaitsFor": words.DEADLOCK,
            "ChainEnd": words.DEADLOCK,
            "Evidence": self._chains.sentence(cycle),
        }
        space = _space(self._chains.waits[cycle[0].thread])
        return ShownEntry(space, self._chains.doubts(cycle), cells)

    def _evidence(self, item: ShownWait, frames: Sequence[NamedFrame]) -> str:
        """Returns what --brief says of a wait: who asked for it, and how many wait for the same."""
        asked = f"in {self._symbol(frames)}" if frames else ""
        idle = item.end == words.ENDS_IDLE
        others = f"{item.more} more wait for {'work' if idle else 'it'}" if item.more else ""
        return "; ".join(filter(None, (asked, others)))

    def _step(self, number: int, chain: OwnerChain) -> Cells:
        """Returns the row of an owner in the chain behind a thread."""
        owner, wait = chain.steps[number].owner, chain.steps[number].wait
        end = chain.end if number + 1 == len(chain.steps) else None
        if wait is None:
            key = or_unreadable(owner.pid), or_unreadable(owner.process), or_unreadable(owner.tid)
            return _STEP(*key, or_not_applicable(end), number + 1, "")
        frames = self._named(wait)
        cells = {"ChainEnd": end, "Step": number + 1}
        return self.entries.folded(self._entry(wait, wait.awaited[0], frames, cells), frames)

    def _entry(
        self,
        wait: ThreadWait,
        awaited: Awaited,
        frames: Sequence[NamedFrame] = (),
        more: Mapping[str, object] = {},
    ) -> ShownEntry:
        """Returns the entry of a thing for which a thread waits."""
        cells = {
            "TID": wait.thread.tid,
            "WaitsFor": awaited.kind,
            "WaitAddress": awaited.address,
            "WaitName": awaited.name or None,
            "WaitMode": awaited.mode or None,
            "Since": moment(wait.since) or self._unknown_time,
            "Known": awaited.known,
            "Ownership": awaited.ownership,
            "Evidence": awaited.evidence or None,
            "Symbol": self._symbol(frames),
            **more,
        }
        if awaited.owners:
            owner = awaited.owners[0]
            tid = NOT_APPLICABLE if awaited.ownership == words.BY_PROCESS else or_unreadable(owner.tid)
            cells.update(
                OwnerPID=or_unreadable(owner.pid), OwnerProcess=or_unreadable(owner.process), OwnerTID=tid
            )
        return ShownEntry(_space(wait), wait_status(wait, awaited), cells)

    @cached_property
    def _unknown_time(self) -> object:
        return UNREADABLE if self.image.table_name else NOT_AVAILABLE

    def _symbol(self, frames: Sequence[NamedFrame]) -> Optional[str]:
        asked = caller(frames)
        return None if asked is None else asked.symbol(self.printer.mask)


def _without_registers(wait: ThreadWait) -> ThreadWait:
    """Returns a wait without what no row shows of its stack."""
    if wait.stack is None:
        return wait
    frames = tuple(frame._replace(registers=None) for frame in wait.stack.frames)
    return wait._replace(stack=wait.stack._replace(frames=frames, entry=None, candidates=()))


def _space(wait: ThreadWait) -> AddressSpace:
    """Returns the process of a thread, with the bitness of the half in which the thread waits."""
    return wait.thread.space._replace(machine=shown_space(wait).machine)


def _same(wait: ThreadWait, end: str, number: int) -> object:
    """Returns the key under which threads that wait for the same are one row of --brief."""
    awaited = wait.awaited[0]
    if end == words.ENDS_IDLE:
        return end
    if awaited.address is None:
        return number
    return awaited.space, awaited.kind, awaited.address, end
