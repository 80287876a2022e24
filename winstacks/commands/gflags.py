# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.gflags`."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Iterable, Iterator, Optional, Sequence

from ..heaps.lister import Heaps
from ..memory.decode.status import Status, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..names.moduleindex import ModuleIndexes
from ..names.pdbsymbols import PdbSymbols
from ..process import globalflag
from ..process.decode import globalflags
from ..rows.databasecommand import DatabaseCommand
from ..rows.entries import ShownEntry
from ..rows.grid import UNPARSABLE, Grid, Row
from ..stacklist.frames import NamedFrame
from ..tracedb.finder import Databases, Opened
from ..tracedb.model import Database

_FIGURES = ("Indexed", "Chained", "Freed", "Unindexed", "Mismatched", "Orphans", "UnreadableBytes")
"""The columns of a database's self-check, in the order of Figures."""


class GFlags(DatabaseCommand[AddressSpace, AddressSpace]):
    """The work of `windows.gflags`."""

    grid = Grid.for_plugin("gflags")
    unreadable = ("PID", "Process", "NtGlobalFlag", "Flags")
    recorded = True

    @cached_property
    def databases(self) -> Databases:
        """Finds the databases. No address is named, so no symbols are needed."""
        return Databases(self.image, ModuleIndexes(self.image, PdbSymbols(self.image)))

    @cached_property
    def _heaps(self) -> Heaps:
        return Heaps(self.image, self.databases)

    def divides(self) -> bool:
        return True

    def describe(self, step: AddressSpace) -> str:
        return f"Checking the databases of process {step.pid_text}"

    def items(self, step: AddressSpace) -> Iterable[AddressSpace]:
        return (step,)

    def rows(self, item: AddressSpace, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        flags = globalflag.read(self.image, item)
        found = self.databases.search(item, self.option("carve"))
        requests_traces = bool((flags or 0) & globalflags.FLG_USER_STACK_TRACE_DB)
        silent = requests_traces and self._heaps.log_no_block(item)
        yield 0, self.entries.cells(_flags(item, flags, self.databases.missing(item, found, flags), silent))
        for database in found.databases:
            yield 1, self.entries.cells(_checked(database, self.databases.open_database(database)))


def _flags(space: AddressSpace, flags: Optional[int], missing: Status, silent: bool) -> ShownEntry:
    """Returns the entry of an address space.

    Args:
        flags: NtGlobalFlag, None if it cannot be read
        missing: reason why no database is found although the flags ask for one
        silent: whether the heaps trace no block although the flags ask for traces
    """
    row_status = status(space.remark, space.status or missing, StatusCode.UST_WITHOUT_HPC if silent else None)
    if flags is None and not (space.status or missing):
        unread = space.peb or space.kernel or has_status(space.remark, StatusCode.PEB_NOT_IN_THE_DUMP)
        row_status = status(space.remark, StatusCode.FLAGS_UNREADABLE if unread else StatusCode.NO_PEB)
    names = None if flags is None else globalflags.abbreviate(flags)
    return ShownEntry(space, row_status, {"NtGlobalFlag": flags, "Flags": names})


def _checked(database: Database, opened: Optional[Opened]) -> ShownEntry:
    """Returns the entry of a database, with its self-check; `opened` is None if it cannot be opened."""
    cells = {
        "Kind": database.kind,
        "Database": database.address,
        "LocatedBy": database.located_by,
        "Layout": database.layout or UNPARSABLE,
        **dict(zip(_FIGURES, itertools.repeat(UNPARSABLE) if opened is None else opened.figures())),
    }
    row_status = status(database.status, None if opened is None else opened.status)
    return ShownEntry(database.space, row_status, cells)
