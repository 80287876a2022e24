# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64 stacks as running code leaves them: call by call, non-volatile registers kept where they would be."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

from . import trapframes
from .code import R12, R13, R14, R15, RBP, RBX, RDI, RSI, Routine
from .space import Space
from .trapentries import X64, Entry, Registers
from .trapframes import Poison

KEPT = (RBX, RBP, RSI, RDI, R12, R13, R14, R15)
NAMES = {RBX: "rbx", RBP: "rbp", RSI: "rsi", RDI: "rdi", R12: "r12", R13: "r13", R14: "r14", R15: "r15"}
_ERROR_CODE = 0x160


class Expected(NamedTuple):
    """A frame that a walk must find: innermost ones come last here. `kept` are its non-volatile registers."""

    address: int
    sp: int
    how: str
    kept: Dict[int, int]


class Stack64:
    """One stack while it is filled.

    Args:
        space: where it lies.
        base: its upper end.
        values: gives each register a value of its own, by (register, a running number).
    """

    def __init__(self, space: Space, base: int, values: Optional[Callable[[int, int], int]] = None) -> None:
        self._space = space
        self._count = 0
        self._values = values or (lambda register, count: 0x5A00000000 + count * 0x100 + register)
        self.sp = base
        self.registers = dict.fromkeys(KEPT, 0)
        self.frames: List[Expected] = []

    def start(self, home: int = 0x28) -> Stack64:
        """Leaves room, and a return address of 0, which is where a walk ends."""
        self.sp -= home
        self.push(0)
        return self

    def enter(self, module: int, routine: Routine) -> None:
        """Enters a function whose return address has been pushed: builds its frame, changes registers."""
        for register in routine.pushes:
            self.push(self.registers[register])
        self.sp -= routine.alloc
        for register, offset in routine.saves.items():
            self._space.write_int(self.sp + offset, self.registers[register], 8)
        for register in {*routine.pushes, *routine.saves}:
            self._count += 1
            self.registers[register] = self._values(register, self._count)
        if routine.frame is not None:
            self.registers[routine.frame[0]] = self.sp + routine.frame[1]

    def call(self, module: int, routine: Routine, site: int = 0, how: str = "unwind") -> None:
        """Lets the function that was entered last call another from one of its sites."""
        self.frames.append(Expected(module + routine.returns(site), self.sp, how, dict(self.registers)))
        self.push(module + routine.returns(site))

    def interrupt(self, entry: Entry, ip: int, registers: Registers, poison: Poison) -> int:
        """Interrupts the code at an address; the stack pointer is then behind the error code of the frame.

        Returns:
            The address of the trap frame.
        """
        state = {**registers, **{NAMES[register]: value for register, value in self.registers.items()}}
        state.update(rip=ip, rsp=self.sp)
        self.frames.append(Expected(ip, self.sp, "trap", dict(self.registers)))
        frame = trapframes.kernel_address(X64, entry.kind, self.sp)
        self.trap_frame(entry, state, frame, poison)
        return frame

    def dispatched(self, ip: int, routine: Routine, cs: int) -> None:
        """Has the kernel send the thread, which is at an address, through a dispatcher of user mode.

        Of the machine frame the kernel writes Rip and Rsp; `cs` and the rest are stale.
        """
        self.frames.append(Expected(ip, self.sp, "trap", dict(self.registers)))
        frame = (self.sp - 0x80 & ~0xF) - 0x28
        for place, value in enumerate((ip, cs, cs, self.sp, cs)):
            self._space.write_int(frame + 8 * place, value, 8)
        self.sp = frame - routine.alloc

    def trap_frame(self, entry: Entry, registers: Registers, frame: int, poison: Poison) -> None:
        """Puts a trap frame somewhere, and the stack pointer where its handler starts."""
        self._space.write(frame, trapframes.forge(X64, entry, registers, frame, poison).data)
        for register, name in NAMES.items():
            self.registers[register] = registers.get(name, self.registers[register])
        self.sp = frame + _ERROR_CODE

    def switch_out(self) -> int:
        """Switches the thread out below the function entered last; returns KTHREAD.KernelStack."""
        self.frames[-1] = self.frames[-1]._replace(how="trap")
        self.push(self.registers[RBP])
        self.sp -= 0x30
        return self.sp

    def push(self, value: int) -> None:
        """Pushes a value."""
        self.sp -= 8
        self._space.write_int(self.sp, value, 8)
