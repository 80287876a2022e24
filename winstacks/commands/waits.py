# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.waits`."""

from __future__ import annotations

from functools import cached_property
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

from ..columns import words
from ..locks.lister import LockLister
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import words_that
from ..memory.decode.statusmeanings import Means
from ..memory.image import AddressSpace
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.waits import GRID, WaitRows
from ..stacklist.frames import NamedFrame
from ..stacklist.threadwaits import symbol_of
from ..tracedb.gap import Gap, gap
from ..waits.chains import Chains, OwnerChain
from ..waits.decode.waitgraph import Cycle
from ..waits.lister import ProcessWaits, WaitLister
from ..waits.records import ThreadWait

_NO_THREAD = words_that(Means.NO_THREAD)


class ShownWait(NamedTuple):
    """A waiting thread with its chain, or a deadlock; `more` threads that wait for the same have no row."""

    wait: Optional[ThreadWait]
    chain: Optional[OwnerChain] = None
    deadlock: Optional[Cycle] = None
    more: int = 0


class WaitChains(Command[AddressSpace, ShownWait]):
    """The work of `windows.waits`."""

    grid = GRID
    things = "waits"
    nothing = "No thread of the selected processes waits, as far as the input tells"
    kernel = False

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

    @cached_property
    def _rows(self) -> WaitRows:
        return WaitRows(self, self._chains)

    def steps(self) -> List[AddressSpace]:
        return [self.image.kernel]

    def describe(self, step: AddressSpace) -> str:
        return "Reading the waits of all threads"

    def items(self, step: AddressSpace) -> Iterator[Union[ShownWait, Gap]]:
        """Yields deadlocks first, then the threads in the order of the input, then what may hide threads."""
        for cycle in self._chains.deadlocks:
            yield ShownWait(None, deadlock=cycle)
        shown = list(self._threads())
        yield from self._in_brief(shown) if self.option("brief") else shown
        for process in self._processes:
            if has_status(process.status, *_NO_THREAD):
                yield gap(process.space, process.status)

    def _threads(self) -> Iterator[ShownWait]:
        tids = self.config.get("tid")
        for process in self._processes:
            for wait in process.waits:
                self.requested.mark_seen("tid", wait.thread.tid)
                if not tids or wait.thread.tid in tids:
                    yield ShownWait(wait, self._chains.follow(wait))

    def _in_brief(self, shown: Sequence[ShownWait]) -> Iterator[ShownWait]:
        """Yields one thread of those that wait for the same, the worst ends of chains first."""
        first: Dict[object, ShownWait] = {}
        for number, item in enumerate(shown):
            assert item.wait is not None and item.chain is not None
            key = _same(item.wait, item.chain, number)
            known = first.get(key)
            first[key] = item if known is None else known._replace(more=known.more + 1)
        order = list(words.CHAIN_ENDS)
        yield from sorted(first.values(), key=lambda item: order.index(item.chain.end if item.chain else ""))

    def frames(self, item: ShownWait) -> Optional[Sequence[NamedFrame]]:
        if item.wait is None:
            return None
        return self._rows.named(item.wait)

    def rows(self, item: ShownWait, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        if item.wait is None:
            assert item.deadlock is not None
            return self._rows.deadlock(item.deadlock)
        assert item.chain is not None
        return self._rows.wait(item.wait, item.chain, frames, item.more)


def _same(wait: ThreadWait, chain: OwnerChain, number: int) -> object:
    """Returns the key under which threads that wait for the same are one row of --brief."""
    awaited = wait.awaited[0]
    if chain.end == words.ENDS_IDLE:
        return chain.end
    if awaited.address is None:
        return number
    return awaited.space, awaited.kind, awaited.address, chain.end
