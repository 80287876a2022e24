# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import logging
from typing import Dict, Iterator, List, Optional, Tuple

from volatility3.framework import interfaces, renderers

from .stacktraces.base import spaces, tables
from .stacktraces.locks import lister as locks
from .stacktraces.locks.lock import Lock
from .stacktraces.names import symbolizer
from .stacktraces.rows import options
from .stacktraces.rows.frames import names_of
from .stacktraces.rows.locks import COLUMNS, LockRows
from .stacktraces.rows.selection import Selection
from .stacktraces.tracedb import finder as databases
from .stacktraces.tracedb.creators import Creator

vollog = logging.getLogger(__name__)

Row = Tuple[int, Tuple[object, ...]]


class Locks(interfaces.plugins.PluginInterface):
    """Lists the kernel's ERESOURCEs and the critical sections of processes, with who made and who owns them.

    Below a lock stand the owners of a resource, then the frames of the stack that created the lock, from the
    Stack Trace Database of the kernel (gflags +kst) or of the process (+ust).
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            options.kernel(),
            *options.helpers(
                spaces=spaces.AddressSpaces,
                databases=databases.Databases,
                locks=locks.Locks,
                symbolizer=symbolizer.Symbolizer,
            ),
            options.pid("the kernel"),
            options.switch("held", "Show only locks that are owned (or where that cannot be read)"),
            options.switch(
                "contended", "Show only locks that are or were waited for (or where that cannot be read)"
            ),
            *options.selecting("locks created"),
            options.switch("dump", "Write the locks of each address space as RTL_PROCESS_LOCKS"),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        kernel_name = self.config["kernel"]
        names = options.symbolizer(self)
        finder = databases.Databases(self.context, kernel_name, self.config_path, names.indexes)
        lister = locks.Locks(self.context, kernel_name, finder)
        selection = options.selection(self)
        try:
            for space in spaces.AddressSpaces.list_spaces(self.context, kernel_name, self.config.get("pid")):
                self._progress_callback(0, f"Reading the locks of process {space.pid}")
                listed = list(lister.list_locks(space))
                if listed:
                    file_output = self._dump(lister, space, listed)
                    creators = lister.creators(space, listed)
                    # Without page tables of its own a process has but a row that says so.
                    layer_name = space.layer_name or self.context.modules[kernel_name].layer_name
                    rows = LockRows(self.context.layers[layer_name], space, names.names(space))
                    for each in filter(self._takes, listed):
                        yield from self._lock(each, creators, rows, selection, file_output)
        except tables.MissingTableError as error:
            vollog.error(error)

    def _takes(self, each: Lock) -> bool:
        """Tells whether a lock is wanted by --held and --contended."""
        unwanted_free = self.config.get("held", False) and each.held is False
        unwanted_calm = self.config.get("contended", False) and each.contended is False
        return not (unwanted_free or unwanted_calm)

    @staticmethod
    def _lock(
        each: Lock,
        creators: Dict[int, Creator],
        rows: LockRows,
        selection: Selection,
        file_output: str,
    ) -> Iterator[Row]:
        creator: Optional[Creator] = creators.get(each.back_trace_index or 0)
        frames = rows.frames(creator)
        if not (selection.everything or selection.takes(names_of(frames))):
            return
        yield 0, rows.lock(each, creator, file_output)
        for owner in each.owners:
            yield 1, rows.owner(each, owner)
        for cells in rows.frame_rows(each, frames):
            yield 1, cells

    def _dump(self, lister: locks.Locks, space: spaces.AddressSpace, listed: List[Lock]) -> str:
        """Writes RTL_PROCESS_LOCKS if that is wanted; returns the name of the file."""
        if not self.config.get("dump", False):
            return options.DISABLED
        name = f"locks.{space.pid}.{space.arch}.bin"
        return options.write_file(self, name, [lister.buffer(space, listed)])

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(COLUMNS, self._generator())
