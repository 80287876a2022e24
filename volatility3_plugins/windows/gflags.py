# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from __future__ import annotations

from typing import Iterator, List, Optional

from volatility3.framework import interfaces

from .stacktraces.base import globalflag
from .stacktraces.base.decode.globalflags import FLG_USER_STACK_TRACE_DB
from .stacktraces.base.image import AddressSpace
from .stacktraces.base.spaces import AddressSpaces
from .stacktraces.heaps.lister import Heaps
from .stacktraces.names.moduleindex import ModuleIndexes
from .stacktraces.names.pdbsymbols import PdbSymbols
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing, tree
from .stacktraces.tracedb.finder import Databases


class GFlags(interfaces.plugins.PluginInterface):
    """Lists NtGlobalFlag of the kernel and of every process, and the trace databases that each has.

    Below each address space stand its databases, with a self-check of each: what the index array, the hash
    chains and the blocks of the database say of its traces.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(databases=Databases, heaps=Heaps),
            options.pid(zero_means="the kernel"),
            options.switch("carve", "Also show databases that no pointer leads to"),
            options.brief(),
        ]

    def _generator(self) -> Iterator[Row]:
        from .stacktraces.rows.traces import FlagRows

        with Listing(self) as listing:
            image = options.image(self)
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
        from .stacktraces.rows.traces import FLAGS

        return tree(self, FLAGS, self._generator())


def _asks_for_traces(flags: Optional[int]) -> bool:
    return bool((flags or 0) & FLG_USER_STACK_TRACE_DB)


def _work(space: AddressSpace) -> str:
    return f"Checking the databases of process {space.pid}"
