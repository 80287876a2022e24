# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every stack of an image, whoever remembered it.

    symbolizer = Symbolizer(image)
    for stack in FlatTraces(symbolizer).list_stacks(FlatWanted(kinds=("std", "lock"))): ...

The stacks come kind by kind, and of one kind process by process. None is kept.
"""

from __future__ import annotations

from typing import Iterator

from volatility3.framework import interfaces

from ..base.space import KERNEL_PID, AddressSpace
from ..base.spaces import AddressSpaces
from ..handles.lister import HandleLister
from ..heaps.lister import Heaps
from ..locks.lister import LockLister
from ..names.symbolizer import Symbolizer
from ..objects.lister import ObjectTraceLister
from ..tracedb.finder import Databases
from .decode.schema import HANDLE, HEAP, HEAPLOG, LOCK, OBJECT, STD, THREAD_KINDS
from .events import HandleStacks, ObjectStacks
from .frames import FlatFrames
from .recorded import DatabaseStacks, HeapStacks, LockStacks
from .stack import FlatStack, FlatWanted
from .walked import ThreadStacks

EVERYTHING = FlatWanted()


class FlatTraces(interfaces.configuration.VersionableInterface):
    """Lists the stacks of an image.

    Args:
        symbolizer: knows the modules of every address space
    """

    _version = (2, 0, 0)
    _required_framework_version = (2, 0, 0)

    def __init__(self, symbolizer: Symbolizer) -> None:
        super().__init__()
        self._symbolizer = symbolizer
        self._image = symbolizer.image
        self._frames = FlatFrames(symbolizer)
        self._databases = Databases(self._image, symbolizer.indexes)

    def list_stacks(self, wanted: FlatWanted = EVERYTHING) -> Iterator[FlatStack]:
        """Yields the stacks that are wanted, and what stands for those that cannot be read.

        Args:
            wanted: which

        Raises:
            tables.MissingTableError: when one of our symbol tables is missing
        """
        return filter(wanted.takes, self._listed(wanted))

    def _listed(self, wanted: FlatWanted) -> Iterator[FlatStack]:
        if wanted.has(*THREAD_KINDS):
            threads = ThreadStacks(self._symbolizer, self._frames)
            for thread in threads.list_threads(wanted):
                yield from threads.of_thread(thread)
        # Neither traces of databases nor those of heaps and objects say which thread left them.
        if not wanted.tids and wanted.has(STD, HEAPLOG):
            kinds = [kind for kind in (STD, HEAPLOG) if wanted.has(kind)]
            traces = DatabaseStacks(self._symbolizer, self._frames, self._databases)
            for space in self._spaces(wanted):
                yield from traces.of_space(space, kinds, wanted.carve)
        if not wanted.tids and wanted.has(HEAP):
            heaps = HeapStacks(self._frames, Heaps(self._image, self._databases))
            for space in self._spaces(wanted):
                yield from heaps.of_space(space)
        if wanted.has(LOCK):
            locks = LockStacks(self._frames, LockLister(self._image, self._databases))
            for space in self._spaces(wanted):
                yield from locks.of_space(space)
        if wanted.has(HANDLE):
            lister = HandleLister(self._image, self._databases)
            yield from HandleStacks(self._image, self._frames, lister).list_stacks(wanted.pids)
        if not wanted.tids and wanted.has(OBJECT) and (not wanted.pids or KERNEL_PID in wanted.pids):
            yield from ObjectStacks(self._image, self._frames, ObjectTraceLister(self._image)).list_stacks()

    def _spaces(self, wanted: FlatWanted) -> Iterator[AddressSpace]:
        return AddressSpaces.list_spaces(self._image, wanted.pids)
