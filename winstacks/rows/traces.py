# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.stacktracedb`: databases and their traces."""

from __future__ import annotations

import itertools
from typing import Iterator, List, Optional

from ..columns.words import HEAPLOG
from ..memory.decode.status import Status, status, text
from ..memory.image import AddressSpace, Image
from ..process.decode import globalflags
from ..stacklist.frames import NamedFrame, SpaceFrames
from ..tracedb.decode import status as tracestatus
from ..tracedb.decode.anomalies import Trace
from ..tracedb.decode.header import Header
from ..tracedb.model import Database
from .frames import FramePrinter, folded, unbacked
from .grid import NOT_APPLICABLE, UNPARSABLE, UNREADABLE, Cells, Grid, Hex, Row, or_unreadable

TRACES = Grid.for_plugin("stacktracedb")

_SPACE = ("PID", "Process", "Arch")


class TraceRows:
    """Makes the rows of one database in `windows.stacktracedb`."""

    def __init__(self, image: Image, database: Database, names: SpaceFrames, printer: FramePrinter) -> None:
        space = database.space
        self._mask = image.machine.address_mask
        self.names = names
        self._printer = printer
        self._no_count = NOT_APPLICABLE if database.kind == HEAPLOG else UNREADABLE
        self._key: Cells = (
            or_unreadable(space.pid),
            or_unreadable(space.known_name),
            space.arch,
            self._hex(database.address),
        )
        key = (*_SPACE, "Database")
        figures = ("CommittedMemory", "ReservedMemory", "Lookups", "BackTraces")
        entry = (*key, "Index", "EntryAddress")
        self._database = TRACES.maker(*key, "Status", *figures, "File output")
        self._heaplog = TRACES.maker(*key, "Status", "BackTraces")
        self._row = TRACES.maker(*entry, "Count", "Depth", "Status", "BackTraceHash", "Stack", "Unbacked")
        self._frames = TRACES.frames_maker(*entry)

    def database(self, header: Optional[Header], row_status: Status, file_output: str) -> Cells:
        """Returns the row of the database itself; its header figures are computed as Windows does."""
        figures: Cells = (UNPARSABLE,) * 4
        if header is not None:
            memory = (Hex(header.committed_memory), Hex(header.reserved_memory))
            figures = (*memory, header.lookups, header.back_traces)
        return self._database(*self._key, text(row_status), *figures, file_output)

    def heaplog(self, trace_count: Optional[int], row_status: Status) -> Cells:
        """Returns the row of a heap's trace log, whose only figure is its number of records."""
        return self._heaplog(*self._key, text(row_status), or_unreadable(trace_count))

    def folded(self, trace: Trace) -> Cells:
        """Returns the row of a back trace with its frames in the column Stack."""
        frames = self.names.stack(trace.frames, bool(trace.status & tracestatus.FREED))
        return self._trace(trace, self._hex(trace.address), frames, folded(frames, mask=self._mask))

    def unfolded(self, trace: Trace) -> Iterator[Row]:
        """Returns the rows of a back trace and of its frames below it."""
        frames = self.names.stack(trace.frames, bool(trace.status & tracestatus.FREED))
        entry = self._hex(trace.address)
        pid, process, arch, database = self._key
        index, below = trace.trace_index or NOT_APPLICABLE, map(self._printer.__getitem__, frames)
        rows = self._frames(pid, process, arch, database, index, entry, below)
        return itertools.chain(((0, self._trace(trace, entry, frames, NOT_APPLICABLE)),), rows)

    def _trace(self, trace: Trace, entry: Hex, frames: List[NamedFrame], stack: object) -> Cells:
        index, _, count, depth, total, _, _, flags = trace
        pid, process, arch, database = self._key
        return self._row(
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
        return Hex(address & self._mask)


def missing(space: AddressSpace, flags: Optional[int], row_status: Status) -> str:
    """Returns the warning that no database is found although the flags of a space ask for one, or ''.

    Args:
        flags: NtGlobalFlag, None if it cannot be read
        row_status: reason why no database is found
    """
    why = status(space.remark, row_status or space.status)
    if not why:
        return ""
    who = "The kernel" if space.kernel else f"Process {space.pid_text} ({space.arch})"
    flags_text = "" if flags is None else f" (NtGlobalFlag {flags:#x}: {globalflags.abbreviate(flags)})"
    return f"{who}{flags_text}: {text(why)}"
