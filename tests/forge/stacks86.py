# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 stacks as running code leaves them: frames chained by Ebp, trap frames among them."""

from __future__ import annotations

import struct
from typing import List, Tuple

from . import trapframes
from .code import Routine
from .space import Space
from .trapentries import Entry, Registers
from .trapframes import Poison

Expected = Tuple[int, str]


class Stack86:
    """One stack while it is filled; `frames` are (address, how) from the outermost on.

    Args:
        space: where it lies.
        base: its upper end.
        direct: the code says whom it calls; else its calls are such through memory.
    """

    def __init__(self, space: Space, base: int, direct: bool = True) -> None:
        self._space = space
        self._direct = direct
        self._site = 0
        self.sp = base
        self.bp = 0
        self.frames: List[Expected] = []

    def start(self) -> Stack86:
        """A return address of 0 below some room: where a walk ends."""
        self.sp -= 0x20
        self._push(0)
        return self

    def enter(self, module: int, routine: Routine) -> None:
        """Enters a function: the call that was made last turns out to have gone there."""
        if self._site and self._direct:
            distance = module + routine.rva - self._site
            self._space.write_file(self._site - 5, b"\xe8" + struct.pack("<i", distance))
        self._push(self.bp)
        self.bp = self.sp
        self.sp -= routine.alloc

    def call(self, module: int, routine: Routine, site: int = 0, how: str = "framepointer") -> None:
        """Lets the function that was entered last call another from one of its sites."""
        self._site = module + routine.returns(site)
        self.frames.append((self._site, how))
        self._push(self._site)

    def interrupt(
        self, architecture: str, entry: Entry, ip: int, registers: Registers, poison: Poison
    ) -> int:
        """Interrupts the code at an address; the handler's frame pointer is then its trap frame's address."""
        self.frames.append((ip, "trap"))
        frame = trapframes.kernel_address(architecture, entry.kind, self.sp)
        self.trap_frame(
            architecture, entry, {**registers, "eip": ip, "esp": self.sp, "ebp": self.bp}, frame, poison
        )
        return frame

    def trap_frame(
        self, architecture: str, entry: Entry, registers: Registers, frame: int, poison: Poison
    ) -> None:
        """Puts a trap frame somewhere; stack and frame pointer are then its address."""
        data = trapframes.forge(architecture, entry, registers, frame, poison).data
        self._space.write(frame, data[: 0x74 if entry.mode == "kernel" else len(data)])
        self.sp = self.bp = frame
        self._site = 0

    def dispatched(self, *arguments: bytes) -> int:
        """Has the kernel send the thread on in a dispatcher of user mode; returns where its arguments lie.

        Args:
            arguments: what the kernel leaves on the stack, from the lowest address up
        """
        data = b"".join(arguments)
        self.sp -= len(data)
        self._space.write(self.sp, data)
        self._site = 0
        return self.sp

    def push(self, *values: int) -> None:
        """Pushes words, in this order."""
        for value in values:
            self._push(value)

    def switch_out(self, module: int, swap: Routine) -> int:
        """Switches the thread out in the function that has been called last; returns KTHREAD.KernelStack."""
        for value in (0xB, 0x51, 0xD1, self.bp):
            self._push(value)
        address, _ = self.frames[-1]
        self.frames[-1] = (address, "unwind")
        self.frames.append((module + swap.returns(), "trap"))
        for value in (module + swap.returns(), 0, 0xFFFFFFFF):
            self._push(value)
        return self.sp

    def _push(self, value: int) -> None:
        self.sp -= 4
        self._space.write_int(self.sp, value & 0xFFFFFFFF, 4)
