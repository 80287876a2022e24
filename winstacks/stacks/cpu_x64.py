# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64: the starting points of walks, and the walker."""

from __future__ import annotations

from typing import Optional, Sequence

from ..memory.decode.machine import Machine
from ..memory.decode.structure import Buffer, Structure
from ..memory.image import Image
from ..process.kernelstacks import KernelStackSegment
from ..traps.state import TrapState
from .cpus import IntelCpu, KnownTrapFrames, WalkContext, WalkStart
from .decode.frames import UserTransition
from .decode.registers import KEPT, Registers
from .decode.walk_x64 import Walker64


class Cpu64(IntelCpu[Registers]):
    """x64."""

    machine = Machine.AMD64
    tells_registers = True

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self._exception = image.types.first_structure("_KEXCEPTION_FRAME")
        self._trap_size = image.types.find("_KTRAP_FRAME").size

    def walker(self, walk_context: WalkContext, traps: KnownTrapFrames) -> Walker64:
        """Returns the walker for stacks in an address space."""
        machine_frames = {address: saved for address, saved in traps.items() if isinstance(saved, Registers)}
        return Walker64(
            walk_context.find_image,
            walk_context.memory.read,
            machine_frames,
            walk_context.may_execute,
            walk_context.own_copy,
            walk_context.replaced,
            walk_context.sites,
            walk_context.surroundings,
        )

    def registers(self, state: TrapState) -> Registers:
        """Returns the registers of a state that has Rip and Rsp; a register that is marked unsure is None."""
        values = {name: value for name, value in state.registers.items() if name not in state.unsure}
        return Registers.from_known(state.registers["Rip"], state.registers["Rsp"], values)

    def switched(self, frame: Structure, data: Buffer, address: int) -> Registers:
        """Returns the registers of the caller of SwapContext."""
        saved = frame.view(data)
        return Registers.from_known(saved["Return"], address + frame.size, {"Rbp": saved["Rbp"]})

    def callback_return(
        self, walk_context: WalkContext, segments: Sequence[KernelStackSegment], callee: int
    ) -> Optional[WalkStart[Registers]]:
        """Returns the kernel state to which a callback will return, or None.

        The frame of the callback counts if the trap frame that it names lies at the top of a segment, and its
        return address does not contradict the code: a call precedes it, or the code cannot be read.
        """
        frame, segment = self._exception, segments[0]
        data = None if frame is None else walk_context.memory.read(segment.kernel_stack, frame.size)
        places = [other.initial - self._trap_size for other in segments]
        if frame is None or data is None or segment.trap_frame not in places:
            return None
        view = frame.view(data)
        values = {name: view[name] for name in KEPT}
        registers = Registers.from_known(view["Return"], segment.kernel_stack + frame.size, values)
        if self.walker(walk_context, {}).is_return(registers.ip) is False:
            return None
        return WalkStart(self, registers, False)

    def merge_nonvolatile(self, registers: Registers, border: UserTransition) -> Registers:
        """Returns user-mode registers, completed by the non-volatile ones saved on the kernel stack."""
        if not isinstance(border.registers, Registers) or not border.sure:
            return registers
        pairs = zip(registers.general, border.registers.general)
        general = tuple(saved if saved is not None else walked for saved, walked in pairs)
        return registers._replace(general=general, xmm=border.registers.xmm)

    def saved_registers(self, state: TrapState) -> Optional[Registers]:
        """Returns the registers that a trap frame holds beside its machine frame."""
        return self.registers(state)

    def saved(self, trap_frame: Structure) -> int:
        """Returns the offset of the machine frame in a trap frame."""
        return trap_frame.offset("Rip")
