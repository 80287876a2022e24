# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""CONTEXT records and exception frames: registers saved beside a trap frame, or in place of one.

A CONTEXT has parts (control, integer, segments and so on), and ContextFlags has a bit for each part that
Windows wrote. Source of the parts and flags: CONTEXT and WOW64_CONTEXT of winnt.h, the same in every version.
The offsets of the members are in the tables `context-*.json`.

Exception frames (_KEXCEPTION_FRAME) hold the nonvolatile registers that no trap frame holds.
KiExceptionDispatch pushes one right below the trap frame, with an EXCEPTION_RECORD beside it. If that record
has the address of the interrupted instruction, the two frames belong together.

Source: measured in 101 dispatches of 5.2.3790.3959 (exception frame 180h below the trap frame) and in a crash
of 10.0.19041.804 (1E0h below it, registers equal to the CONTEXT that Windows wrote).
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from ...memory.decode.machine import Machine
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, Field, Structure, Structures
from .frame import SAVED, UNSURE, UNWRITTEN, MemberValue
from .record import MAX_PARAMETERS

_CONTROL, _INTEGER, _SEGMENTS, _FLOATING_POINT, _DEBUG, _EXTENDED = 1, 2, 4, 8, 0x10, 0x20
_ENCODED = (_CONTROL, _INTEGER, _SEGMENTS, _DEBUG)
_ARCHITECTURE = {Machine.AMD64: 0x100000, Machine.I386: 0x10000, Machine.ARM64: 0x400000}
_KNOWN_FLAGS = 0xF800_00FF
"""Parts, and the exception and unwinding flags of winnt.h."""

UNWOUND_TO_CALL = 0x20000000
"""CONTEXT_UNWOUND_TO_CALL of winnt.h (ARM64): Pc is the return address of a call, not where code stopped."""

_PARTS: Dict[Machine, Tuple[Tuple[int, str], ...]] = {
    Machine.AMD64: (
        (_CONTROL, "Rip Rsp EFlags SegCs SegSs"),
        (_INTEGER, "Rax Rcx Rdx Rbx Rbp Rsi Rdi R8 R9 R10 R11 R12 R13 R14 R15"),
        (_SEGMENTS, "SegDs SegEs SegFs SegGs"),
        (_FLOATING_POINT, "MxCsr"),
        (_DEBUG, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
    ),
    Machine.I386: (
        (_CONTROL, "Rip Rsp Rbp EFlags SegCs SegSs"),
        (_INTEGER, "Rax Rcx Rdx Rbx Rsi Rdi"),
        (_SEGMENTS, "SegDs SegEs SegFs SegGs"),
        (_EXTENDED, "MxCsr"),
        (_DEBUG, "Dr0 Dr1 Dr2 Dr3 Dr6 Dr7"),
    ),
    Machine.ARM64: (
        (_CONTROL, "Pc Sp Fp Lr Cpsr"),
        (_INTEGER, " ".join(f"X{number}" for number in range(29))),
    ),
}
"""Registers in each part of a CONTEXT, by machine: (bit of ContextFlags, names of columns)."""

_SELECTORS = frozenset(("SegCs", "SegSs", "SegDs", "SegEs", "SegFs", "SegGs"))
_SELECTOR_MASK = 0xFFFF
_EXCEPTION_LEVEL = 0xC
"""Bits of Cpsr: 0 in user mode."""


class CpuContext(NamedTuple):
    """The written parts of a CONTEXT.

    Attributes:
        user: whether SegCs is a user-mode selector, or Cpsr has the exception level of user mode; False if
            it was not written
        registers: values by x64 names, or by ARM64 names; a register in a part that was not written is
            missing
    """

    flags: int
    user: bool
    registers: Mapping[str, int]

    @property
    def called(self) -> bool:
        """Whether Pc is the return address of a call (ARM64)."""
        return bool(self.flags & UNWOUND_TO_CALL and self.flags & _ARCHITECTURE[Machine.ARM64])


class ContextLayout:
    """The CONTEXT of one bitness."""

    def __init__(self, structure: Structure, machine: Machine) -> None:
        self.size = structure.size
        self._architecture = _ARCHITECTURE[machine]
        self._parts = tuple((part, tuple(names.split())) for part, names in _PARTS[machine])
        self.fields: Dict[str, Field] = {"ContextFlags": structure.field("ContextFlags")}
        self._readers = []
        for part, names in self._parts:
            members = []
            for name in names:
                paths = name, "E" + name[1:], "ExtendedRegisters." + name
                self.fields[name] = structure.field(*paths)
                members.append(next(path for path in paths if structure.has(path)))
            self._readers.append((part, names, structure.reader(*members)))

    def decode(self, data: Buffer) -> Optional[CpuContext]:
        """Decodes a CONTEXT. Returns the registers; None if there are fewer bytes, or if Windows writes no
        such ContextFlags. `data` is at least `size` bytes."""
        if len(data) < self.size:
            return None
        flags = self.fields["ContextFlags"].value_in(data)
        parts = flags & 0xFF
        if not flags & self._architecture or not parts or flags & ~(self._architecture | _KNOWN_FLAGS):
            return None
        registers: Dict[str, int] = {}
        for part, names, read in self._readers:
            if parts & part:
                registers.update(zip(names, read(data, 0)))
        for name in registers.keys() & _SELECTORS:
            registers[name] &= _SELECTOR_MASK
        return CpuContext(flags, _is_user(registers), registers)

    def encode(self, registers: Mapping[str, int]) -> Tuple[bytes, Tuple[str, ...]]:
        """Encodes a CONTEXT from the known registers.

        ContextFlags get the bit of each part with a known register, except for the floating-point parts: a
        trap frame has only a few of their registers. Returns the bytes, and the names of the unknown
        registers in these parts, whose members are 0. `registers` are values by x64 names; names that no
        CONTEXT has are ignored.
        """
        data, flags, unknown = bytearray(self.size), self._architecture, []
        for part, names in self._parts:
            if part in _ENCODED and not registers.keys().isdisjoint(names):
                flags |= part
                unknown += [name for name in names if name not in registers]
                for name in registers.keys() & names:
                    self._store(data, name, registers[name])
        self._store(data, "ContextFlags", flags)
        return bytes(data), tuple(unknown)

    def _store(self, data: bytearray, name: str, value: int) -> None:
        """Stores the low bytes of a value into the member for a column."""
        field = self.fields[name]
        mask = (1 << 8 * field.size) - 1
        data[field.offset : field.offset + field.size] = (value & mask).to_bytes(field.size, "little")

    def list_members(self, found: CpuContext) -> Iterator[MemberValue]:
        """Yields every member that has a column, by offset; the value is None if its part was not written."""
        rows = []
        for name, field in self.fields.items():
            value = found.flags if name == "ContextFlags" else found.registers.get(name)
            validity = UNWRITTEN if value is None else SAVED
            rows.append(MemberValue(name, field.offset, field.size, value, validity, ""))
        yield from sorted(rows, key=lambda row: row.offset)


def _is_user(registers: Mapping[str, int]) -> bool:
    """Returns whether registers are of user mode."""
    if "Cpsr" in registers:
        return not registers["Cpsr"] & _EXCEPTION_LEVEL
    return registers.get("SegCs", 0) & 3 == 3


class DecodedContext(NamedTuple):
    """A CONTEXT, decoded with one of several layouts.

    Attributes:
        layout: layout that decoded it; the first layout if none did
        context: decoded registers, None if no layout decoded them
        read: whether the image has the bytes; if no layout decoded them, the bytes for the first layout
    """

    layout: ContextLayout
    context: Optional[CpuContext]
    read: bool

    @property
    def registers(self) -> Mapping[str, int]:
        """The registers; empty if no layout decoded them."""
        return {} if self.context is None else self.context.registers

    def list_members(self) -> Tuple[MemberValue, ...]:
        """Returns every member that has a column; none if no layout decoded them."""
        return () if self.context is None else tuple(self.layout.list_members(self.context))


def decode_any(layouts: Sequence[ContextLayout], read: Callable[[int], Optional[Buffer]]) -> DecodedContext:
    """Decodes a CONTEXT with the first layout that accepts its ContextFlags.

    Args:
        layouts: layouts of one bitness, at least one
        read: takes a number of bytes; returns these bytes of the record, None if the image lacks them
    """
    for layout in layouts:
        data = read(layout.size)
        context = None if data is None else layout.decode(data)
        if context is not None:
            return DecodedContext(layout, context, True)
    return DecodedContext(layouts[0], None, read(layouts[0].size) is not None)


NONVOLATILE = ("Rbx", "Rsi", "Rdi", "R12", "R13", "R14", "R15")

_MAX_FLAGS = 0x100
"""ExceptionFlags are lower than this."""
_MAX_RIP_SHIFT = 2
"""The most bytes between Rip and ExceptionAddress: for a trap such as int 3, one of the two is the address of
the instruction and the other the address behind it."""
_DISPATCHER = "KiExceptionDispatch"

NOT_DISPATCHED = "stored by KiExceptionDispatch, whose return address is not below them"
"""Reason why the registers of an exception frame are unsure."""


class ExceptionFrame(NamedTuple):
    """An exception frame below a trap frame.

    Attributes:
        registers: the nonvolatile registers, by the names of columns
        validity: SAVED, or UNSURE if the frame may be older than the trap frame
        exception_code: ExceptionCode of the record beside it; None if none is known to lie there
        note: why the registers are unsure; else empty
    """

    address: int
    registers: Mapping[str, int]
    validity: str
    exception_code: Optional[int]
    note: str = ""


class ExceptionFrames:
    """Finds the exception frame that KiExceptionDispatch puts below a trap frame, with the record beside it.

    In 5.2 the structure ends at the trap frame and contains the record; since Vista the record is separate.
    """

    def __init__(self, structure: Structure, types: Structures) -> None:
        self.structure = structure
        inner_record = structure.first_member("ExceptionRecord")
        dispatch = types["_EXCEPTION_DISPATCH"]
        record = types["_EXCEPTION_RECORD64"]
        self._distance = structure.size if inner_record is not None else dispatch.size
        self._record = inner_record.offset if inner_record is not None else dispatch.offset("ExceptionRecord")
        members = (
            "ExceptionCode",
            "ExceptionFlags",
            "ExceptionRecord",
            "ExceptionAddress",
            "NumberParameters",
        )
        self._unpack = record.reader(*members)
        self._record_size = max(field.offset + field.size for field in map(record.field, members))
        self._registers = structure.reader(*NONVOLATILE)

    def position(self, trap_frame: int) -> int:
        """Returns the address of the exception frame of a trap frame."""
        return trap_frame - self._distance

    def dispatcher_slot(self, trap_frame: int) -> int:
        """Returns the address of the slot, just below the exception frame, that holds the return address."""
        return self.position(trap_frame) - 8

    def find_frame(
        self, trap_frame: int, ip: int, memory: Extents, dispatcher: str = ""
    ) -> Optional[ExceptionFrame]:
        """Returns the exception frame below a trap frame if one was built for it; None if there is no
        exception record for this Rip in its place. Its registers are valid if the dispatcher is known;
        otherwise the frame may be older than the trap frame. `dispatcher` is the name of the function that
        the return address just below the exception frame is in, empty if unknown."""
        address = self.position(trap_frame)
        record = memory.read(address + self._record, self._record_size)
        data = memory.read(address, self.structure.size)
        if record is None or data is None:
            return None
        code, flags, nested, faulting, count = self._unpack(record, 0)
        if not code or flags >= _MAX_FLAGS or nested or count > MAX_PARAMETERS:
            return None
        if not ip or abs(faulting - ip) > _MAX_RIP_SHIFT:
            return None
        if dispatcher and not dispatcher.startswith(_DISPATCHER):
            return None
        registers = dict(zip(NONVOLATILE, self._registers(data, 0)))
        if dispatcher:
            return ExceptionFrame(address, registers, SAVED, code)
        return ExceptionFrame(address, registers, UNSURE, code, NOT_DISPATCHED)
