# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Layouts of the frames, from symbol tables and from published offsets, for tests of the decoders."""

from __future__ import annotations

from volatility3.plugins.windows.stacktraces.base.decode.field import Field
from volatility3.plugins.windows.stacktraces.traps.decode.members import Layout

from tests.forge.isf import Isf
from tests.support import real_trapframes

_FIVE_TWO = {
    "ExceptionRecord": Field(0xF0, 64),
    "MxCsr": Field(0x130, 4),
    "Rbp": Field(0x138, 8),
    "Rbx": Field(0x140, 8),
    "Rdi": Field(0x148, 8),
    "Rsi": Field(0x150, 8),
    "R12": Field(0x158, 8),
    "R13": Field(0x160, 8),
    "R14": Field(0x168, 8),
    "R15": Field(0x170, 8),
    "Return": Field(0x178, 8),
}

# _KEXCEPTION_FRAME of 5.2 (x64): no symbol table of that kernel is at hand.
EXCEPTION_FRAME_5_2 = Layout("x64", 0x180, _FIVE_TWO)


def of(table: Isf, type_name: str) -> Layout:
    """The layout that a symbol table gives."""
    places = {name: table.place(type_name, name) for name in table.types[type_name]["fields"]}
    members = {name: Field(place.offset, place.size) for name, place in places.items()}
    return Layout("x64" if table.pointer_size == 8 else "x86", table.size(type_name), members)


def of_real(real: real_trapframes.RealFrame) -> Layout:
    """The layout that goes with a measured frame."""
    members = {name: Field(member.offset, member.size) for name, member in real.members.items()}
    return Layout(real.arch, len(real.data), members)
