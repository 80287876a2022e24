# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The differences between processors: the starting points of walks, and the walkers.

`cpu_x64` and `cpu_x86` each implement one processor.

No public symbols contain KSWITCH_FRAME. Source of its layout, which is in our tables: SwapContext of 2003 SP2
x64, XP SP3 and 2003 SP2 x86; published listings of 14393 x64 agree.
"""

from __future__ import annotations

import abc
import functools
from typing import (
    Any,
    FrozenSet,
    Generic,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from ..memory.decode.machine import Machine
from ..memory.decode.memo import Kept
from ..memory.decode.memory import Memory, ReadMemory
from ..memory.decode.structure import Buffer, Structure
from ..memory.image import Image
from ..names.decode.functiontable import MOST_DERIVED
from ..process.kernelstacks import KernelStackSegment
from ..traps.state import TrapState, register_types
from .decode.budget import FollowBudget, WalkBudget
from .decode.calls_x64 import Site
from .decode.frames import (
    AnyRegisters,
    FindDispatcher,
    FindImage,
    MayExecute,
    OwnCopy,
    StackWalk,
    UserTransition,
)
from .decode.registers import Registers, Registers32
from .decode.registers_arm64 import RegistersArm64
from .decode.surroundings import Surroundings
from .decode.walk import Walker
from .decode.walkstep import R

Range = Tuple[int, int]

KnownTrapFrames = Mapping[int, Optional[AnyRegisters]]
"""x64: addresses of machine frames, each with the registers saved beside it; x86: addresses of trap frames;
ARM64: addresses of trap frames, each with its registers."""

NO_TRAPS: KnownTrapFrames = {}


class WalkContext:
    """One address space, as the walks in it see it. `sites` and `arm64_sites` have results of x64 and of
    ARM64 walks for return addresses in the address space.

    Args:
        may_execute: returns whether an address outside all modules may be code
        own_copy: returns whether the process has changed the module code at an address
        replaced: returns whether the function at an address is other code than its unwind data describes
        budget: number of 32-bit instructions that may be followed in the image
        refused: addresses at which the processor refused to execute
    """

    def __init__(
        self,
        find_image: FindImage,
        memory: Memory,
        may_execute: MayExecute,
        own_copy: OwnCopy,
        replaced: OwnCopy,
        find_dispatcher: FindDispatcher,
        read_code: ReadMemory,
        surroundings: Surroundings,
        budget: FollowBudget,
        refused: FrozenSet[int],
    ) -> None:
        self.surroundings = surroundings
        self.refused = refused
        self.find_image = find_image
        self.memory = memory
        self.may_execute = may_execute
        self.own_copy = own_copy
        self.replaced = replaced
        self.find_dispatcher = find_dispatcher
        self.sites: Kept[int, Site] = Kept(MOST_DERIVED)
        self.arm64_sites: Kept[int, Any] = Kept(MOST_DERIVED)
        self._read_code = read_code
        self._budget = budget

    @functools.cached_property
    def functions(self) -> Any:
        """The 32-bit functions of the address space, as far as walks have analysed them: a `Functions`."""
        from .decode.functions_x86 import Functions

        return Functions(self._read_code, self._budget)


class WalkStart(Generic[R]):
    """A register state to walk from. `interrupted` says whether execution stopped at `ip`; False: `ip` is a
    return address."""

    def __init__(self, cpu: Cpu[R], registers: R, interrupted: bool) -> None:
        self.cpu: Cpu[R] = cpu
        self.registers: R = registers
        self.interrupted = interrupted

    def walk(
        self, walk_context: WalkContext, stacks: List[Range], traps: KnownTrapFrames, budget: WalkBudget
    ) -> StackWalk:
        """Walks from this state; see `StackWalkers.walk`. `budget` is for all walks; the caller counts the
        frames."""
        walker = self.cpu.walker(walk_context, traps)
        walker.share(budget)
        walker.refused = walk_context.refused
        return walker.walk(self.registers, self.interrupted, stacks)

    def keeping(self, border: UserTransition) -> WalkStart[R]:
        """Returns a user-mode start, completed by the registers saved on the kernel stack."""
        return WalkStart(self.cpu, self.cpu.merge_nonvolatile(self.registers, border), self.interrupted)


AnyStart = Union[WalkStart[Registers], WalkStart[Registers32], WalkStart[RegistersArm64]]


class Cpu(abc.ABC, Generic[R]):
    """A processor, or one of its modes."""

    machine: Machine

    tells_registers = False
    """Whether a walk recovers more registers of a frame than stack and instruction pointer."""

    def __init__(self, image: Image) -> None:
        self.types = register_types(image, self.machine)

    @abc.abstractmethod
    def walker(self, walk_context: WalkContext, traps: KnownTrapFrames) -> Walker[R]:
        """Returns the walker for stacks in an address space."""

    @abc.abstractmethod
    def registers(self, state: TrapState) -> R:
        """Returns the registers of a state that has ip and sp; on x64, ARM64 without those marked unsure."""

    def start(self, state: TrapState) -> Optional[WalkStart[R]]:
        """Returns the start of a walk from a register state; None if the state lacks ip or sp."""
        if state.ip is None or state.sp is None:
            return None
        return WalkStart(self, self.registers(state), not state.called)

    @abc.abstractmethod
    def switched_out(self, memory: Memory, kernel_stack: int, ethread: int = 0) -> Iterator[WalkStart[R]]:
        """Yields the states in which a thread that is not running may continue. The right one has its `ip` in
        the kernel's code. `ethread` is the address of the _ETHREAD, which has the switch frame on ARM64."""

    @abc.abstractmethod
    def callback_return(
        self, walk_context: WalkContext, segments: Sequence[KernelStackSegment], callee: int
    ) -> Optional[WalkStart[R]]:
        """Returns the kernel state to which a callback to user mode will return; None if the memory there is
        not recognised as the frame of a callback.

        Args:
            segments: stack segments that the thread left; KernelStack of the first leads to the callback's
                frame
            callee: address of KiCallUserMode, 0 if unknown
        """

    def merge_nonvolatile(self, registers: R, border: UserTransition) -> R:
        """Returns user-mode registers, completed by those saved on the kernel stack."""
        return registers

    def saved_registers(self, state: TrapState) -> Optional[AnyRegisters]:
        """Returns the registers that a trap frame holds (x64: beside its machine frame); None if none."""
        return None

    def saved(self, trap_frame: Structure) -> int:
        """Returns the offset in a trap frame of the address by which walks identify it."""
        return 0


class IntelCpu(Cpu[R]):
    """x64 and x86: a thread that is not running has its switch frame on its kernel stack."""

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        generations = image.our_generations("context", self.machine)
        self._switches = [types["_KSWITCH_FRAME"] for types in generations]

    @abc.abstractmethod
    def switched(self, frame: Structure, data: Buffer, address: int) -> R:
        """Returns the registers of the caller of SwapContext, from the switch frame and its address."""

    def switched_out(self, memory: Memory, kernel_stack: int, ethread: int = 0) -> Iterator[WalkStart[R]]:
        """Yields the caller of SwapContext, once for each layout of the switch frame; see `Cpu`."""
        for frame in self._switches:
            data = memory.read(kernel_stack, frame.size)
            if data is not None:
                yield WalkStart(self, self.switched(frame, data, kernel_stack), False)
