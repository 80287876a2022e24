# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What differs between the processors: where a walk begins, and what walks.

Each processor is a module, `cpu_x64` and `cpu_x86`.

KSWITCH_FRAME is in no public symbols. Source of its layout, which is in our tables: SwapContext of 2003 SP2
x64, XP SP3 and 2003 SP2 x86; published listings of 14393 x64 agree.
"""

from __future__ import annotations

import abc
from typing import Dict, Generic, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ..memory.decode.machine import Machine
from ..memory.decode.memory import Memory
from ..memory.decode.structure import Buffer, Structure
from ..memory.image import Image
from ..process.kernelstacks import Segment
from ..traps.state import State, register_types
from .decode.calls_x64 import Site
from .decode.frames import (
    Border,
    FindDispatcher,
    FindImage,
    MayExecute,
    OwnCopy,
    Read,
    StackWalk,
    nowhere,
    shared,
)
from .decode.functions_x86 import Functions
from .decode.registers import GENERAL, NON_VOLATILE, RSP, Registers, Registers32
from .decode.walk import Walker

Range = Tuple[int, int]

Traps = Mapping[int, Optional[Registers]]
"""x64: addresses of machine frames and what was saved beside each; x86: addresses of trap frames."""

NO_TRAPS: Traps = {}

KEPT = tuple(GENERAL[number] for number in sorted(NON_VOLATILE - {RSP}))
"""The registers that functions keep for their callers, so that a walk can tell what they were."""

R = TypeVar("R", Registers, Registers32)


class Scene:
    """What walks in one address space see of it.

    Args:
        find: finds the module that holds an address
        memory: reads it
        may_execute: tells which memory in no module may be code
        own_copy: tells which code of modules the process has changed
        find_dispatcher: finds the dispatchers of its 32-bit ntdll
        read_code: reads its 32-bit code; None: as memory does

    Attributes:
        sites: what x64 walks found out of return addresses in it
    """

    def __init__(
        self,
        find: FindImage,
        memory: Memory,
        may_execute: MayExecute,
        own_copy: OwnCopy = shared,
        find_dispatcher: FindDispatcher = nowhere,
        read_code: Optional[Read] = None,
    ) -> None:
        self.find = find
        self.memory = memory
        self.may_execute = may_execute
        self.own_copy = own_copy
        self.find_dispatcher = find_dispatcher
        self.sites: Dict[int, Site] = {}
        self._read_code = read_code or memory.read
        self._functions: Optional[Functions] = None

    @property
    def functions(self) -> Functions:
        """What walks found out of its 32-bit functions."""
        if self._functions is None:
            self._functions = Functions(self._read_code)
        return self._functions


class WalkStart(Generic[R]):
    """A register state to walk from.

    Args:
        cpu: the processor that the state is of
        registers: the innermost state
        interrupted: its `ip` is where execution stopped; else a return address
    """

    def __init__(self, cpu: Cpu[R], registers: R, interrupted: bool) -> None:
        self.cpu: Cpu[R] = cpu
        self.registers: R = registers
        self.interrupted = interrupted

    def walk(self, scene: Scene, stacks: List[Range], traps: Traps) -> StackWalk:
        """Walks from it; see `StackWalkers.walk`."""
        return self.cpu.walker(scene, traps).walk(self.registers, self.interrupted, stacks)

    def keeping(self, border: Border) -> WalkStart[R]:
        """Returns a user-mode start completed by the registers that the kernel stack kept."""
        return WalkStart(self.cpu, self.cpu.kept(self.registers, border), self.interrupted)


AnyStart = Union[WalkStart[Registers], WalkStart[Registers32]]


class Cpu(abc.ABC, Generic[R]):
    """A processor, or one of its modes.

    Args:
        image: the image
    """

    machine: Machine

    tells_registers = False
    """Whether a walk tells more of a frame's registers than where it is."""

    def __init__(self, image: Image) -> None:
        self.types = register_types(image, self.machine)
        known = image.our_generations("context", self.machine)
        self._switches = [types["_KSWITCH_FRAME"] for types in known]

    @abc.abstractmethod
    def walker(self, scene: Scene, traps: Traps) -> Walker[R]:
        """Returns what walks stacks in an address space."""

    @abc.abstractmethod
    def registers(self, state: State) -> R:
        """Returns the registers of a state that has Rip and Rsp, as far as it is sure of them."""

    @abc.abstractmethod
    def switched(self, frame: Structure, data: Buffer, address: int) -> R:
        """Returns the registers of the caller of SwapContext, given the switch frame and its address."""

    def start(self, state: State) -> Optional[WalkStart[R]]:
        """Returns the start that a register state is, or None if it has no instruction and stack pointer."""
        if "Rip" not in state.registers or "Rsp" not in state.registers:
            return None
        return WalkStart(self, self.registers(state), True)

    def switched_out(self, memory: Memory, kernel_stack: int) -> Iterator[WalkStart[R]]:
        """Yields where a thread that does not run may go on: in the caller of SwapContext.

        There is one place for each layout of the switch frame: that in the kernel's code is the right one.

        Args:
            memory: reads the kernel's half
            kernel_stack: KTHREAD.KernelStack
        """
        for frame in self._switches:
            data = memory.read(kernel_stack, frame.size)
            if data is not None:
                yield WalkStart(self, self.switched(frame, data, kernel_stack), False)

    @abc.abstractmethod
    def called_out(self, scene: Scene, segments: Sequence[Segment], callee: int) -> Optional[WalkStart[R]]:
        """Returns where a callback to user mode will return to in the kernel, if what it left proves itself.

        Args:
            scene: the kernel
            segments: what the thread left; KernelStack of the first leads to the frame of the callback
            callee: the address of KiCallUserMode, 0 if it is not known
        """

    def kept(self, registers: R, border: Border) -> R:
        """Returns user-mode registers completed by those that the kernel stack kept."""
        return registers

    def beside(self, state: State) -> Optional[Registers]:
        """Returns the registers saved beside the machine frame of a trap frame, None where there is none."""
        return None

    def saved(self, trap_frame: Structure) -> int:
        """Returns where in a trap frame the address lies by which a walk knows it."""
        return 0
