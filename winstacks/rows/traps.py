# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.trapframes`.

Source of the words for EFlags and Dr7: Intel SDM volume 1, 3.4.3 and volume 3, 17.2.4.
"""

from __future__ import annotations

from typing import List, Optional

from ..columns.registers import ARM64_REGISTERS, REGISTERS, X64_REGISTERS
from ..columns.words import PROCESSOR, SWITCHED, WOW64
from ..memory.decode.machine import Machine
from ..memory.decode.status import has_status, status, text
from ..memory.decode.statuscodes import StatusCode
from ..stacklist.frames import NamedFrame, NamedFrames
from ..traps.decode.frame import MemberValue
from ..traps.state import TrapState
from .frames import FramePrinter
from .grid import (
    NOT_APPLICABLE,
    NOT_AVAILABLE,
    UNPARSABLE,
    UNREADABLE,
    Cells,
    Grid,
    Hex,
    or_not_applicable,
    or_unreadable,
)

_FLAGS = {
    0: "CF",
    2: "PF",
    4: "AF",
    6: "ZF",
    7: "SF",
    8: "TF",
    9: "IF",
    10: "DF",
    11: "OF",
    14: "NT",
    16: "RF",
    17: "VM",
    18: "AC",
    19: "VIF",
    20: "VIP",
    21: "ID",
}
_IOPL_SHIFT = 12
_ACCESS = ("execute", "write", "io", "read/write")
_LENGTHS = (1, 2, 8, 4)
_DR7_SWITCHES = {8: "LE", 9: "GE", 11: "RTM", 13: "GD"}


def eflags_text(value: int) -> str:
    """Returns the names of the set flags, lowest bit first, and IOPL if it is not 0.

    >>> eflags_text(0x246)
    'PF ZF IF'
    """
    words = [name for bit, name in _FLAGS.items() if value >> bit & 1]
    level = value >> _IOPL_SHIFT & 3
    return " ".join(words + ([f"IOPL={level}"] if level else []))


def dr7_text(value: int) -> str:
    """Returns the enabled breakpoints of Dr7 and its other set bits.

    >>> dr7_text(0xD0101)
    'Dr0 write 4 local LE'
    """
    words: List[str] = []
    for index in range(4):
        enabled = value >> 2 * index & 3
        if enabled:
            control = value >> 16 + 4 * index & 0xF
            scope = " ".join(name for bit, name in ((1, "local"), (2, "global")) if enabled & bit)
            words.append(f"Dr{index} {_ACCESS[control & 3]} {_LENGTHS[control >> 2]} {scope}")
    switches = " ".join(name for bit, name in _DR7_SWITCHES.items() if value >> bit & 1)
    return ", ".join(words) + (" " if words and switches else "") + switches


_SMALL = ("PreviousMode", "PreviousIrql")
_ONLY_64 = ("R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15", "FaultAddress", "GsSwap")
_COMMON = ("FaultAddress", "PreviousMode", "PreviousIrql")
_LACKS = {
    Machine.AMD64: frozenset(ARM64_REGISTERS),
    Machine.I386: frozenset((*_ONLY_64, *ARM64_REGISTERS)),
    Machine.ARM64: frozenset(X64_REGISTERS).difference(_COMMON),
}
"""Registers that a processor, or its trap frames, does not have."""
GRID = Grid.for_plugin("trapframes")

_STATE = ("PID", "Process", "TID", "Arch", "Origin", "TrapFrame")


class TrapRows:
    """Makes the rows."""

    def __init__(self, named: NamedFrames) -> None:
        self._machine = named.image.machine
        self._named = named
        self._printer = FramePrinter(self._machine)
        self._row = GRID.maker(
            *(*_STATE, "TrapKind", "Mode", "Symbol", "Source", "Backing", "Unsure", "NotSaved", "Status"),
            *("State", "Processor", *REGISTERS),
        )
        self._member = GRID.maker(*_STATE, "Member", "Value")

    def row(self, state: TrapState) -> Cells:
        frame = self._frame(state)
        absent = _absent(state)
        registers = [_register(state, register, absent) for register in REGISTERS]
        not_saved = (name for name, cell in zip(REGISTERS, registers) if cell is NOT_AVAILABLE)
        context = state.origin in (PROCESSOR, SWITCHED, WOW64)
        row_status = status(
            None if self._machine.is_canonical(state.address) else StatusCode.NOT_CANONICAL,
            state.status,
            None if frame is None or frame.name is None else frame.name.status,
        )
        return self._row(
            *self._key(state),
            state.kind or (NOT_APPLICABLE if context else absent),
            state.mode or absent,
            *((absent,) * 3 if frame is None else self._printer[frame][1:-1]),
            " ".join(state.unsure),
            " ".join(not_saved) if state.registers else absent,
            text(row_status),
            (state.thread_state or UNREADABLE) if not state.processor else NOT_APPLICABLE,
            state.processor or NOT_APPLICABLE,
            *registers,
        )

    def member_row(self, state: TrapState, member: MemberValue) -> Cells:
        """Returns the row of one member, with the keys of its state repeated."""
        return self._member(*self._key(state), member.name, value_text(member))

    def _key(self, state: TrapState) -> Cells:
        tid = or_not_applicable(state.tid)
        # The unreadable part of a thread holds its ID.
        if state.tid is None and has_status(
            state.status, StatusCode.UNREADABLE, StatusCode.PARTLY_UNREADABLE
        ):
            tid = UNREADABLE
        return (
            or_unreadable(state.space.pid),
            or_unreadable(state.space.known_name),
            tid,
            state.arch,
            state.origin,
            Hex(self._machine.masked(state.address)) if state.address else NOT_APPLICABLE,
        )

    def _frame(self, state: TrapState) -> Optional[NamedFrame]:
        ip = state.ip
        return None if ip is None else self._named.for_space(state.space).frame(ip, returns=False)


def _absent(state: TrapState) -> object:
    """Returns the absent value that stands for a register of a state."""
    if state.registers:
        return NOT_AVAILABLE
    return UNREADABLE if has_status(state.status, StatusCode.UNREADABLE) else UNPARSABLE


def _register(state: TrapState, name: str, absent: object) -> object:
    value = state.registers.get(name)
    if value is None:
        return NOT_APPLICABLE if name in _LACKS[state.space.machine] else absent
    return value if name in _SMALL else Hex(value)


def value_text(member: MemberValue) -> str:
    """Returns the column Value of a member: its value, in words where it has any, and its validity."""
    if member.value is None:
        return member.validity
    shown = f"{member.value:#x}"
    meaning = {"EFlags": eflags_text, "Dr7": dr7_text}.get(member.name)
    if meaning is not None and meaning(member.value):
        shown += f" [{meaning(member.value)}]"
    return f"{shown} {member.validity}" + (f": {member.note}" if member.note else "")
