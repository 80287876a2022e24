# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64: the starting points of walks, and the walker.

Only dumps are read: Volatility has no layer for the memory of an ARM64 machine. So no thread is found that
waits in the kernel, and no callback.
"""

from __future__ import annotations

from typing import Optional, Sequence

from ..memory.decode.machine import Machine
from ..memory.decode.structure import Buffer, Structure, Structures
from ..memory.image import Image
from ..process.kernelstacks import KernelStackSegment
from ..traps.state import TrapState
from .cpus import Cpu, KnownTrapFrames, WalkContext, WalkStart
from .decode.registers_arm64 import RegistersArm64
from .decode.walk_arm64 import WalkerArm64


class CpuArm64(Cpu[RegistersArm64]):
    """ARM64."""

    machine = Machine.ARM64
    tells_registers = True

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self._frames = Structures.chain([self.types, image.types])

    def walker(self, walk_context: WalkContext, traps: KnownTrapFrames) -> WalkerArm64:
        """Returns the walker for stacks in an address space."""
        trap_frames = {
            address: saved for address, saved in traps.items() if isinstance(saved, RegistersArm64)
        }
        return WalkerArm64(
            walk_context.find_image,
            walk_context.memory.read,
            self._frames,
            trap_frames,
            walk_context.may_execute,
            walk_context.arm64_sites,
            walk_context.surroundings,
        )

    def registers(self, state: TrapState) -> RegistersArm64:
        """Returns the registers of a state that has Pc and Sp; a register that is marked unsure is None."""
        values = {name: value for name, value in state.registers.items() if name not in state.unsure}
        return RegistersArm64.from_known(state.registers["Pc"], state.registers["Sp"], values)

    def switched(self, frame: Structure, data: Buffer, address: int) -> RegistersArm64:
        """Returns the registers of the caller of SwapContext, from the switch frame of a thread."""
        saved = frame.view(data)
        return RegistersArm64.from_known(saved["Return"], address, {"Fp": saved["Fp"]})

    def callback_return(
        self, walk_context: WalkContext, segments: Sequence[KernelStackSegment], callee: int
    ) -> Optional[WalkStart[RegistersArm64]]:
        """Returns None: callbacks are found in images only."""
        return None

    def saved_registers(self, state: TrapState) -> Optional[RegistersArm64]:
        """Returns the registers that a trap frame holds."""
        return self.registers(state)
