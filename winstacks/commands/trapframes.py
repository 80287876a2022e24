# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.trapframes`."""

from __future__ import annotations

import itertools
from functools import cached_property, partial
from operator import attrgetter
from typing import Iterable, Iterator, List, Optional, Sequence

from ..columns.words import THREAD
from ..memory.decode.status import has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..process.processlist import process_list
from ..process.processors import processors_of
from ..process.threads import Threads
from ..rows.command import Command
from ..rows.divided import WorkerPortion
from ..rows.grid import Row
from ..rows.traps import GRID, TrapRows
from ..stacklist.frames import NamedFrame
from ..stacks.kernel import TrapUnwind
from ..traps.lister import Complete, TrapStates
from ..traps.state import TrapState


class TrapFrames(Command[TrapState, TrapState]):
    """The work of `windows.trapframes`."""

    grid = GRID
    nothing = "No saved registers: none of the selected threads has a trap frame"
    grouped = True

    @cached_property
    def _rows(self) -> TrapRows:
        return TrapRows(self.named)

    def steps(self) -> Iterator[TrapState]:
        return TrapStates.list_states(
            self.image,
            self.symbolizer,
            pids=self.pids,
            offset=self.config.get("offset"),
            tids=self.config.get("tid") or None,
            scan_stacks=self.option("scan_stacks") or self.image.threads_only,
            processors=self.option("processors") or self._has_stopped_processors(),
            scan_threads=self.option("scan_threads"),
            members=self.option("members"),
            complete=self._complete,
        )

    @cached_property
    def _complete(self) -> Optional[Complete]:
        """Adds the registers that walks recover; None without --unwind."""
        return TrapUnwind(self.image, self.symbolizer).complete if self.option("unwind") else None

    def divides(self) -> bool:
        # Stacks of processors and scanned threads belong to no process, or are compared with all threads.
        together = ("scan_stacks", "scan_threads", "processors")
        return not self.image.threads_only and not any(map(self.option, together))

    def portions(self) -> List[WorkerPortion]:
        lister = TrapStates(self.image, self.symbolizer, self.option("members"))
        listed = Threads.list_threads(
            self.image, self.pids, self.config.get("offset"), self.config.get("tid") or None
        )
        found = []
        for space, threads in itertools.groupby(listed, attrgetter("space")):
            ended = TrapState(space, None, THREAD, status=status(StatusCode.WORKER_ENDED))
            found.append(
                WorkerPortion(
                    self.describe(ended),
                    f"process {space.pid_text}",
                    partial(lister.of_threads, list(threads), complete=self._complete),
                    partial(self._shown, ended),
                )
            )
        return found

    def _has_stopped_processors(self) -> bool:
        """Returns whether the input is a small kernel dump with the registers of its processors."""
        listed = self.image.service(processors_of) if self.image.threads_only else ()
        return any(processor.context for processor in listed)

    def count(self, steps: Iterable[TrapState]) -> int:
        """Returns the number of processes to read; it does not read them, which would warn twice."""
        if self.config.get("offset") is not None:
            return 1
        return len(self.image.service(process_list).processes() if self.pids is None else self.pids)

    def space(self, step: TrapState) -> AddressSpace:
        return step.space

    def describe(self, step: TrapState) -> str:
        return f"Reading the trap frames of process {step.space.pid_text}"

    def items(self, step: TrapState) -> Iterable[TrapState]:
        self.requested.mark_seen("tid", step.tid)
        return (step,)

    def is_gap(self, item: TrapState) -> bool:
        return has_status(item.status, StatusCode.WORKER_ENDED)

    def rows(self, item: TrapState, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        yield 0, self._rows.row(item)
        for member in item.members:
            yield 1, self._rows.member_row(item, member)
