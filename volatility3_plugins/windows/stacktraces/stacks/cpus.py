# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What differs between the processors: where a walk begins, and what walks.

KSWITCH_FRAME is in no public symbols. Source of its layout, which is in our tables: SwapContext of 2003 SP2
x64, XP SP3 and 2003 SP2 x86; published listings of 14393 x64 agree.
"""

from __future__ import annotations

import abc
from typing import Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ..base.decode.memory import Memory
from ..base.decode.structure import Structure
from ..base.image import Image
from ..threads.kernelstacks import Segment
from ..traps.state import State, register_types
from .decode import dispatchers_x86
from .decode.dispatchers_x86 import FindDispatcher
from .decode.frames import Border, FindImage, MayExecute, OwnCopy, StackWalk, shared
from .decode.functions_x86 import Functions
from .decode.registers import GENERAL, NON_VOLATILE, RSP, Registers, Registers32
from .decode.walk import Walker
from .decode.walk_x64 import Walker64
from .decode.walk_x86 import Walker32

Range = Tuple[int, int]

Traps = Mapping[int, Optional[Registers]]
"""x64: addresses of machine frames and what was saved beside each; x86: addresses of trap frames."""

NO_TRAPS: Traps = {}

KEPT = tuple(GENERAL[number] for number in sorted(NON_VOLATILE - {RSP}))
"""The registers that functions keep for their callers, so that a walk can tell what they were."""

_MOST_PUSHED = 0x40
"""Bytes below the return address that a callback of x86 may have pushed, and more."""

R = TypeVar("R", Registers, Registers32)


class Scene:
    """What walks in one address space see of it.

    Args:
        find: finds the module that holds an address
        memory: reads it
        may_execute: tells which memory in no module may be code
        own_copy: tells which code of modules the process has changed
        find_dispatcher: finds the dispatchers of its 32-bit ntdll

    Attributes:
        functions: what walks found out of its 32-bit functions
    """

    def __init__(
        self,
        find: FindImage,
        memory: Memory,
        may_execute: MayExecute,
        own_copy: OwnCopy = shared,
        find_dispatcher: FindDispatcher = dispatchers_x86.nowhere,
    ) -> None:
        self.find = find
        self.memory = memory
        self.may_execute = may_execute
        self.own_copy = own_copy
        self.find_dispatcher = find_dispatcher
        self.functions = Functions(memory.read)


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

    pointer_size = 0

    tells_registers = False
    """Whether a walk tells more of a frame's registers than where it is."""

    def __init__(self, image: Image) -> None:
        self.types = register_types(image, self.pointer_size)
        self._switch: Structure = self.types["_KSWITCH_FRAME"]

    @abc.abstractmethod
    def walker(self, scene: Scene, traps: Traps) -> Walker[R]:
        """Returns what walks stacks in an address space."""

    @abc.abstractmethod
    def registers(self, state: State) -> R:
        """Returns the registers of a state that has Rip and Rsp, as far as it is sure of them."""

    @abc.abstractmethod
    def switched(self, data: bytes, address: int) -> R:
        """Returns the registers of the caller of SwapContext, given the switch frame and its address."""

    def start(self, state: State) -> Optional[WalkStart[R]]:
        """Returns the start that a register state is, or None if it has no instruction and stack pointer."""
        if "Rip" not in state.registers or "Rsp" not in state.registers:
            return None
        return WalkStart(self, self.registers(state), True)

    def switched_out(self, memory: Memory, kernel_stack: int) -> Optional[WalkStart[R]]:
        """Returns where a thread that does not run goes on: in the caller of SwapContext.

        Args:
            memory: reads the kernel's half
            kernel_stack: KTHREAD.KernelStack
        """
        data = memory.read(kernel_stack, self._switch.size)
        return None if data is None else WalkStart(self, self.switched(data, kernel_stack), False)

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


class Cpu64(Cpu[Registers]):
    """x64."""

    pointer_size = 8
    tells_registers = True

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self._exception = image.types.find("_KEXCEPTION_FRAME")
        trap_frame = image.types.find("_KTRAP_FRAME")
        self._trap_size = 0 if trap_frame is None else trap_frame.size

    def walker(self, scene: Scene, traps: Traps) -> Walker64:
        """Returns what walks stacks in an address space."""
        known = {address: saved for address, saved in traps.items() if saved is not None}
        return Walker64(scene.find, scene.memory.read, known, scene.may_execute, scene.own_copy)

    def registers(self, state: State) -> Registers:
        """Returns the registers of a state that has Rip and Rsp, those left out that it is not sure of."""
        known = {name: value for name, value in state.registers.items() if name not in state.unsure}
        return Registers.of(state.registers["Rip"], state.registers["Rsp"], known)

    def switched(self, data: bytes, address: int) -> Registers:
        """Returns the registers of the caller of SwapContext."""
        frame = self._switch.view(data)
        return Registers.of(frame["Return"], address + self._switch.size, {"Rbp": frame["Rbp"]})

    def called_out(
        self, scene: Scene, segments: Sequence[Segment], callee: int
    ) -> Optional[WalkStart[Registers]]:
        """Returns where a callback will return to: its frame names the trap frame above it."""
        frame, segment = self._exception, segments[0]
        data = None if frame is None else scene.memory.read(segment.kernel_stack, frame.size)
        places = [each.initial - self._trap_size for each in segments]
        if frame is None or data is None or segment.trap_frame not in places:
            return None
        view = frame.view(data)
        known = {name: view[name] for name in KEPT}
        registers = Registers.of(view["Return"], segment.kernel_stack + frame.size, known)
        if self.walker(scene, {}).is_return(registers.ip) is False:
            return None
        return WalkStart(self, registers, False)

    def kept(self, registers: Registers, border: Border) -> Registers:
        """Returns user-mode registers completed by the non-volatile ones that the kernel stack kept."""
        if border.registers is None or not border.sure:
            return registers
        kept = zip(registers.general, border.registers.general)
        general = tuple(saved if saved is not None else walked for saved, walked in kept)
        return registers._replace(general=general, xmm=border.registers.xmm)

    def beside(self, state: State) -> Optional[Registers]:
        """Returns the registers saved beside the machine frame of a trap frame."""
        return self.registers(state)

    def saved(self, trap_frame: Structure) -> int:
        """Returns where the machine frame lies in a trap frame."""
        return trap_frame.offset("Rip")


class Cpu86(Cpu[Registers32]):
    """x86, and the 32-bit mode of x64."""

    pointer_size = 4

    def walker(self, scene: Scene, traps: Traps) -> Walker32:
        """Returns what walks stacks in an address space."""
        return Walker32(
            scene.find,
            scene.memory.read,
            self.types,
            traps,
            scene.may_execute,
            scene.functions,
            scene.find_dispatcher,
        )

    def registers(self, state: State) -> Registers32:
        """Returns the registers of a state that has Rip and Rsp."""
        return Registers32(state.registers["Rip"], state.registers["Rsp"], state.registers.get("Rbp"))

    def switched(self, data: bytes, address: int) -> Registers32:
        """Returns the registers of the caller of SwapContext, whose own frame follows the switch frame."""
        frame = self._switch.view(data)
        sp, slot = (address + self._switch.offset(name) for name in ("CallerEbp", "CallerReturn"))
        return Registers32(frame["Return"], sp, frame["CallerEbp"], return_slot=slot)

    def called_out(
        self, scene: Scene, segments: Sequence[Segment], callee: int
    ) -> Optional[WalkStart[Registers32]]:
        """Returns where a callback will return to: behind a call that goes to KiCallUserMode.

        That pushes Ebp first, and a few words more until KernelStack is what it is.
        """
        low = segments[0].kernel_stack
        for slot in range(low + self.pointer_size, low + _MOST_PUSHED, self.pointer_size):
            address, bp = (scene.memory.pointer(place) for place in (slot, slot - self.pointer_size))
            if address and callee and callee in scene.functions.targets(address):
                return WalkStart(self, Registers32(address, slot + self.pointer_size, bp, exact=False), False)
        return None


AnyCpu = Union[Cpu64, Cpu86]


class Cpus:
    """The processors of an image by pointer size, each made when it is met: `image.part(Cpus)`."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._made: Dict[int, AnyCpu] = {}

    def of(self, pointer_size: int) -> AnyCpu:
        """Returns the processor (or its mode) that has pointers of a size.

        Raises:
            tables.MissingTableError: when our table of its structures is missing
        """
        if pointer_size not in self._made:
            self._made[pointer_size] = (Cpu64 if pointer_size == 8 else Cpu86)(self._image)
        return self._made[pointer_size]
