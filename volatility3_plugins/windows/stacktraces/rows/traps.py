# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.trapframes`, in the order of its columns."""

from __future__ import annotations

from typing import List, Optional, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..base import bulk
from ..names.symbolizer import Name, Symbolizer
from ..traps.decode import eflags
from ..traps.decode.frame import COLUMNS as REGISTERS
from ..traps.decode.frame import MemberValue
from ..traps.state import NOT_CANONICAL, PROCESSOR, UNREADABLE, WOW64, State, words

_KEYS: List[Tuple[str, type]] = [
    ("PID", int),
    ("Process", str),
    ("TID", int),
    ("Arch", str),
    ("Origin", str),
    ("TrapFrame", format_hints.Hex),
    ("Kind", str),
    ("Mode", str),
    ("Rip", format_hints.Hex),
    ("Symbol", str),
    ("Source", str),
]
_SMALL = ("PreviousMode", "PreviousIrql")
_ONLY_X64 = ("R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15", "FaultAddress", "GsSwap")
_FIRST = REGISTERS[1 : REGISTERS.index("FaultAddress") + 1]
_REST = REGISTERS[REGISTERS.index("FaultAddress") + 1 :]


def _typed(name: str) -> Tuple[str, type]:
    return name, int if name in _SMALL else format_hints.Hex


COLUMNS: List[Tuple[str, type]] = [
    *_KEYS,
    *map(_typed, _FIRST),
    ("Unsure", str),
    ("Status", str),
    *map(_typed, _REST),
    ("State", str),
    ("Member", str),
    ("Value", str),
]

Row = Tuple[object, ...]

_NONE = renderers.NotApplicableValue()
_NOT_SAVED = renderers.NotAvailableValue()
_UNREAD = renderers.UnreadableValue()
_UNPARSED = renderers.UnparsableValue()


class TrapRows:
    """Makes the rows.

    Args:
        layer: the kernel's layer, whose form of addresses the column TrapFrame has
        symbolizer: names for interrupted addresses
    """

    def __init__(self, layer: interfaces.layers.DataLayerInterface, symbolizer: Symbolizer) -> None:
        self._layer = layer
        self._symbolizer = symbolizer

    def row(self, state: State) -> Row:
        """Returns the row of a register state."""
        name = self._name(state)
        absent = self._absent(state)
        context = state.origin in (PROCESSOR, WOW64)
        kind: object = state.kind or (_NONE if context else absent)
        status = words(
            "" if bulk.is_canonical(self._layer, state.address) else NOT_CANONICAL,
            state.status,
            name.status if name is not None else "",
        )
        return (
            *self._key(state),
            kind,
            state.mode or absent,
            self._register(state, "Rip", absent),
            name.symbol if name is not None else absent,
            name.source if name is not None else absent,
            *(self._register(state, register, absent) for register in _FIRST),
            " ".join(state.unsure),
            status,
            *(self._register(state, register, absent) for register in _REST),
            state.thread_state or _UNREAD,
            _NONE,
            _NONE,
        )

    def member_row(self, state: State, member: MemberValue) -> Row:
        """Returns the row of one member, which repeats the keys of its state."""
        width = len(COLUMNS) - len(_KEYS) + 5
        return (*self._key(state), *(_NONE,) * (width - 2), member.name, value_text(member))

    def _key(self, state: State) -> Row:
        address = bulk.masked(self._layer, state.address)
        return (
            state.space.pid,
            state.space.process,
            state.tid if state.tid is not None else _UNREAD if UNREADABLE in state.status else _NONE,
            state.arch,
            state.origin,
            format_hints.Hex(address) if state.address else _NONE,
        )

    def _absent(self, state: State) -> object:
        """Returns what stands in the place of a register: which kind of nothing it is."""
        if state.registers:
            return _NOT_SAVED
        return _UNREAD if UNREADABLE in state.status else _UNPARSED

    def _register(self, state: State, name: str, absent: object) -> object:
        value = state.registers.get(name)
        if value is None:
            return _NONE if state.arch == "x86" and name in _ONLY_X64 else absent
        return value if name in _SMALL else format_hints.Hex(value)

    def _name(self, state: State) -> Optional[Name]:
        rip = state.registers.get("Rip")
        if rip is None:
            return None
        return self._symbolizer.names(state.space).name(rip, return_address=False)


def value_text(member: MemberValue) -> str:
    """Returns what the column Value says of a member: its value, in words where it has any, its validity."""
    if member.value is None:
        return member.validity
    text = f"{member.value:#x}"
    meaning = {"EFlags": eflags.eflags_text, "Dr7": eflags.dr7_text}.get(member.name)
    if meaning is not None and meaning(member.value):
        text += f" [{meaning(member.value)}]"
    return f"{text} {member.validity}" + (f": {member.note}" if member.note else "")
