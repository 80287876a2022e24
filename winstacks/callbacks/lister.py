# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the callbacks of an address space: of the kernel by its lists, of a process by its own structure.

`InstrumentationCallback` of a process is code to which the kernel returns instead of to the place behind a
system call (public symbols; described: Alex Ionescu, "Hooking Nirvana", 2015). In an x64 kernel it is of the
64-bit code of the process.
"""

from __future__ import annotations

from typing import Callable, Iterator, Tuple

from ..memory.decode.status import has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace, Image
from ..process.kernelobjects import process_at
from .callback import INSTRUMENTATION, Callback, ListFollower
from .timers import KernelTimers
from .workitems import QUEUES, WorkItems

_MEMBERS = ("Pcb.InstrumentationCallback", "InstrumentationCallback")
"""x64 kernels have it in the KPROCESS, x86 kernels in the EPROCESS; both since 7 or later."""


class Callbacks:
    """Lists the callbacks of the address spaces of an image."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def list_callbacks(self, space: AddressSpace) -> Iterator[Callback]:
        """Yields the callbacks of an address space, and rows for those that cannot be read."""
        if not space.kernel:
            yield from self._of_process(space)
            return
        # A structure that the symbols lack costs only its own callbacks.
        for listed in self._of_kernel():
            yield from self._image.possible(listed())

    def _of_kernel(self) -> Tuple[Callable[[], Iterator[Callback]], ...]:
        lists = ListFollower(self._image.memory(self._image.kernel))

        def timers() -> Iterator[Callback]:
            yield from KernelTimers(self._image, lists).list_timers()

        def dpcs() -> Iterator[Callback]:
            yield from KernelTimers(self._image, lists).list_dpcs()

        def items() -> Iterator[Callback]:
            # Every kernel has the symbol. A table that someone made smaller says nothing of its queues.
            if self._image.symbol(QUEUES) is not None:
                yield from WorkItems(self._image, lists).list_items()

        return timers, dpcs, items

    def _of_process(self, space: AddressSpace) -> Iterator[Callback]:
        process = process_at(self._image, space.eprocess)
        if space.wow64 or process.structure.first_member(*_MEMBERS) is None:
            return
        routine = process.first(*_MEMBERS)
        if routine:
            yield Callback(INSTRUMENTATION, space.eprocess, (routine,))
        elif routine is None and not has_status(space.remark, StatusCode.PROCESS_UNREADABLE):
            yield Callback(INSTRUMENTATION, space.eprocess, (), status(StatusCode.UNREADABLE))
