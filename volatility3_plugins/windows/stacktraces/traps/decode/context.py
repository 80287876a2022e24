# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""CONTEXT records: the registers that Windows itself wrote out, part by part as ContextFlags say.

Source of the parts and flags: CONTEXT and WOW64_CONTEXT of winnt.h, the same in every version. Where the
members lie is in the tables `context-*.json`.
"""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, Optional, Tuple

from ...base.decode.record import Record
from ...base.decode.structure import Buffer, Field, Structure
from .frame import COLUMNS, SAVED, UNWRITTEN, MemberValue

_CONTROL, _INTEGER, _SEGMENTS, _FLOATING_POINT, _DEBUG, _EXTENDED = 1, 2, 4, 8, 0x10, 0x20
_ARCHITECTURE = {8: 0x100000, 4: 0x10000}
_KNOWN_FLAGS = 0xF811_00FF
"""Parts, architecture, and the exception and unwinding flags of winnt.h."""

_PARTS: Dict[int, Tuple[Tuple[int, str], ...]] = {
    8: (
        (_CONTROL, "Rip Rsp EFlags SegCs SegSs"),
        (_INTEGER, "Rax Rcx Rdx Rbx Rbp Rsi Rdi R8 R9 R10 R11 R12 R13 R14 R15"),
        (_SEGMENTS, "SegDs SegEs SegFs SegGs"),
        (_FLOATING_POINT, "MxCsr"),
        (_DEBUG, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
    ),
    4: (
        (_CONTROL, "Rip Rsp Rbp EFlags SegCs SegSs"),
        (_INTEGER, "Rax Rcx Rdx Rbx Rsi Rdi"),
        (_SEGMENTS, "SegDs SegEs SegFs SegGs"),
        (_EXTENDED, "MxCsr"),
        (_DEBUG, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
    ),
}
"""The columns that each part fills, by pointer size."""

_SELECTOR_MASK = 0xFFFF


class CpuContext(Record):
    """The registers of a CONTEXT that its flags say were written, under their x64 names."""

    flags: int
    user: bool
    registers: Mapping[str, int]


NO_CONTEXT = CpuContext(0, True, {})


class ContextForm:
    """The CONTEXT of one bitness.

    Args:
        structure: _CONTEXT
        pointer_size: 4 or 8

    Attributes:
        size: its bytes
        fields: where each column's register lies, ContextFlags among them
    """

    def __init__(self, structure: Structure, pointer_size: int) -> None:
        self.size = structure.size
        self._architecture = _ARCHITECTURE[pointer_size]
        self._parts = tuple((part, tuple(names.split())) for part, names in _PARTS[pointer_size])
        self.fields: Dict[str, Field] = {"ContextFlags": structure.field("ContextFlags")}
        for _, names in self._parts:
            for name in names:
                self.fields[name] = structure.field(name, "E" + name[1:], "ExtendedRegisters." + name)

    def decode(self, data: Buffer) -> Optional[CpuContext]:
        """Decodes a CONTEXT.

        Args:
            data: `size` bytes

        Returns:
            The registers, or None if ContextFlags are not those of a context that was written.
        """
        if len(data) < self.size:
            return None
        flags = self.fields["ContextFlags"].of(data)
        parts = flags & 0xFF
        if not flags & self._architecture or not parts or flags & ~_KNOWN_FLAGS:
            return None
        registers = {}
        for part, names in self._parts:
            if parts & part:
                for name in names:
                    value = self.fields[name].of(data)
                    registers[name] = value & _SELECTOR_MASK if name.startswith("Seg") else value
        return CpuContext(flags, registers.get("SegCs", 0) & 3 == 3, registers)

    def listed(self, found: CpuContext) -> Iterator[MemberValue]:
        """Yields every member that has a column, by offset."""
        rows = []
        for name in ("ContextFlags", *COLUMNS):
            field = self.fields.get(name)
            if field is not None:
                value = found.flags if name == "ContextFlags" else found.registers.get(name)
                validity = UNWRITTEN if value is None else SAVED
                rows.append(MemberValue(name, field.offset, field.size, value, validity, ""))
        yield from sorted(rows, key=lambda row: row.offset)
