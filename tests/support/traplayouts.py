# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures of the frames, from symbol tables and from published offsets, for tests of the decoders."""

from __future__ import annotations

import functools
from typing import Dict, Mapping, Optional

from tests.conftest import ROOT
from tests.forge import isf
from tests.forge.isf import Isf
from tests.support import real_trapframes
from tests.support.bare import MACHINES
from winstacks.memory.decode.structure import Field, Structure, Structures
from winstacks.traps.decode.context import ContextLayout, ExceptionFrames
from winstacks.traps.decode.frame import TrapFrameLayout
from winstacks.traps.decode.trapframe_x64 import TrapFrameLayout64
from winstacks.traps.decode.trapframe_x86 import TrapFrameLayout86

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
FORMS = {8: TrapFrameLayout64, 4: TrapFrameLayout86}
_POINTER_SIZES = {"x64": 8, "x86": 4}


def plain(name: str, size: int, members: Mapping[str, Field]) -> Structure:
    """A structure of members that are known already."""
    return Structure(name, size, members.get, tuple(members))


# _KEXCEPTION_FRAME of 5.2 (x64): no symbol table of that kernel is at hand.
EXCEPTION_FRAME_5_2 = plain("_KEXCEPTION_FRAME", 0x180, _FIVE_TWO)


def structures(table: Isf) -> Structures:
    """The structures of a symbol table."""

    def make(name: str) -> Optional[Structure]:
        return structure(table, name) if table.has_type(name) else None

    return Structures(make)


def structure(table: Isf, type_name: str) -> Structure:
    """One structure of a symbol table."""

    def lookup(path: str) -> Optional[Field]:
        if not table.has(type_name, path):
            return None
        place = table.place(type_name, path)
        return Field(place.offset, place.size)

    return Structure(type_name, table.size(type_name), lookup, tuple(table.types[type_name]["fields"]))


@functools.lru_cache(maxsize=None)
def ours(arch: str) -> Structures:
    """The structures of our own table of saved registers."""
    name = {"x86": "context-5.1-x86", "x64": "context-5.2-x64"}[arch]
    return structures(isf.load(ROOT / "symbols" / "windows" / "stacktraces" / f"{name}.json"))


def context(arch: str) -> ContextLayout:
    """The CONTEXT of a bitness."""
    return ContextLayout(ours(arch)["_CONTEXT"], MACHINES[_POINTER_SIZES[arch]])


def trap_frame_layout(table: Isf) -> TrapFrameLayout:
    """The trap frames that a symbol table describes."""
    return FORMS[table.pointer_size](structure(table, "_KTRAP_FRAME"))


def exceptions(found: Structure = EXCEPTION_FRAME_5_2) -> ExceptionFrames:
    """The exception frames of a structure."""
    return ExceptionFrames(found, ours("x64"))


def of_real(real: real_trapframes.RealFrame) -> TrapFrameLayout:
    """The form that goes with a measured frame."""
    members: Dict[str, Field] = {
        name: Field(member.offset, member.size) for name, member in real.members.items()
    }
    return FORMS[_POINTER_SIZES[real.arch]](plain("_KTRAP_FRAME", len(real.data), members))
