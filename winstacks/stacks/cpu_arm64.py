# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ARM64: the starting points of walks, and the walker.

Only dumps are read: Volatility has no layer for the memory of an ARM64 machine. So no callback is found.
"""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

from ..memory.decode.machine import Machine
from ..memory.decode.memory import Memory
from ..memory.decode.structure import Structures
from ..memory.image import Image
from ..process.kernelstacks import KernelStackSegment
from ..traps.decode.exceptionframe_arm64 import SwitchFrames
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
        self._switch_frames = SwitchFrames(image.types, self.types)

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
            walk_context.replaced,
            walk_context.arm64_sites,
            walk_context.surroundings,
        )

    def registers(self, state: TrapState) -> RegistersArm64:
        """Returns the registers of a state that has Pc and Sp; a register that is marked unsure is None."""
        values = {name: value for name, value in state.registers.items() if name not in state.unsure}
        return RegistersArm64.from_known(state.registers["Pc"], state.registers["Sp"], values)

    def switched_out(
        self, memory: Memory, kernel_stack: int, ethread: int = 0
    ) -> Iterator[WalkStart[RegistersArm64]]:
        """Yields the state in which a thread that is not running will go on; see `SwitchFrames`."""
        found = self._switch_frames.find(memory.read, ethread, kernel_stack)
        if found.registers:
            registers = RegistersArm64.from_known(
                found.registers["Pc"], found.registers["Sp"], found.registers
            )
            yield WalkStart(self, registers, False)

    def callback_return(
        self, walk_context: WalkContext, segments: Sequence[KernelStackSegment], callee: int
    ) -> Optional[WalkStart[RegistersArm64]]:
        """Returns None: callbacks are found in images only."""
        return None

    def saved_registers(self, state: TrapState) -> Optional[RegistersArm64]:
        return self.registers(state)
