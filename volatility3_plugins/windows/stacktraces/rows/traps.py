# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.trapframes`."""

from __future__ import annotations

from typing import Optional, Tuple

from ..base import bulk
from ..base.decode.status import Word, says, status, text
from ..names.symbolizer import Name, Symbolizer
from ..traps.decode import eflags
from ..traps.decode.frame import COLUMNS as REGISTERS
from ..traps.decode.frame import MemberValue
from ..traps.state import PROCESSOR, WOW64, State
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, UNPARSABLE, UNREADABLE, Cells, Grid, Hex, given

_SMALL = ("PreviousMode", "PreviousIrql")
_ONLY_64 = ("R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15", "FaultAddress", "GsSwap")
"""Registers that a 32-bit processor or trap frame does not have."""
_FIRST = REGISTERS[1 : REGISTERS.index("FaultAddress") + 1]
_REST = REGISTERS[REGISTERS.index("FaultAddress") + 1 :]


def _typed(name: str) -> Tuple[str, type]:
    return name, int if name in _SMALL else Hex


GRID = Grid(
    ("PID", int),
    ("Process", str),
    ("TID", int),
    ("Arch", str),
    ("Origin", str),
    ("TrapFrame", Hex),
    ("Kind", str),
    ("Mode", str),
    ("Rip", Hex),
    ("Symbol", str),
    ("Source", str),
    *map(_typed, _FIRST),
    ("Unsure", str),
    ("Status", str),
    *map(_typed, _REST),
    ("State", str),
    ("Member", str),
    ("Value", str),
)

_STATE = ("PID", "Process", "TID", "Arch", "Origin", "TrapFrame")


class TrapRows:
    """Makes the rows.

    Args:
        symbolizer: names for interrupted addresses
    """

    def __init__(self, symbolizer: Symbolizer) -> None:
        self._layer = symbolizer.image.layer
        self._symbolizer = symbolizer
        self._row = GRID.maker(
            *_STATE, "Kind", "Mode", "Symbol", "Source", "Unsure", "Status", "State", *REGISTERS
        )
        self._member = GRID.maker(*_STATE, "Member", "Value")

    def row(self, state: State) -> Cells:
        """Returns the row of a register state."""
        name = self._name(state)
        absent = _absent(state)
        context = state.origin in (PROCESSOR, WOW64)
        said = status(
            None if bulk.is_canonical(self._layer, state.address) else Word.NOT_CANONICAL,
            state.status,
            None if name is None else name.status,
        )
        return self._row(
            *self._key(state),
            state.kind or (NOT_APPLICABLE if context else absent),
            state.mode or absent,
            absent if name is None else name.symbol,
            absent if name is None else name.source,
            " ".join(state.unsure),
            text(said),
            state.thread_state or UNREADABLE,
            *(_register(state, register, absent) for register in REGISTERS),
        )

    def member_row(self, state: State, member: MemberValue) -> Cells:
        """Returns the row of one member, which repeats the keys of its state."""
        return self._member(*self._key(state), member.name, value_text(member))

    def _key(self, state: State) -> Cells:
        tid = given(state.tid)
        # That of a thread of which a part is unreadable is in that part.
        if state.tid is None and says(state.status, Word.UNREADABLE, Word.PARTLY_UNREADABLE):
            tid = UNREADABLE
        return (
            state.space.pid,
            state.space.process,
            tid,
            state.arch,
            state.origin,
            Hex(bulk.masked(self._layer, state.address)) if state.address else NOT_APPLICABLE,
        )

    def _name(self, state: State) -> Optional[Name]:
        rip = state.registers.get("Rip")
        if rip is None:
            return None
        return self._symbolizer.names(state.space).name(rip, return_address=False)


def _absent(state: State) -> object:
    """Returns what stands in the place of a register: which kind of nothing it is."""
    if state.registers:
        return NOT_AVAILABLE
    return UNREADABLE if says(state.status, Word.UNREADABLE) else UNPARSABLE


def _register(state: State, name: str, absent: object) -> object:
    value = state.registers.get(name)
    if value is None:
        return NOT_APPLICABLE if state.space.pointer_size == 4 and name in _ONLY_64 else absent
    return value if name in _SMALL else Hex(value)


def value_text(member: MemberValue) -> str:
    """Returns what the column Value says of a member: its value, in words where it has any, its validity."""
    if member.value is None:
        return member.validity
    shown = f"{member.value:#x}"
    meaning = {"EFlags": eflags.eflags_text, "Dr7": eflags.dr7_text}.get(member.name)
    if meaning is not None and meaning(member.value):
        shown += f" [{meaning(member.value)}]"
    return f"{shown} {member.validity}" + (f": {member.note}" if member.note else "")
