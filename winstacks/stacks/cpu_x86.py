# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86, and the 32-bit mode of x64: the starting points of walks, and the walker."""

from __future__ import annotations

from typing import Optional, Sequence

from ..memory.decode.machine import Machine
from ..memory.decode.structure import Buffer, Structure
from ..process.kernelstacks import KernelStackSegment
from ..traps.state import TrapState
from .cpus import IntelCpu, KnownTrapFrames, WalkContext, WalkStart
from .decode.registers import Registers32
from .decode.surroundings import Surroundings
from .decode.walk_x86 import Walker32

_MOST_PUSHED = 0x40
"""Upper bound, in bytes, of the words that an x86 callback pushes below the return address."""


class Cpu86(IntelCpu[Registers32]):
    """x86, and the 32-bit mode of x64."""

    machine = Machine.I386

    def walker(self, walk_context: WalkContext, traps: KnownTrapFrames) -> Walker32:
        """Returns the walker for stacks in an address space."""
        return Walker32(
            walk_context.find_image,
            walk_context.memory.read,
            self.types,
            traps,
            walk_context.may_execute,
            walk_context.functions,
            walk_context.find_dispatcher,
            walk_context.own_copy,
            Surroundings(find_stack=walk_context.surroundings.find_stack),
        )

    def registers(self, state: TrapState) -> Registers32:
        """Returns the registers of a state that has Rip and Rsp."""
        return Registers32(state.registers["Rip"], state.registers["Rsp"], state.registers.get("Rbp"))

    def switched(self, frame: Structure, data: Buffer, address: int) -> Registers32:
        """Returns the registers of SwapContext's caller; SwapContext's own frame follows the switch frame."""
        saved = frame.view(data)
        sp, slot = (address + frame.offset(name) for name in ("CallerEbp", "CallerReturn"))
        return Registers32(saved["Return"], sp, saved["CallerEbp"], return_slot=slot)

    def callback_return(
        self, walk_context: WalkContext, segments: Sequence[KernelStackSegment], callee: int
    ) -> Optional[WalkStart[Registers32]]:
        """Returns the kernel state to which a callback will return: behind a call of KiCallUserMode.

        KiCallUserMode pushes Ebp first, then a few words more, and stores the resulting Esp in KernelStack.
        """
        low, size = segments[0].kernel_stack, self.machine.pointer_size
        for slot in range(low + size, low + _MOST_PUSHED, size):
            address, bp = (walk_context.memory.pointer(place) for place in (slot, slot - size))
            if address and callee and callee in walk_context.functions.targets(address):
                return WalkStart(self, Registers32(address, slot + size, bp, exact=False), False)
        return None
