# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The machine of a dump: the Windows build, and the time at which the dump was written."""

from __future__ import annotations

from typing import Iterable, Optional, Tuple

from ..columns.words import ALL, PROCESS_DUMP, PRODUCTS, SOME, TRUNCATED
from ..memory.decode.machine import Machine
from ..memory.decode.status import NOTHING, has_status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import SECOND, UNIX_EPOCH, printable
from ..memory.image import AddressSpace
from ..stacklist.machine import Clock, ComputerName, Input, Kernel
from .decode.dumpfile import Minidump
from .decode.memory import memory_ranges
from .decode.system import NO_MISC, SystemInfo, misc_info
from .decode.threads import ExceptionStream, exception_stream

WITH_FULL_MEMORY = 2
"""MiniDumpWithFullMemory ("minidumpapiset.h")."""


class DumpFacts:
    """The provider of `machine_facts`. A dump names no computer and no boot time."""

    def __init__(self, dump: Minidump, system: Optional[SystemInfo], machine: Machine) -> None:
        self._dump = dump
        self._system = system
        self._machine = machine
        self._misc = misc_info(dump) or NO_MISC

    def clock(self) -> Clock:
        """Returns the time at which the dump was written, and the time zone."""
        stamp = self._dump.time_date_stamp
        time = (stamp + UNIX_EPOCH) * SECOND if stamp else None
        return Clock(time, None, "", None, self._misc.Bias, NOTHING)

    def kernel(self) -> Kernel:
        lab = self._misc.BuildString or ""
        if self._system is None:
            return Kernel(None, printable(lab), "", None)
        return Kernel(
            self._system.BuildNumber,
            printable(lab),
            PRODUCTS.get(self._system.ProductType, ""),
            self._system.NumberOfProcessors or None,
        )

    def computer_name(self, spaces: Iterable[AddressSpace]) -> ComputerName:
        return ComputerName("", NOTHING)

    def input(self) -> Input:
        """Returns the kind of input, whether the dump has full memory and is complete, and its exception."""
        _, faults = memory_ranges(self._dump)
        whole = ALL if self._dump.flags & WITH_FULL_MEMORY else SOME
        if self._dump.missing or has_status(faults, StatusCode.BEYOND_THE_FILE):
            whole = TRUNCATED
        met = exception_stream(self._dump)
        if met is None or not met.ExceptionCode:
            return Input(PROCESS_DUMP, whole)
        return Input(PROCESS_DUMP, whole, None, (), met.ExceptionCode, self._parameters(met))

    def _parameters(self, met: ExceptionStream) -> Tuple[int, ...]:
        """Returns the parameters of an exception, which are as wide as a pointer of the process."""
        mask = (1 << 8 * self._machine.pointer_size) - 1
        return tuple(value & mask for value in met.ExceptionInformation)
