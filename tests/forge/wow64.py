# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The 32-bit half of a process under WoW64: PEB32, loader lists, TEB32s, CPU areas."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Optional

from .finding import VOLATILITY_TABLES
from .isf import load as load_isf
from .loader import Loader
from .module import Module
from .obj import Obj
from .thread import Thread

if TYPE_CHECKING:
    from .process import Process

_CPU_SLOT = 1  # WOW64_TLS_CPURESERVED
_MACHINE_I386 = 0x14C
_CONTEXT32_SIZE = 0x2CC
_TEB32_SIZE = 0x1000
_MACHINE_MEMBER = 8


class Wow64:
    """Made by `Process.wow64`; `peb` is the `_PEB32`.

    Args:
        nt_global_flag: NtGlobalFlag of the PEB32.
        peb: its address.
    """

    def __init__(self, process: Process, *, nt_global_flag: int = 0, peb: int = 0x7FFD3000) -> None:
        self.process = process
        self.space = process.space.view(0x06000000, 0x0C000000, 4)
        self.isf = load_isf(VOLATILITY_TABLES / "wow64.json")
        process.region(peb, size=self.isf.size("_PEB32"))
        self.peb = Obj(self.space, self.isf, "_PEB32", peb)
        self.peb["NtGlobalFlag"] = nt_global_flag
        self.loader = Loader(
            self.space, self.isf, 0x70000000, "C:\\Windows\\SysWOW64", process.kernel.sections
        )
        eprocess, kernel = process.eprocess, process.kernel
        target = peb
        # Since Windows 8 a structure in the pool stands between.
        if kernel.isf.has_type("_EWOW64PROCESS"):
            block = kernel.obj("_EWOW64PROCESS", tag=b"Wow6")
            block["Peb"] = peb
            block.maybe("Machine", _MACHINE_I386)
            target = block.address
        eprocess.first(("WoW64Process", "Wow64Process"), target)

    @property
    def modules(self) -> list[Module]:
        """The 32-bit ones."""
        return self.loader.modules

    def module(self, name: str, base: Optional[int] = None, *, vad: bool = True, **options: Any) -> Module:
        """A 32-bit module, with the options of `Process.module`."""
        module = self.loader.module(name, base, **options)
        if vad:
            self.process.image_range(module)
        return module

    def thread(
        self,
        thread: Thread,
        *,
        stack: bytes = b"",
        stack_size: int = 0x4000,
        context: bytes = b"",
        flags: int = 0,
        teb: Optional[int] = None,
    ) -> int:
        """Gives a thread its 32-bit side; returns the address of its TEB32.

        Args:
            stack: bytes at the upper end of the 32-bit stack (base: NtTib.StackBase of the TEB32).
            context: the 32-bit CONTEXT of its CPU area; b"" for no area.
            flags: Flags of the CPU area.
            teb: address of the TEB32; default: behind the TEB.
        """
        if thread.teb is None:
            raise ValueError("the thread has no TEB")
        process = self.process
        teb = teb or thread.teb.address + 0x2000
        limit = self.space.reserve(stack_size)
        base = limit + stack_size
        process.region(limit, size=stack_size)
        process.space.write(base - len(stack), stack)
        process.region(teb, size=_TEB32_SIZE)
        words = ((0x04, base), (0x08, limit), (0x18, teb), (0x20, process.pid))
        for offset, value in (*words, (0x24, thread.tid), (0x30, self.peb.address)):
            process.space.write_int(teb + offset, value, 4)
        thread.teb["NtTib.ExceptionList"] = teb
        thread.teb.maybe("WowTebOffset", teb - thread.teb.address)
        if context:
            area = process.space.allocate(4 + max(len(context), _CONTEXT32_SIZE))
            process.space.write(area, struct.pack("<HH", flags, _MACHINE_I386) + context)
            thread.teb[f"TlsSlots[{_CPU_SLOT}]"] = area
        return teb

    def finish(self) -> None:
        """Joins the lists as they are now."""
        self.loader.link()
        self.peb["Ldr"] = self.loader.head
        if self.modules:
            self.peb["ImageBaseAddress"] = self.modules[0].base
