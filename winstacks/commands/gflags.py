# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.gflags`."""

from __future__ import annotations

from functools import cached_property
from typing import Iterable, Iterator, Sequence

from ..heaps.lister import Heaps
from ..memory.image import AddressSpace
from ..names.moduleindex import ModuleIndexes
from ..names.pdbsymbols import PdbSymbols
from ..process import globalflag
from ..process.decode.globalflags import FLG_USER_STACK_TRACE_DB
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.traces import FLAGS, FlagRows
from ..stacklist.frames import NamedFrame
from ..tracedb.finder import Databases


class GFlags(Command[AddressSpace, AddressSpace]):
    """The work of `windows.gflags`."""

    grid = FLAGS
    recorded = True

    @cached_property
    def databases(self) -> Databases:
        """Finds the databases. No address is named, so no symbols are needed."""
        return Databases(self.image, ModuleIndexes(self.image, PdbSymbols(self.image)))

    @cached_property
    def _heaps(self) -> Heaps:
        return Heaps(self.image, self.databases)

    @cached_property
    def _rows(self) -> FlagRows:
        return FlagRows(self.image)

    def describe(self, step: AddressSpace) -> str:
        return f"Checking the databases of process {step.pid_text}"

    def items(self, step: AddressSpace) -> Iterable[AddressSpace]:
        return (step,)

    def rows(self, item: AddressSpace, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        flags = globalflag.read(self.image, item)
        found = self.databases.search(item, self.option("carve"))
        requests_traces = bool((flags or 0) & FLG_USER_STACK_TRACE_DB)
        silent = requests_traces and self._heaps.log_no_block(item)
        yield 0, self._rows.space(item, flags, self.databases.missing(item, found, flags), silent)
        for database in found.databases:
            yield 1, self._rows.database(database, self.databases.open_database(database))
