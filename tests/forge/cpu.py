# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Processors: KPCR and KPRCB, and the stacks that belong to a processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .obj import Obj
from .phys import PAGE

if TYPE_CHECKING:
    from .kernel import Kernel
    from .thread import Thread


class Cpu:
    """One processor; `kpcr` and `kprcb` are open for writing.

    `current` makes a thread the running one; a stack of its own (`stack`) is named "dpc", "isr" or
    "ist1" to "ist7".
    """

    def __init__(self, kernel: Kernel, number: int) -> None:
        self._kernel = kernel
        self.number = number
        isf, space = kernel.isf, kernel.space
        embedded = "Prcb" if kernel.bits == 64 else "PrcbData"
        offset = isf.offset("_KPCR", embedded)
        size = max(isf.size("_KPCR"), offset + isf.size("_KPRCB"))
        if kernel.bits == 32 and number == 0:
            address = 0xFFDFF000  # where the boot processor's has always been on x86
            space.map(address, PAGE)
        else:
            address = space.reserve(size)
        space.map(address, size)
        self.kpcr = Obj(space, isf, "_KPCR", address)
        self.kprcb = Obj(space, isf, "_KPRCB", address + offset)
        for member in ("Self", "SelfPcr"):
            self.kpcr.maybe(member, address)
        self.kpcr.maybe("CurrentPrcb", self.kprcb)
        if kernel.bits == 32:
            self.kpcr["Prcb"] = self.kprcb
        self.kprcb.put(Number=number, MinorVersion=1, MajorVersion=1)
        kernel.space.write_int(
            kernel.symbol("KiProcessorBlock") + number * space.pointer_size, self.kprcb.address
        )

    def current(self, thread: Thread) -> None:
        """Lets a thread run on this processor."""
        self.kprcb["CurrentThread"] = thread.ethread
        thread.kthread["State"] = 2
        thread.kthread.maybe("NextProcessor", self.number)

    def stack(self, kind: str, size: int = 0x6000, data: bytes = b"") -> int:
        """Gives the processor a stack with `data` at its top end; returns the stack's base.

        The base is the upper end: the first push goes below it. Raises KeyError where this
        kernel's table has no place for such a stack.
        """
        limit = self._kernel.space.reserve(size)
        self._kernel.space.map(limit, size)
        base = limit + size
        self._kernel.space.write(base - len(data), data)
        if kind.startswith("ist"):
            self._tss()[f"Ist[{int(kind[3:])}]"] = base
        else:
            self.kprcb[{"dpc": "DpcStack", "isr": "IsrStack"}[kind]] = base
        return base

    def _tss(self) -> Obj:
        member = "TssBase"
        address: Optional[int] = self.kpcr[member] or None
        if address is None:
            tss = self._kernel.obj("_KTSS64", tag=b"Tss ")
            self.kpcr[member] = tss
            return tss
        return Obj(self._kernel.space, self._kernel.isf, "_KTSS64", address)
