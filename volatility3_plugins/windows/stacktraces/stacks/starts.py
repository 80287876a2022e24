# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where the stacks of a thread begin: saved registers, and the limits of the stacks.

KSWITCH_FRAME is in no public symbols. Source of its layout: SwapContext of 2003 SP2 x64, XP SP3 and 2003 SP2
x86; published listings of 14393 x64 agree. Stack limits: NT_TIB of winnt.h.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces

from ..base import members
from ..base.peek import Peek
from ..threads.lister import Thread
from ..traps.state import State
from .decode.frames import Border
from .decode.registers_x64 import Registers
from .decode.registers_x86 import Registers32

_SWITCH_64, _RBP_64, _RETURN_64 = 0x40, 0x30, 0x38
_SWITCH_86, _RETURN_86, _EBP_86, _CALLER_86 = 0x20, 8, 0xC, 0x1C
_TIB_BASE, _TIB_LIMIT = 1, 2
"""Places in NT_TIB, in pointers: ExceptionList, StackBase, StackLimit."""

Range = Tuple[int, int]


class Start(NamedTuple):
    """A register state to walk from: one of the two is set. `interrupted`: it is no return address."""

    wide: Optional[Registers]
    narrow: Optional[Registers32]
    interrupted: bool


def of_state(state: State) -> Optional[Start]:
    """Returns the start that a register state is, or None if it has no instruction and stack pointer."""
    ip, sp = state.registers.get("Rip"), state.registers.get("Rsp")
    if ip is None or sp is None:
        return None
    if state.arch == "x86":
        return Start(None, Registers32(ip, sp, state.registers.get("Rbp")), True)
    return Start(wide_registers(state), None, True)


def wide_registers(state: State) -> Registers:
    """Returns the x64 registers of a state that has Rip and Rsp, those left out that it is not sure of."""
    known = {name: value for name, value in state.registers.items() if name not in state.unsure}
    return Registers.of(state.registers["Rip"], state.registers["Rsp"], known)


def with_kept(registers: Registers, border: Border) -> Registers:
    """Returns user-mode registers completed by the non-volatile ones that the kernel stack kept."""
    if border.registers is None or not border.sure:
        return registers
    kept = zip(registers.general, border.registers.general)
    general = tuple(saved if saved is not None else walked for saved, walked in kept)
    return registers._replace(general=general, xmm=border.registers.xmm)


def of_switch_frame(peek: Peek, kernel_stack: int) -> Optional[Start]:
    """Returns where a thread that does not run goes on: in the caller of SwapContext.

    Args:
        peek: reads the kernel's layer
        kernel_stack: KTHREAD.KernelStack
    """
    if peek.pointer_size == 8:
        data = peek.read(kernel_stack, _SWITCH_64)
        if data is None:
            return None
        rbp, address = (_pointer(data, offset, 8) for offset in (_RBP_64, _RETURN_64))
        return Start(Registers.of(address, kernel_stack + _SWITCH_64, {"Rbp": rbp}), None, False)
    data = peek.read(kernel_stack, _SWITCH_86)
    if data is None:
        return None
    address, ebp = (_pointer(data, offset, 4) for offset in (_RETURN_86, _EBP_86))
    sp = kernel_stack + _EBP_86
    return Start(None, Registers32(address, sp, ebp, return_slot=kernel_stack + _CALLER_86), False)


class UserStacks:
    """Finds the limits of user stacks.

    Args:
        context: the context that holds the image
        kernel_module_name: the name of the kernel's module in the context
    """

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        self._context = context
        table = context.modules[kernel_module_name].symbol_table_name
        self._offset = members.find(context, table, "_TEB", "WowTebOffset")

    def native(self, thread: Thread, sp: int) -> List[Range]:
        """Returns the limits of the stack that holds a stack pointer; none if it is not the TEB's."""
        return self._limits(thread, thread.teb or 0, thread.space.pointer_size, sp)

    def narrow(self, thread: Thread, sp: int) -> List[Range]:
        """The same for the 32-bit stack of a WoW64 thread."""
        return self._limits(thread, self._teb32(thread), 4, sp)

    def _teb32(self, thread: Thread) -> int:
        """Returns the TEB32: TEB.ExceptionList leads to it, from Windows 10 on WowTebOffset too."""
        teb = thread.teb or 0
        peek = Peek(self._context, thread.space.layer_name, 8)
        data = peek.read(teb + self._offset.offset, 4) if self._offset is not None and teb else None
        distance = int.from_bytes(data or b"", "little", signed=True)
        return teb + distance if distance else peek.pointer(teb) or 0 if teb else 0

    def _limits(self, thread: Thread, teb: int, pointer_size: int, sp: int) -> List[Range]:
        if not teb or not thread.space.layer_name:
            return []
        data = Peek(self._context, thread.space.layer_name, pointer_size).read(teb, 3 * pointer_size)
        if data is None:
            return []
        high, low = (_pointer(data, place * pointer_size, pointer_size) for place in (_TIB_BASE, _TIB_LIMIT))
        return [(low, high)] if low <= sp <= high else []


def _pointer(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], "little")
