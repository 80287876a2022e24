# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Exception frames (_KEXCEPTION_FRAME): the nonvolatile registers that no trap frame holds.

KiExceptionDispatch pushes one right below the trap frame, with an EXCEPTION_RECORD beside it: that record
names the interrupted instruction, which proves that the two frames belong together.

Source: measured in 101 dispatches of 5.2.3790.3959 (frame at the trap frame - 180h) and in a crash of
10.0.19041.804 (trap frame - 1E0h, registers equal to the CONTEXT that Windows wrote).
"""

from __future__ import annotations

import struct
from typing import Mapping, NamedTuple, Optional

from ...base.decode.extents import Extents
from .members import SAVED, UNSURE, Layout, number

NONVOLATILE = ("Rbx", "Rsi", "Rdi", "R12", "R13", "R14", "R15")

# Below the trap frame: 5.2's structure ends at it and holds the record; since Vista the record is apart.
_WITH_RECORD_INSIDE = 0x180
_WITH_RECORD_APART = 0x1E0
_RECORD_APART = 0x138

# EXCEPTION_RECORD64: ExceptionCode, ExceptionFlags, ExceptionRecord, ExceptionAddress, NumberParameters.
_RECORD = struct.Struct("<IIQQI")
_MAX_PARAMETERS = 15
_MAX_FLAGS = 0x100
# A trap's Rip is moved past the instruction (int 3), or back to it, while the record keeps the other.
_MAX_RIP_SHIFT = 2
_DISPATCHER = "KiExceptionDispatch"


class ExceptionFrame(NamedTuple):
    """Nonvolatile registers below a trap frame, and how far they may be believed (SAVED or UNSURE)."""

    address: int
    registers: Mapping[str, int]
    validity: str
    exception_code: int


def position(layout: Layout, trap_frame: int) -> int:
    """Returns where KiExceptionDispatch puts the exception frame of a trap frame.

    Args:
        layout: the image's _KEXCEPTION_FRAME
        trap_frame: the trap frame's address
    """
    inside = "ExceptionRecord" in layout.members
    return trap_frame - (_WITH_RECORD_INSIDE if inside else _WITH_RECORD_APART)


def dispatcher_slot(layout: Layout, trap_frame: int) -> int:
    """Returns the address of the return address that lies just below the exception frame."""
    return position(layout, trap_frame) - 8


def find(
    layout: Layout, trap_frame: int, rip: int, memory: Extents, dispatcher: str = ""
) -> Optional[ExceptionFrame]:
    """Returns the exception frame below a trap frame if one was built for it.

    Args:
        layout: the image's _KEXCEPTION_FRAME
        trap_frame: the trap frame's address
        rip: its Rip
        memory: the stack around it
        dispatcher: the function whose return address lies just below the exception frame, if known

    Returns:
        The registers, or None where no exception record for this Rip is in its place. They are sure if
        the dispatcher is known, else what was built there may be older than the trap frame.
    """
    address = position(layout, trap_frame)
    inside = layout.members.get("ExceptionRecord")
    record = memory.read(address + (inside.offset if inside else _RECORD_APART), _RECORD.size)
    data = memory.read(address, layout.size)
    if record is None or data is None:
        return None
    code, flags, nested, faulting, count = _RECORD.unpack(record)
    if not code or flags >= _MAX_FLAGS or nested or count > _MAX_PARAMETERS:
        return None
    if not rip or abs(faulting - rip) > _MAX_RIP_SHIFT:
        return None
    if dispatcher and not dispatcher.startswith(_DISPATCHER):
        return None
    held = bytes(data)
    registers = {name: number(layout, held, name) for name in NONVOLATILE}
    return ExceptionFrame(address, registers, SAVED if dispatcher else UNSURE, code)
