# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Register states that Windows wrote out as a CONTEXT: of a frozen processor, of a WoW64 thread's 32 bits.

Source of the WoW64 CPU area: the public definition of WOW64_CPURESERVED (TLS slot 1 of the 64-bit TEB):
Flags and Machine, then the 32-bit CONTEXT.
"""

from __future__ import annotations

from typing import Optional, Tuple

from volatility3.framework import interfaces

from ..base import members as fields
from ..base.peek import Peek
from ..base.spaces import AddressSpace
from ..threads.lister import Thread
from ..threads.processors import Processor
from .decode import context as cpucontext
from .decode.context import CpuContext
from .decode.frame import COLUMNS, KERNEL, USER, MemberValue
from .decode.members import SAVED, UNWRITTEN
from .state import PROCESSOR, RUNNING, STALE, UNREADABLE, WOW64, State, words

_CPU_SLOT = 1
_CONTEXT = 4
_CODE_32 = 0x23
NO_CONTEXT = "not a context"


class TrapContexts:
    """Reads CONTEXT records.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
        members: list all members of each
    """

    def __init__(
        self, context: interfaces.context.ContextInterface, kernel_module_name: str, members: bool
    ) -> None:
        kernel = context.modules[kernel_module_name]
        self._context = context
        self._layer_name = kernel.layer_name
        self._arch = "x64" if context.layers[kernel.layer_name].bits_per_register == 64 else "x86"
        self._members = members
        self._slots = fields.find(context, kernel.symbol_table_name, "_TEB", "TlsSlots")

    def processor(self, processor: Processor, space: AddressSpace, tid: Optional[int]) -> Optional[State]:
        """Returns the context of a processor, or None if it has none (it was not stopped).

        Args:
            processor: the processor
            space: the address space that it was in
            tid: its thread
        """
        size = cpucontext.LAYOUTS[self._arch].size
        peek = Peek(self._context, self._layer_name, 8)
        data = peek.read(processor.context, size) if processor.context else None
        found = None if data is None else cpucontext.decode(self._arch, data)
        if found is None or data is None:
            return None
        return State(
            space,
            tid,
            self._arch,
            PROCESSOR,
            processor.context,
            "",
            USER if found.user else KERNEL,
            found.registers,
            (),
            f"CPU {processor.number}",
            "",
            self._listed(self._arch, found, data),
        )

    def wow64(self, thread: Thread, user_cs: Optional[int]) -> Optional[State]:
        """Returns the 32-bit context of a thread, or None if it is no WoW64 thread.

        Args:
            thread: the thread
            user_cs: SegCs of its trap frame from user mode, if it has one: from 32-bit code (23h) the
                live registers are in that frame and the CPU area is stale
        """
        space = thread.wow64
        if space is None or not thread.teb or self._slots is None or not space.layer_name:
            return None
        peek = Peek(self._context, space.layer_name, 8)
        area = peek.pointer(thread.teb + self._slots.offset + 8 * _CPU_SLOT)
        if not area and area is not None:
            return None
        address = (area or 0) + _CONTEXT
        data = peek.read(address, cpucontext.X86.size) if area else None
        found = None if data is None else cpucontext.decode("x86", data)
        broken = (UNREADABLE if data is None else NO_CONTEXT) if found is None else ""
        stale = STALE if user_cs == _CODE_32 and found is not None else ""
        status = words(thread.status, RUNNING if thread.running else "", stale, broken)
        none = CpuContext(0, True, {})
        return State(
            space,
            thread.tid,
            "x86",
            WOW64,
            address if area else 0,
            "",
            USER,
            (found or none).registers,
            (),
            thread.state_name,
            status,
            self._listed("x86", found, data) if found is not None and data is not None else (),
        )

    def _listed(self, arch: str, found: CpuContext, data: bytes) -> Tuple[MemberValue, ...]:
        if not self._members:
            return ()
        layout = cpucontext.LAYOUTS[arch]
        rows = [MemberValue("ContextFlags", layout.members["ContextFlags"].offset, 4, found.flags, SAVED, "")]
        for name in COLUMNS:
            if name in layout.members:
                offset, size = layout.members[name][:2]
                value = found.registers.get(name)
                rows.append(MemberValue(name, offset, size, value, UNWRITTEN if value is None else SAVED, ""))
        return tuple(sorted(rows, key=lambda row: row.offset))
