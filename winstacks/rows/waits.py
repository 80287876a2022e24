# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.waits`."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence

from ..columns import words
from ..memory.decode.status import status, text
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import moment
from ..stacklist.frames import NamedFrame
from ..stacklist.threadwaits import caller, shown_space, wait_status
from ..waits.chains import Chains, OwnerChain
from ..waits.decode.waitgraph import Cycle
from ..waits.records import Awaited, ThreadWait, WaitOwner
from .command import Command
from .frames import folded, unbacked
from .grid import (
    NOT_APPLICABLE,
    NOT_AVAILABLE,
    UNREADABLE,
    Cells,
    Grid,
    Hex,
    Row,
    or_not_applicable,
    or_unreadable,
)

GRID = Grid.for_plugin("waits")

_KEY = ("PID", "Process", "TID", "Arch")
_AWAITED = ("WaitsFor", "WaitAddress", "WaitName", "WaitMode", "Since", "Known")
_OWNER = ("Ownership", "OwnerPID", "OwnerProcess", "OwnerTID")
_FRAME = ("Frame", "Address", "Symbol", "Source", "Backing", "Status")


class WaitRows:
    """Makes the rows of waits.

    Args:
        command: the command that shows them
        chains: the chains behind the waits
    """

    def __init__(self, command: Command[Any, Any], chains: Chains) -> None:
        self._command = command
        self._chains = chains
        self._named = command.named
        self._printer = command.printer
        self._machine = command.image.machine
        self._kernel = bool(command.image.table_name)
        self._fold, self._steps = command.option("fold"), command.option("chains")
        self._brief = command.option("brief")
        self._row = GRID.maker(
            *_KEY, *_AWAITED, *_OWNER, "ChainEnd", "Step", "Evidence", "Unbacked", "Symbol", "Stack", "Status"
        )
        self._frame = GRID.maker(*_KEY, *_FRAME)

    def named(self, wait: ThreadWait) -> Sequence[NamedFrame]:
        """Returns the named frames of the stack that shows a wait."""
        if wait.stack is None:
            return ()
        names = self._named.for_space(wait.stack.space)
        return [names.frame(frame.address, frame.returns) for frame in wait.stack.frames]

    def deadlock(self, cycle: Cycle) -> Iterator[Row]:
        """Yields the row of a deadlock."""
        wait = self._chains.waits[cycle[0].thread]
        inferred = StatusCode.UNSURE if self._chains.inferred(cycle) else None
        key = self._key(wait)
        absent = (NOT_APPLICABLE,) * 4
        yield (
            0,
            self._row(
                *key[:2],
                NOT_APPLICABLE,
                key[3],
                words.DEADLOCK,
                *absent,
                NOT_APPLICABLE,
                *absent,
                words.DEADLOCK,
                NOT_APPLICABLE,
                self._chains.sentence(cycle),
                *(NOT_APPLICABLE,) * 3,
                text(status(inferred)),
            ),
        )

    def wait(
        self, wait: ThreadWait, chain: OwnerChain, frames: Sequence[NamedFrame], others: int = 0
    ) -> Iterator[Row]:
        """Yields the row of a waiting thread, with --chains a row for each owner behind it, and frames."""
        first, *more = wait.awaited
        key = self._key(wait)
        evidence = first.evidence
        if self._brief:
            what = "wait for work" if chain.end == words.ENDS_IDLE else "wait for it"
            caller = self._symbol(frames) if frames else ""
            evidence = "; ".join(
                filter(None, (f"in {caller}" if caller else "", f"{others} more {what}" if others else ""))
            )
        yield 0, self._cells(key, wait, first._replace(evidence=evidence), chain.end, NOT_APPLICABLE, frames)
        for awaited in more:
            yield 1, self._cells(key, wait, awaited, NOT_APPLICABLE, NOT_APPLICABLE, ())
        if self._steps:
            for number, step in enumerate(chain.steps, 1):
                yield 1, self._step(number, step.owner, step.wait, chain, number == len(chain.steps))
        if wait.stack is None or self._fold or self._brief:
            return
        for number, (frame, named) in enumerate(zip(wait.stack.frames, frames)):
            cells = self._printer[named] if frame.sure else self._printer.guess(named)
            yield 1, self._frame(*key, number, *cells)

    def _step(
        self, number: int, owner: WaitOwner, wait: Optional[ThreadWait], chain: OwnerChain, last: bool
    ) -> Cells:
        end = chain.end if last else NOT_APPLICABLE
        if wait is not None:
            return self._cells(self._key(wait), wait, wait.awaited[0], end, number, self.named(wait))
        absent = NOT_APPLICABLE
        key = or_unreadable(owner.pid), or_unreadable(owner.process), or_unreadable(owner.tid), absent
        return self._row(*key, *(absent,) * 10, end, number, *(absent,) * 4, "")

    def _cells(
        self,
        key: Cells,
        wait: ThreadWait,
        awaited: Awaited,
        end: object,
        step: object,
        frames: Sequence[NamedFrame],
    ) -> Cells:
        since = None if wait.since is None else moment(wait.since)
        return self._row(
            *key,
            awaited.kind,
            self._address(awaited),
            awaited.name or NOT_APPLICABLE,
            awaited.mode or NOT_APPLICABLE,
            since or (UNREADABLE if self._kernel else NOT_AVAILABLE),
            awaited.known,
            *self._owner(awaited),
            end,
            step,
            awaited.evidence or NOT_APPLICABLE,
            unbacked(frames),
            self._symbol(frames),
            folded(frames, self._fold, self._machine.address_mask),
            text(wait_status(wait, awaited)),
        )

    def _owner(self, awaited: Awaited) -> Cells:
        if not awaited.owners:
            return (awaited.ownership, *(NOT_APPLICABLE,) * 3)
        first = awaited.owners[0]
        tid = NOT_APPLICABLE if awaited.ownership == words.BY_PROCESS else or_unreadable(first.tid)
        return awaited.ownership, or_unreadable(first.pid), or_unreadable(first.process), tid

    def _address(self, awaited: Awaited) -> object:
        if awaited.address is None:
            return NOT_APPLICABLE
        return Hex(self._machine.masked(awaited.address))

    def _symbol(self, frames: Sequence[NamedFrame]) -> object:
        asked = caller(frames)
        return NOT_APPLICABLE if asked is None else asked.symbol(self._machine.address_mask)

    def _key(self, wait: ThreadWait) -> Cells:
        space = wait.thread.space
        return (
            or_unreadable(space.pid),
            or_unreadable(space.known_name),
            or_not_applicable(wait.thread.tid),
            shown_space(wait).arch,
        )
