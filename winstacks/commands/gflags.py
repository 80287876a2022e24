# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.gflags`."""

from __future__ import annotations

from typing import Iterator, Optional

from volatility3.framework import interfaces

from ..heaps.lister import Heaps
from ..memory.image import AddressSpace
from ..names.moduleindex import ModuleIndexes
from ..names.pdbsymbols import PdbSymbols
from ..process import globalflag
from ..process.decode.globalflags import FLG_USER_STACK_TRACE_DB
from ..process.spaces import AddressSpaces
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import Listing, tree
from ..rows.traces import FLAGS, FlagRows
from ..tracedb.finder import Databases


class GFlags(Command):
    """What `windows.gflags` does."""

    def _generator(self) -> Iterator[Row]:
        with Listing(self) as listing:
            image = self.image
            finder = Databases(image, ModuleIndexes(image, PdbSymbols(image)))
            heaps, rows = Heaps(image, finder), FlagRows(image)
            listed = list(AddressSpaces.list_spaces(image, self.config.get("pid")))
            for space in listing.each(listed, _work, len(listed)):
                listing.matched = True
                flags = globalflag.read(image, space)
                found = finder.search(space, self.config.get("carve", False))
                silent = _asks_for_traces(flags) and heaps.log_no_block(space)
                yield 0, rows.space(space, flags, finder.missing(space, found, flags), silent)
                for each in found.databases:
                    yield 1, rows.database(each, finder.open(each))

    def run(self) -> interfaces.renderers.TreeGrid:
        return tree(self.plugin, FLAGS, self._generator())


def _asks_for_traces(flags: Optional[int]) -> bool:
    return bool((flags or 0) & FLG_USER_STACK_TRACE_DB)


def _work(space: AddressSpace) -> str:
    return f"Checking the databases of process {space.pid}"
