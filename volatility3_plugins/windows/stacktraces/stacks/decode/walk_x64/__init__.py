# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an x64 stack: by unwind data, across machine frames."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from ....base.decode.status import Word
from ..frames import (
    LEAF,
    SCAN,
    TRAP,
    UNWIND,
    Border,
    CodeImage,
    FindImage,
    MayExecute,
    OwnCopy,
    Read,
    UnwindError,
    anywhere,
    shared,
)
from ..registers import Registers
from ..step_x64 import LEAF as LEAF_FUNCTION
from ..step_x64 import Step, Unwinder
from ..walk import Taken, Walker

_CS = 8
"""Offset in a machine frame, of five slots: Rip, SegCs, EFlags, Rsp, SegSs."""

_NEAR_CALL = 5
"""Bytes of the commonest call."""

_KERNEL_HALF = 1 << 63
"""Set in every address of the kernel's."""


class Walker64(Walker[Registers]):
    """Walks x64 stacks of one address space.

    Args:
        find_image: finds the module that holds an address
        read: reads memory, by canonical address
        machine_frames: addresses of machine frames that are known to lie on the stack, and the registers that
            were saved beside each
        may_execute: tells which memory in no module may be code
        own_copy: tells which code of modules the process has changed
    """

    slot_size = 8

    def __init__(
        self,
        find_image: FindImage,
        read: Read,
        machine_frames: Optional[Mapping[int, Registers]] = None,
        may_execute: MayExecute = anywhere,
        own_copy: OwnCopy = shared,
    ) -> None:
        super().__init__(find_image, read, may_execute)
        self._machine_frames = machine_frames or {}
        self._own_copy = own_copy
        # The return address that was looked at last, and its module: the next step asks for it again.
        self._found: Tuple[int, Optional[CodeImage]] = (0, None)

    def step(self, registers: Registers, interrupted: bool) -> Taken[Registers]:
        """Finds the caller of a frame; raises UnwindError."""
        step = self._unwind(registers, interrupted)
        doubt, remark = None if step.sure else Word.CODE_UNREADABLE, None
        if step.differs:
            remark = Word.CODE_AND_UNWIND_DATA_DIFFER
            doubt = remark if self._own_copy(registers.ip) else None
        if step.machine_frame is not None:
            return self._interrupted(step.registers, step.machine_frame, doubt, remark)
        if step.position != LEAF_FUNCTION:
            if doubt is None and self._is_no_return(step.registers.ip):
                doubt = Word.NOT_BEHIND_A_CALL
            return Taken(step.registers, UNWIND, doubt=doubt, remark=remark)
        proven = self.is_return(step.registers.ip)
        if not proven and not self.may_return(step.registers.ip):
            raise UnwindError(Word.NO_UNWIND_DATA)
        return Taken(step.registers, LEAF, doubt=None if proven else Word.CODE_UNREADABLE)

    def look(self, slot: int, value: int) -> Optional[Taken[Registers]]:
        """Takes a known machine frame or what may be a return address."""
        if slot in self._machine_frames:
            return self._interrupted(self._machine_frames[slot], slot)
        if self.may_return(value):
            return Taken(Registers.of(value, slot + self.slot_size), SCAN)
        return None

    def _unwind(self, registers: Registers, interrupted: bool) -> Step:
        known, image = self._found
        if interrupted or known != registers.ip:
            image = self._find_image(registers.ip if interrupted else registers.ip - 1)
        if image is None:
            raise UnwindError(Word.CODE_IN_NO_MODULE)
        if image.table is None:
            raise UnwindError(Word.NO_FUNCTION_TABLE)
        return Unwinder(image.table, image.base, self._read, image.read_rva).step(registers, interrupted)

    def _is_no_return(self, address: int) -> bool:
        """Tells whether code that can be read shows that an address is no return address."""
        if not address:
            return False
        image = self._find_image(address - 1)
        self._found = (address, image)
        if image is not None:
            code = image.read_rva(address - image.base - _NEAR_CALL, 1)
            if code is not None and code[0] == 0xE8:
                return False
        return self.is_behind_call(address) is False

    def _interrupted(
        self,
        registers: Registers,
        machine_frame: int,
        doubt: Optional[Word] = None,
        remark: Optional[Word] = None,
    ) -> Taken[Registers]:
        """Steps to what was interrupted, and adds what was saved beside its machine frame.

        The processor pushes machine frames onto kernel stacks only: there SegCs tells the border to user
        mode. Those on a user stack, below KiUserExceptionDispatcher, KiUserApcDispatcher and
        KiUserCallbackDispatcher, are the kernel's work. It writes Rip and Rsp and nothing else. Source:
        KiDispatchException and KeUserModeCallback of 5.2.3790.3959.
        """
        saved = self._machine_frames.get(machine_frame)
        if saved is not None:
            known = zip(registers.general, saved.general)
            registers = registers._replace(general=tuple(a if a is not None else b for a, b in known))
        border = None
        cs = self.read_stack(machine_frame + _CS) if machine_frame & _KERNEL_HALF else None
        if cs is not None and cs & 3:
            border = Border(machine_frame, registers.ip, registers.sp, cs & 0xFFFF, registers)
        return Taken(registers, TRAP, True, doubt, trap=machine_frame, border=border, remark=remark)
