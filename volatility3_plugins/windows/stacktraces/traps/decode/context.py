# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""CONTEXT records: the registers that Windows itself wrote out, part by part as ContextFlags say.

Source: CONTEXT and WOW64_CONTEXT of winnt.h, the same in every version.
"""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Optional, Tuple

from ...base.decode.field import Buffer, Field
from .members import Layout, number

_CONTROL, _INTEGER, _SEGMENTS, _FLOATING_POINT, _DEBUG, _EXTENDED = 1, 2, 4, 8, 0x10, 0x20
_ARCHITECTURE = {"x64": 0x100000, "x86": 0x10000}
_KNOWN_FLAGS = 0xF811_00FF
"""Parts, architecture, and the exception and unwinding flags of winnt.h."""


def _quads(offset: int, names: str) -> Dict[str, Field]:
    return {name: Field(offset + 8 * place, 8) for place, name in enumerate(names.split())}


def _longs(offset: int, names: str) -> Dict[str, Field]:
    return {name: Field(offset + 4 * place, 4) for place, name in enumerate(names.split())}


def _words(offset: int, names: str) -> Dict[str, Field]:
    return {name: Field(offset + 2 * place, 2) for place, name in enumerate(names.split())}


X64 = Layout(
    "x64",
    0x4D0,
    {
        **_longs(0x30, "ContextFlags MxCsr"),
        **_words(0x38, "SegCs SegDs SegEs SegFs SegGs SegSs"),
        **_longs(0x44, "EFlags"),
        **_quads(0x48, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
        **_quads(0x78, "Rax Rcx Rdx Rbx Rsp Rbp Rsi Rdi R8 R9 R10 R11 R12 R13 R14 R15 Rip"),
    },
)
# Named as an x64 context, as the columns are.
X86 = Layout(
    "x86",
    0x2CC,
    {
        **_longs(0, "ContextFlags Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
        **_longs(0x8C, "SegGs SegFs SegEs SegDs Rdi Rsi Rbx Rdx Rcx Rax Rbp Rip SegCs EFlags Rsp SegSs"),
        **_longs(0xE4, "MxCsr"),
    },
)
LAYOUTS = {"x64": X64, "x86": X86}

_PARTS: Dict[str, Tuple[Tuple[int, str], ...]] = {
    "x64": (
        (_CONTROL, "Rip Rsp EFlags SegCs SegSs"),
        (_INTEGER, "Rax Rcx Rdx Rbx Rbp Rsi Rdi R8 R9 R10 R11 R12 R13 R14 R15"),
        (_SEGMENTS, "SegDs SegEs SegFs SegGs"),
        (_FLOATING_POINT, "MxCsr"),
        (_DEBUG, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
    ),
    "x86": (
        (_CONTROL, "Rip Rsp Rbp EFlags SegCs SegSs"),
        (_INTEGER, "Rax Rcx Rdx Rbx Rsi Rdi"),
        (_SEGMENTS, "SegDs SegEs SegFs SegGs"),
        (_EXTENDED, "MxCsr"),
        (_DEBUG, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
    ),
}


class CpuContext(NamedTuple):
    """The registers of a CONTEXT that its flags say were written, under their x64 names."""

    flags: int
    user: bool
    registers: Mapping[str, int]


def decode(arch: str, data: Buffer) -> Optional[CpuContext]:
    """Decodes a CONTEXT.

    Args:
        arch: `x64` or `x86`
        data: LAYOUTS[arch].size bytes

    Returns:
        The registers, or None if ContextFlags are not those of a context that was written.
    """
    layout = LAYOUTS[arch]
    held = bytes(data)
    flags = number(layout, held, "ContextFlags")
    architecture = _ARCHITECTURE[arch]
    parts = flags & 0xFF
    if len(held) < layout.size or not flags & architecture or not parts or flags & ~_KNOWN_FLAGS:
        return None
    registers = {}
    for part, names in _PARTS[arch]:
        if parts & part:
            for name in names.split():
                value = number(layout, held, name)
                registers[name] = value & 0xFFFF if name.startswith("Seg") else value
    return CpuContext(flags, registers.get("SegCs", 0) & 3 == 3, registers)
