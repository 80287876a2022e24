# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.stacktracedb`."""

from __future__ import annotations

import itertools
from typing import Any, Iterable, Iterator, List, Sequence, Union

from ..memory.decode.status import status
from ..memory.image import AddressSpace
from ..process import globalflag
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import DISABLED, FAILED, write_file
from ..rows.traces import TRACES, TraceRows, missing
from ..stacklist.frames import NamedFrame
from ..stacklist.machine import machine_facts
from ..tracedb.decode import backtraces
from ..tracedb.decode.anomalies import Trace
from ..tracedb.decode.database import StdDatabase
from ..tracedb.decode.heaplog import HeapLog
from ..tracedb.gap import Gap, gap
from ..tracedb.model import Database


class StackTraceDb(Command[AddressSpace, Database]):
    """The work of `windows.stacktracedb`."""

    grid = TRACES
    recorded = True
    things = "back traces"
    to_enable = (
        "No stack trace database: the kernel keeps one when NtGlobalFlag has +kst 0x2000, "
        "a process when its own has +ust 0x1000 (windows.gflags shows the flags)"
    )

    def steps(self) -> List[AddressSpace]:
        self._spaces: List[AddressSpace] = list(super().steps())
        self._objections = 0
        return self._spaces

    def divides(self) -> bool:
        # Files of workers would compete for their names.
        return not self.option("dump")

    def take(self) -> Any:
        objections, self._objections = self._objections, 0
        return objections, super().take()

    def merge(self, counted: Any) -> None:
        objections, others = counted
        super().merge(others)
        self._objections += objections
        self.unread = self._objections == len(self._spaces)

    def describe(self, step: AddressSpace) -> str:
        return f"Reading the databases of process {step.pid_text}"

    def items(self, step: AddressSpace) -> Iterator[Union[Database, Gap]]:
        found = self.databases.search(step, self.option("carve"))
        flags = globalflag.read(self.image, step)
        absent = self.databases.missing(step, found, flags)
        objection = missing(step, flags, absent)
        if objection:
            self._objections += 1
            self.log.warning(objection)
        if step.status or step.remark or absent:
            yield gap(step, step.remark, step.status, absent)
        yield from found.databases
        # If any space can be read, advice on how to enable databases is the better answer.
        self.unread = self._objections == len(self._spaces)

    def rows(self, item: Database, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        rows = TraceRows(self.image, item, self.frames_of(item.space), self.printer)
        row_status, dump, carve = item.status, self.option("dump"), self.option("carve")
        self.matched = self.matched or dump
        indices = self.requested.requested_ids("index")
        picked = self.databases.look_up_traces(item, indices) if indices and not (dump or carve) else None
        if picked is not None:
            yield 0, rows.database(item.header, row_status, DISABLED)
            yield from self._traces(rows, picked)
            return
        opened = self.databases.open_database(item)
        if opened is None:
            yield 0, rows.database(None, row_status, FAILED if dump else DISABLED)
            return
        row_status = status(row_status, opened.status)
        if isinstance(opened, HeapLog):
            unreadable = opened.figures().unreadable
            yield 0, rows.heaplog(opened.trace_count, row_status)
        else:
            unreadable = opened.unreadable
            yield (
                0,
                rows.database(opened.header, row_status, self._dump(item, opened) if dump else DISABLED),
            )
        space = item.space
        where = f"Process {space.pid_text} ({space.arch}), {item.kind} at {item.address:#x}"
        if unreadable:
            self.log.warning(f"{where}: {unreadable} bytes of the used parts are not in the image")
        if isinstance(opened, StdDatabase) and opened.unlisted:
            self.log.warning(
                f"{where}: {opened.unlisted} more index slots lead to no entry; they have no row"
            )
        if not dump:
            yield from self._traces(rows, self.with_progress(opened.traces(carve), self.describe(space)))

    def _traces(self, rows: TraceRows, traces: Iterable[Trace]) -> Iterator[Row]:
        if self.requested.requested_ids("index"):
            traces = self._indexed(traces)
        if not self.selection.everything:
            takes = self.selection.by_addresses(rows.names.frame)
            traces = (trace for trace in traces if takes(trace.frames))
        if self.option("fold"):
            return self.mark_found(zip(itertools.repeat(0), map(rows.folded, traces)))
        return self.mark_found(itertools.chain.from_iterable(map(rows.unfolded, traces)))

    def _indexed(self, traces: Iterable[Trace]) -> Iterator[Trace]:
        """Yields the traces whose index --index names."""
        indices = self.requested.requested_ids("index")
        for trace in traces:
            if trace.trace_index in indices:
                self.requested.mark_seen("index", trace.trace_index)
                yield trace

    def _dump(self, database: Database, opened: StdDatabase) -> str:
        """Writes RTL_PROCESS_BACKTRACES; returns the name of the file."""
        space = database.space
        address = self.image.machine.masked(database.address)
        name = f"backtraces.{space.file_part}.{space.arch}.{address:x}.bin"
        build = self.image.service(machine_facts).kernel().build
        layout = self.databases.layouts(space).backtraces(build)
        return write_file(self.plugin, name, backtraces.encode(opened.buffer(), opened.records(), layout))
