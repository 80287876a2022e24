# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.stacktracedb`."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

from ..columns.words import HEAPLOG
from ..memory.decode.status import Status, status, text
from ..memory.image import AddressSpace
from ..process import globalflag
from ..process.decode import globalflags
from ..rows.databasecommand import DatabaseCommand
from ..rows.entries import SPACE, ShownEntry
from ..rows.frames import FramePrinter, folded, unbacked
from ..rows.grid import NOT_APPLICABLE, UNPARSABLE, UNREADABLE, Cells, Grid, Hex, Row, or_unreadable
from ..rows.plugin import DISABLED, FAILED, write_file
from ..stacklist.frames import NamedFrame, SpaceFrames
from ..stacklist.machine import machine_facts
from ..tracedb.decode import backtraces
from ..tracedb.decode import status as tracestatus
from ..tracedb.decode.anomalies import Trace
from ..tracedb.decode.database import StdDatabase
from ..tracedb.decode.header import Header
from ..tracedb.decode.heaplog import HeapLog
from ..tracedb.gap import Gap, gap
from ..tracedb.model import Database

GRID = Grid.for_plugin("stacktracedb")

_ENTRY = (*SPACE, "Database", "Index", "EntryAddress")
_TRACE = GRID.maker(*_ENTRY, "Count", "Depth", "Status", "BackTraceHash", "Stack", "Unbacked")
_FRAMES = GRID.frames_maker(*_ENTRY)
_FIGURES = ("CommittedMemory", "ReservedMemory", "Lookups", "BackTraces")
"""The columns of a database's header, computed as Windows does."""


class TraceRows:
    """Makes the rows of the traces of a database. There may be a hundred thousand."""

    def __init__(self, database: Database, names: SpaceFrames, printer: FramePrinter) -> None:
        space = database.space
        self.names = names
        self._printer = printer
        self._no_count = NOT_APPLICABLE if database.kind == HEAPLOG else UNREADABLE
        process = or_unreadable(space.pid), or_unreadable(space.known_name)
        self._key: Cells = (*process, space.arch, self._hex(database.address))

    def folded(self, trace: Trace) -> Cells:
        """Returns the row of a back trace with its frames in the column Stack."""
        frames = self.names.stack(trace.frames, bool(trace.status & tracestatus.FREED))
        return self._trace(trace, self._hex(trace.address), frames, folded(frames, mask=self._printer.mask))

    def unfolded(self, trace: Trace) -> Iterator[Row]:
        """Returns the rows of a back trace and of its frames below it."""
        frames = self.names.stack(trace.frames, bool(trace.status & tracestatus.FREED))
        entry = self._hex(trace.address)
        pid, process, arch, database = self._key
        index, below = trace.trace_index or NOT_APPLICABLE, map(self._printer.__getitem__, frames)
        rows = _FRAMES(pid, process, arch, database, index, entry, below)
        return itertools.chain(((0, self._trace(trace, entry, frames, NOT_APPLICABLE)),), rows)

    def _trace(self, trace: Trace, entry: Hex, frames: List[NamedFrame], stack: object) -> Cells:
        index, _, count, depth, total, _, _, flags = trace
        pid, process, arch, database = self._key
        return _TRACE(
            pid,
            process,
            arch,
            database,
            index or NOT_APPLICABLE,
            entry,
            self._no_count if count is None else count,
            UNREADABLE if depth is None else depth,
            tracestatus.text(flags),
            UNREADABLE if total is None else Hex(total),
            stack,
            0 if frames and not self.names.any_unbacked else unbacked(frames),
        )

    def _hex(self, address: int) -> Hex:
        return Hex(address & self._printer.mask)


class StackTraceDb(DatabaseCommand[AddressSpace, Database]):
    """The work of `windows.stacktracedb`."""

    grid = GRID
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
        rows = TraceRows(item, self.frames_of(item.space), self.printer)
        row_status, dump, carve = item.status, self.option("dump"), self.option("carve")
        self.matched = self.matched or dump
        indices = self.requested.requested_ids("index")
        picked = self.databases.look_up_traces(item, indices) if indices and not (dump or carve) else None
        if picked is not None:
            yield 0, self._database(item, item.header, row_status, DISABLED)
            yield from self._traces(rows, picked)
            return
        opened = self.databases.open_database(item)
        if opened is None:
            yield 0, self._database(item, None, row_status, FAILED if dump else DISABLED)
            return
        row_status = status(row_status, opened.status)
        if isinstance(opened, HeapLog):
            unreadable = opened.figures().unreadable
            # Its only figure is its number of records.
            count = or_unreadable(opened.trace_count)
            yield 0, self._figures(item, row_status, {"BackTraces": count})
        else:
            unreadable = opened.unreadable
            file_output = self._dump(item, opened) if dump else DISABLED
            yield 0, self._database(item, opened.header, row_status, file_output)
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

    def _database(
        self, database: Database, header: Optional[Header], row_status: Status, file_output: str
    ) -> Cells:
        """Returns the row of a database itself; `header` is None if it cannot be decoded."""
        figures: Cells = (UNPARSABLE,) * len(_FIGURES)
        if header is not None:
            memory = header.committed_memory, header.reserved_memory
            figures = (*memory, header.lookups, header.back_traces)
        cells = {**dict(zip(_FIGURES, figures)), "File output": file_output}
        return self._figures(database, row_status, cells)

    def _figures(self, database: Database, row_status: Status, figures: Dict[str, object]) -> Cells:
        cells = {"Database": database.address, **figures}
        return self.entries.cells(ShownEntry(database.space, row_status, cells))

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


def missing(space: AddressSpace, flags: Optional[int], row_status: Status) -> str:
    """Returns the warning that no database is found although the flags of a space ask for one, or ''. `flags`
    is NtGlobalFlag, None if it cannot be read."""
    why = status(space.remark, row_status or space.status)
    if not why:
        return ""
    who = "The kernel" if space.kernel else f"Process {space.pid_text} ({space.arch})"
    flags_text = "" if flags is None else f" (NtGlobalFlag {flags:#x}: {globalflags.abbreviate(flags)})"
    return f"{who}{flags_text}: {text(why)}"
