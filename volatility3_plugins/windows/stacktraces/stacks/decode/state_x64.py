# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x64 registers while they are being unwound: what each unwind code and each part of an epilogue does to
them.

Source: Microsoft, "x64 exception handling" (UNWIND_CODE, "Unwind procedure").
"""

from __future__ import annotations

from typing import List, Optional

from ...names.decode.unwindinfo import (
    ALLOC_LARGE,
    ALLOC_SMALL,
    PUSH_MACHFRAME,
    PUSH_NONVOL,
    SAVE_NONVOL,
    SAVE_NONVOL_FAR,
    SAVE_XMM128,
    SAVE_XMM128_FAR,
    SET_FPREG,
    Code,
    UnwindInfo,
)
from .epilogue import Epilogue
from .frames import Read, UnwindError
from .registers_x64 import MASK, NON_VOLATILE, NON_VOLATILE_XMM, RSP, Registers


class State:
    """Registers while they are being unwound."""

    def __init__(self, registers: Registers, read: Read) -> None:
        self._read = read
        self._general: List[Optional[int]] = list(registers.general)
        self._xmm: List[Optional[int]] = list(registers.xmm)
        self._ip: Optional[int] = None
        self.machine_frame: Optional[int] = None

    @property
    def _sp(self) -> int:
        return self._general[RSP] or 0

    @_sp.setter
    def _sp(self, value: int) -> None:
        self._general[RSP] = value & MASK

    def _load(self, address: int, size: int = 8) -> Optional[int]:
        data = self._read(address & MASK, size)
        return None if data is None else int.from_bytes(data, "little")

    def _frame_register(self, info: UnwindInfo) -> int:
        value = self._general[info.frame_register]
        if value is None:
            raise UnwindError("frame register unknown")
        return value

    def undo(self, info: UnwindInfo, offset: int) -> None:
        """Undoes the codes of the prologue up to an offset in it, the last first."""
        executed = [code for code in info.codes if code.offset <= offset]
        frame = self._sp
        if info.frame_register and (
            offset >= info.prolog_size or any(code.operation == SET_FPREG for code in executed)
        ):
            frame = self._frame_register(info) - info.frame_offset
        for code in executed:
            self._undo(code, info, frame)

    def _undo(self, code: Code, info: UnwindInfo, frame: int) -> None:
        """Undoes one code; `frame` is the base of the fixed allocation."""
        if code.operation == PUSH_NONVOL:
            self._general[code.info] = self._pop(code.info)
        elif code.operation in (ALLOC_SMALL, ALLOC_LARGE):
            self._sp += code.value
        elif code.operation == SET_FPREG:
            self._sp = self._frame_register(info) - info.frame_offset
        elif code.operation in (SAVE_NONVOL, SAVE_NONVOL_FAR):
            self._general[code.info] = self._load(frame + code.value)
        elif code.operation in (SAVE_XMM128, SAVE_XMM128_FAR):
            self._xmm[code.info] = self._load(frame + code.value, 16)
        elif code.operation == PUSH_MACHFRAME:
            self._machine_frame(self._sp + (8 if code.info & 1 else 0))

    def _pop(self, register: int) -> Optional[int]:
        value = self._load(self._sp)
        self._sp += 8
        return self._sp if register == RSP else value

    def _machine_frame(self, address: int) -> None:
        """Takes Rip and Rsp from what the processor pushed: Rip, SegCs, EFlags, Rsp, SegSs."""
        self._ip, sp = self._load(address), self._load(address + 24)
        if self._ip is None or sp is None:
            raise UnwindError("stack unreadable")
        self._sp = sp
        self.machine_frame = address & MASK

    def finish(self, rest: Epilogue) -> None:
        """Carries out the rest of an epilogue up to its return, its jump or its return from interrupt."""
        if rest.base is not None:
            value = self._general[rest.base]
            if value is None:
                raise UnwindError("frame register unknown")
            self._sp = value
        self._sp += rest.adjust
        for register in rest.pops:
            self._general[register] = self._pop(register)
        if rest.from_interrupt:
            self._machine_frame(self._sp)

    def returned(self) -> Registers:
        """Returns the registers after the return: volatile ones are then unknown.

        Behind a machine frame they are unknown too: whoever built it saved them elsewhere.
        """
        if self._ip is None:
            self._ip = self._load(self._sp)
            if self._ip is None:
                raise UnwindError("stack unreadable")
            self._sp += 8
        return Registers(
            self._ip,
            tuple(value if number in NON_VOLATILE else None for number, value in enumerate(self._general)),
            tuple(value if number in NON_VOLATILE_XMM else None for number, value in enumerate(self._xmm)),
        )
