# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The heaps of processes whose blocks remember who allocated them.

heaps = Heaps(context, kernel_module_name, config_path, databases)
for space in AddressSpaces.list_spaces(context, kernel_module_name):
    contents = heaps.read(space)
    if contents:
        contents.owners, contents.groups
"""

from __future__ import annotations

import logging
from typing import Dict, Iterator, List, Optional, Tuple

from volatility3.framework import interfaces

from ..base import globalflag
from ..base.decode import globalflags
from ..base.spaces import AddressSpace
from ..base.vads import Vads
from ..tracedb.finder import Databases
from ..tracedb.found import STD
from . import layouts as heaptypes
from .decode.contents import Contents, read_contents
from .decode.find import find
from .decode.memory import HeapMemory
from .decode.trace import DATABASE, Trace, Traces
from .layouts import HeapTypes
from .space import HeapSpace, find_space, listed_heaps

vollog = logging.getLogger(__name__)

FLAGS_UNREADABLE = "flags unreadable"


class Heaps(interfaces.configuration.VersionableInterface):
    """Reads the heaps of processes.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        config_path: where the configuration of our symbol tables goes
        databases: finds and opens the databases of the image
    """

    _version = (1, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(
        self,
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        config_path: str,
        databases: Databases,
    ) -> None:
        super().__init__()
        self._context = context
        self._kernel_module_name = kernel_module_name
        self._config_path = config_path
        self._databases = databases
        self._vads = Vads(context, kernel_module_name)
        self._types: Dict[Tuple[str, bool], HeapTypes] = {}

    def read(self, space: AddressSpace, keep: bool = False) -> Optional[Contents]:
        """Reads the heaps of one half of a process.

        Args:
            space: the half of a process; the kernel has no such heaps
            keep: whether to keep each block, not their counts only

        Returns:
            What is in the heaps; None when none of them remembers who allocates. Where that cannot be told
            they are empty, and have a status: the space's, or `flags unreadable` (NtGlobalFlag is not
            present, and no heap says itself that it remembers).

        Raises:
            tables.MissingTableError: when one of our symbol tables is missing
        """
        if space.kernel:
            return None
        contents = self._read(space, keep) if space.layer_name else None
        if contents is not None:
            return contents._replace(status=space.status)
        status = space.status or ("" if self._flags_known(space) else FLAGS_UNREADABLE)
        return Contents([], [], 0, status) if status else None

    def _read(self, space: AddressSpace, keep: bool) -> Optional[Contents]:
        types = self._types_of(space)
        flagged = self._flagged(space)
        listed = listed_heaps(self._context, space, types)
        if listed is not None and not flagged and not self._any_traced(space, types, listed):
            return None
        where = find_space(self._context, self._vads, space)
        memory = HeapMemory(self._databases.reader(space), where.ranges, space.pointer_size)
        found = find(memory, types.layouts, listed or [], where.private)
        if not found.traced and not (flagged and found.damaged):
            return None
        traces = self._traces(space, memory)
        contents = read_contents(memory, found, types.layouts, types.page_info, traces, listed, keep)
        self._tell(space, where, listed, contents)
        return contents

    def _types_of(self, space: AddressSpace) -> HeapTypes:
        key = (space.arch, space.wow64)
        if key not in self._types:
            table = self._context.modules[self._kernel_module_name].symbol_table_name
            self._types[key] = heaptypes.load(self._context, self._config_path, table, space)
        return self._types[key]

    def _flagged(self, space: AddressSpace) -> bool:
        """Tells whether NtGlobalFlag says that heaps may remember, or cannot be read."""
        flags = globalflag.read(self._context, self._kernel_module_name, space)
        return flags is None or bool(flags & globalflags.MAKES_USER_DATABASE)

    def _flags_known(self, space: AddressSpace) -> bool:
        """Tells whether NtGlobalFlag can be read; a process without a PEB, such as System, has none."""
        return not space.peb or globalflag.read(self._context, self._kernel_module_name, space) is not None

    def _any_traced(self, space: AddressSpace, types: HeapTypes, listed: List[int]) -> bool:
        """Tells whether a listed heap remembers, by its own words: cheaper than a look at all memory."""
        everything = [(0, 1 << 8 * space.pointer_size)]
        memory = HeapMemory(self._databases.reader(space), everything, space.pointer_size)
        return find(memory, types.layouts, listed).traced

    def _traces(self, space: AddressSpace, memory: HeapMemory) -> Traces:
        layouts = self._databases.layouts(space)

        def database() -> Iterator[Trace]:
            for found in self._databases.find(space):
                opened = self._databases.open(found) if found.kind == STD else None
                for trace in opened.traces(carve=True) if opened else ():
                    yield Trace(DATABASE, trace.address, trace.trace_index or 0, trace.frames, trace.status)

        return Traces(memory, layouts.heaplog, layouts.std[0].entry, database)

    def _tell(
        self, space: AddressSpace, where: HeapSpace, listed: Optional[List[int]], contents: Contents
    ) -> None:
        """Says in the log what rows cannot."""
        who = f"Process {space.pid} ({space.arch})"
        if not where.whole:
            vollog.warning(f"{who}: the VADs cannot be read to their end, the page tables are taken instead")
        if listed is None:
            vollog.warning(
                f"{who}: the PEB's list of heaps cannot be read, heaps are told by their signatures"
            )
        if contents.lost:
            vollog.warning(f"{who}: in {contents.lost} bytes of its heaps no block's header can be told")
