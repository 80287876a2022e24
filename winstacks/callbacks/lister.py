# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the callbacks of an address space: of the kernel by its lists, of a process by its own structures.

`InstrumentationCallback` of a process is code to which the kernel returns instead of to the place behind a
system call (public symbols; described: Alex Ionescu, "Hooking Nirvana", 2015). In an x64 kernel it is of the
64-bit code of the process.
"""

from __future__ import annotations

import functools
from typing import Callable, Iterator, Tuple

from ..memory.decode.status import has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..process.kernelobjects import process_at
from .apcs import QueuedApcs
from .callback import INSTRUMENTATION, Callback, ListFollower
from .callbacktable import of_table
from .timers import KernelTimers
from .workitems import QUEUES, WorkItems

_MEMBERS = ("Pcb.InstrumentationCallback", "InstrumentationCallback")
"""x64 kernels have it in the KPROCESS, x86 kernels in the EPROCESS; both since 7 or later."""


class Callbacks:
    """Lists the callbacks of the address spaces of an image."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._lists = ListFollower(image.memory(image.kernel))

    def list_callbacks(self, space: AddressSpace) -> Iterator[Callback]:
        """Yields the callbacks of an address space, and rows for those that cannot be read."""
        # A structure that the symbols lack costs only its own callbacks.
        for listed in self._of_kernel() if space.kernel else self._of_process(space):
            yield from self._image.possible(listed())

    @functools.cached_property
    def _apcs(self) -> QueuedApcs:
        return QueuedApcs(self._image, self._lists)

    def _of_kernel(self) -> Tuple[Callable[[], Iterator[Callback]], ...]:
        lists = self._lists

        def timers() -> Iterator[Callback]:
            yield from KernelTimers(self._image, lists).list_timers()

        def dpcs() -> Iterator[Callback]:
            yield from KernelTimers(self._image, lists).list_dpcs()

        def items() -> Iterator[Callback]:
            # Every kernel has the symbol. A table that someone made smaller says nothing of its queues.
            if self._image.symbol(QUEUES) is not None:
                yield from WorkItems(self._image, lists).list_items()

        def apcs() -> Iterator[Callback]:
            yield from self._apcs.of_kernel()

        return timers, dpcs, items, apcs

    def _of_process(self, space: AddressSpace) -> Tuple[Callable[[], Iterator[Callback]], ...]:
        def apcs() -> Iterator[Callback]:
            if not space.wow64:
                yield from self._apcs.of_process(space)

        def table() -> Iterator[Callback]:
            yield from of_table(self._image, space)

        return functools.partial(self._instrumentation, space), apcs, table

    def _instrumentation(self, space: AddressSpace) -> Iterator[Callback]:
        process = process_at(self._image, space.eprocess)
        if space.wow64 or process.structure.first_member(*_MEMBERS) is None:
            return
        routine = process.first(*_MEMBERS)
        if routine:
            yield Callback(INSTRUMENTATION, space.eprocess, (routine,))
        elif routine is None and not has_status(space.remark, StatusCode.PROCESS_UNREADABLE):
            yield Callback(INSTRUMENTATION, space.eprocess, (), status(StatusCode.UNREADABLE))
