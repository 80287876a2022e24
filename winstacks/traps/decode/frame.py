# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames (_KTRAP_FRAME): which registers an entry into the kernel saved, and which slots are stale.

An entry is code of the kernel that an interrupt, an exception or a system call starts. It writes only a part
of the structure; the other slots keep the old content of the stack. The written part depends on the kind of
entry, which the frame's own bytes show (`trapframe_x64`, `trapframe_x86`).

Sources: execution of the entry code of real kernels (x64 5.2.3790.3959; x86 5.1.2600.5512 and
5.2.3790.3959) and a real crash of 10.0.19041.804; for Windows 7 and later, public disassembly of
KiSystemCall64, KiServiceInternal, KiPageFault and KxIsrLinkage; layouts from public symbols.
"""

from __future__ import annotations

import abc
import functools
from typing import Dict, FrozenSet, Iterator, List, Mapping, Optional, Pattern, Sequence, Tuple

from ...columns.registers import REGISTERS
from ...columns.words import KERNEL, USER
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Field, Structure, Structures
from ...names.decode.unwindinfo import UnwindInfo

# The validity of a member.
SAVED = "saved"  # it holds the register's value at the entry
COMPUTED = "computed"  # it holds a value that the entry code made, such as a constant or a link
REUSED = "reused"  # it holds a value of another meaning than its name
REUSED_UNSURE = "reused, unsure"  # it was reused, or not written at all
PARTIAL = "partial"  # only its low word was written
UNSURE = "unsure"  # it was saved, or not written at all
UNWRITTEN = "not saved"  # it holds the old content of the stack
_SHOWN = (SAVED, COMPUTED, UNSURE)

EFLAGS_ONE = 0x2  # bit 1, which is always set, except in flags that software wrote
EFLAGS_IF = 0x200
USER_LOWEST = 0x10000  # MM_LOWEST_USER_ADDRESS of ntddk.h
CS_USER_32 = 0x23
"""The code segment of 32-bit user code in a 64-bit Windows."""

_SEGMENT_MASK = 0xFFFF
_PARTIAL_MASK = 0xFFFF


class FieldValidity(NamedTuple):
    """The validity of a member's value. `note` is the meaning of a value that the member's name does not
    state, or reason why it is unsure; else empty."""

    validity: str
    note: str = ""


Validities = Dict[str, FieldValidity]
"""Validities of the members of a frame, by the names of the members."""
_NOT_WRITTEN = FieldValidity(UNWRITTEN)


class EntryFacts(NamedTuple):
    """Facts about a frame from outside its own bytes; each is optional.

    Attributes:
        handler: name, without module, of the function (such as KiPageFault) into which the return address
            just below the frame leads; empty if unknown
        service_linkage: address of nt!KiServiceLinkage, 0 if unknown
        saves_arguments: whether the kernel has KiSystemCall64Shadow: its system calls always save Rax, Rcx
            and Rdx
        debug_active: _DISPATCHER_HEADER.DebugActive of the thread when the image was taken; None if unknown
        system_call_return: KUSER_SHARED_DATA.SystemCallReturn (x86), 0 if unknown
        clears_dr7: whether an x86 kernel zeroes the Dr7 slot when no debug registers are in use (5.2 and
            later); None if unknown
        chained: whether KTHREAD.TrapFrame points to this frame, directly or through newer frames; only the
            entries of services set that pointer
        system_call: KTHREAD.SystemCallNumber and FirstArgument of the thread's newest system call; None if
            unknown, or if they belong to another frame
        stored_registers: nonvolatile registers that this frame's entry code stores in the members of their
            names, by its unwind data (x64); None if unknown
        instruction: the bytes of code before Rip (`TrapFrameLayout.code_size`), if the process cannot have
            changed them; else empty
    """

    handler: str = ""
    service_linkage: int = 0
    saves_arguments: bool = False
    debug_active: Optional[int] = None
    system_call_return: int = 0
    clears_dr7: Optional[bool] = None
    chained: bool = False
    system_call: Optional[Tuple[int, int]] = None
    stored_registers: Optional[FrozenSet[str]] = None
    instruction: bytes = b""


NO_FACTS = EntryFacts()


class TrapBounds(NamedTuple):
    """The address ranges of an image, canonical.

    Attributes:
        user_end: first address behind the user's half
        ist_tops: addresses of the tops of the stacks in the interrupt stack table (IST)
    """

    user_end: int
    kernel_start: int
    kernel_image: Tuple[int, int] = (0, 0)
    service_linkage: int = 0
    ist_tops: FrozenSet[int] = frozenset()


class TrapFrame(NamedTuple):
    """A decoded trap frame.

    Attributes:
        kind: `syscall`, `service`, `interrupt` or `exception`; empty if the bytes do not decide
        mode: mode of the processor before the entry, `user` or `kernel`
        registers: registers that this entry saved, by x64 names, including the names in `unsure`; a register
            that is missing was not saved
        unsure: registers that the entry may or may not have written
        validities: validity of each member that the entry code is known to write or to leave alone
    """

    address: int
    kind: str
    mode: str
    registers: Mapping[str, int]
    unsure: Tuple[str, ...]
    validities: Mapping[str, FieldValidity]


NO_FRAME = TrapFrame(0, "", "", {}, (), {})
"""The frame of a place where none can be read."""


class MemberValue(NamedTuple):
    """A member of a structure, with its value.

    Attributes:
        value: None if it was not written
        validity: one of the words of `FieldValidity`
    """

    name: str
    offset: int
    size: int
    value: Optional[int]
    validity: str
    note: str


class _Members(Dict[str, Field]):
    """The members of a trap frame, by name. Raises MissingMemberError if a looked-up member is missing in the
    symbols."""

    def __init__(self, structure: Structure) -> None:
        super().__init__((name, structure.field(name)) for name in structure.names)
        self._structure = structure

    def __missing__(self, name: str) -> Field:
        return self._structure.field(name)


class TrapFrameLayout(abc.ABC):
    """The trap frames of one processor architecture, in one build of Windows."""

    exception_type = ""
    """Name of the structure that KiExceptionDispatch puts below a trap frame; empty on x86."""

    shared_data = 0
    """Kernel address of KUSER_SHARED_DATA if the entries of this architecture depend on it, else 0."""

    only_names: Mapping[str, str] = {}
    """Names of members by the names of columns, where the two differ."""

    anchor: Pattern[bytes]
    """Matches bytes that each frame contains: a scan looks for these first."""

    anchor_member = ""
    """Member that the anchor matches."""

    alignment = 1
    """Alignment of a frame's address, in bytes."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.size = structure.size
        self.members = _Members(structure)
        names = ((column, self.only_names.get(column, column)) for column in REGISTERS)
        self._columns = [(column, member) for column, member in names if member in self.members]

    def number(self, data: bytes, member: str) -> int:
        """Returns the value of a member as an unsigned number; 0 if the bytes end before it."""
        offset, size = self.members[member][:2]
        return int.from_bytes(data[offset : offset + size], "little")

    @abc.abstractmethod
    def tops(self, types: Structures) -> Tuple[int, ...]:
        """Returns the possible distances of frames from user mode below the top of a kernel stack."""

    @abc.abstractmethod
    def is_user(self, data: bytes) -> bool:
        """Returns whether the processor was in user mode (or virtual-8086 mode) when the frame was made."""

    def code_size(self, address: int, data: bytes) -> int:
        """Returns how many bytes of code before Rip help to identify the kind of entry; 0 for none."""
        return 0

    @abc.abstractmethod
    def classify(self, address: int, data: bytes, facts: EntryFacts) -> Tuple[str, Validities]:
        """Returns the kind of entry and the validity of the members."""

    @abc.abstractmethod
    def accepts(self, address: int, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at an address are a trap frame that an entry made."""

    @abc.abstractmethod
    def accepts_written(self, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at the top of a kernel stack are a frame that the kernel wrote from a
        CONTEXT.

        The kernel writes the first frame of a thread so, and NtSetContextThread changes frames so. The flags
        come from the CONTEXT. So bit 1, which a processor always sets, may be clear.
        """

    @abc.abstractmethod
    def plausible(self, address: int, data: bytes) -> bool:
        """Returns whether bytes to which the thread itself points may be a trap frame.

        This test is weaker than `accepts`: an entry that was never measured may break the rules of `accepts`.
        """

    @abc.abstractmethod
    def previous(self, frame: TrapFrame, data: bytes) -> int:
        """Returns the address of the thread's previous trap frame; 0 if this frame does not hold it.

        The entries of services store KTHREAD.TrapFrame into the frame before they replace it.
        """

    def stored_registers(self, infos: Sequence[UnwindInfo]) -> Optional[FrozenSet[str]]:
        """Returns the x64 names of the nonvolatile registers that an entry stores in the members of their
        names; None if the data does not show this, or belongs to code that makes no such frame. `infos` is
        the unwind data of the entry's code, followed by the unwind data to which it is chained."""
        return None

    def implied_registers(self, address: int) -> Mapping[str, int]:
        """Returns the registers before an entry from kernel mode that follow from its frame's address."""
        return {}

    def decode(self, address: int, data: bytes, facts: EntryFacts = NO_FACTS) -> TrapFrame:
        """Decodes a trap frame. Returns the registers and their validity. Whether the bytes are a trap frame
        is not checked: `accepts` does this."""
        kind, validities = self.classify(address, data, facts)
        registers: Dict[str, int] = {}
        unsure = []
        for column, member in self._columns:
            validity = validities.get(member, _NOT_WRITTEN).validity
            if validity in _SHOWN:
                value = self.number(data, member)
                registers[column] = value & _SEGMENT_MASK if column.startswith("Seg") else value
                if validity == UNSURE:
                    unsure.append(column)
        user = self.is_user(data)
        if not user:
            for name, value in self.implied_registers(address).items():
                registers.setdefault(name, value)
        return TrapFrame(address, kind, USER if user else KERNEL, registers, tuple(unsure), validities)

    def list_members(self, frame: TrapFrame, data: bytes) -> Iterator[MemberValue]:
        """Yields every member of the structure, by offset, with its validity.

        A member without a validity of its own, which shares bytes with another member (a union), gets the
        validity of that member.
        """
        ordered = sorted(self.members.items(), key=lambda item: item[1].offset)
        covered = [(name, field) for name, field in ordered if name in frame.validities]
        for name, field in ordered:
            validity = frame.validities.get(name)
            if validity is None:
                validity = _NOT_WRITTEN
                for other, span in covered:
                    if span.offset < field.offset + field.size and field.offset < span.offset + span.size:
                        validity = FieldValidity(frame.validities[other].validity, f"the bytes of {other}")
                        break
            value = None if validity.validity == UNWRITTEN else self.number(data, name)
            if value is not None and validity.validity == PARTIAL:
                value &= _PARTIAL_MASK
            yield MemberValue(name, field.offset, field.size, value, validity.validity, validity.note)

    def scan(self, memory: Extents, start: int, end: int, bounds: TrapBounds) -> Iterator[int]:
        """Yields the addresses of the trap frames that lie wholly in a range, ascending.

        Of overlapping frames, the frame at the lowest address counts. A test on bytes cannot distinguish a
        frame in use from an old one.

        Source of the tests in `accepts`: 318 emulated stacks of 5.2 x64 and 475 of x86, 40 million random
        positions, a crash of 10.0.19041. `memory` is the memory of the stack; only the present parts are
        scanned.
        """
        free = start
        for address, data in self._candidates(memory, start, end):
            if address >= free and self.accepts(address, data, bounds):
                yield address
                free = address + self.size

    def _candidates(self, memory: Extents, start: int, end: int) -> Iterator[Tuple[int, bytes]]:
        """Yields the address of each position at which the anchor matches, with the bytes of the frame."""
        offset = self.members[self.anchor_member].offset
        for low, high in memory.covered(start, end):
            data = memory.read(low, high - low)
            if data is None:
                continue
            for match in self.anchor.finditer(data, offset):
                begin = match.start() - offset
                if (low + begin) % self.alignment == 0 and begin + self.size <= high - low:
                    yield low + begin, bytes(data[begin : begin + self.size])

    def overlaps(self, address: int, taken: List[int]) -> bool:
        """Returns whether a frame at an address would share bytes with a frame at one of some addresses."""
        return any(abs(address - other) < self.size for other in taken)


def set_validity(validities: Validities, validity: str, names: str, note: str = "") -> None:
    """Gives one validity to several members. `names` has the names of the members, separated by blanks."""
    validities.update(_same_validity(validity, names, note))


@functools.lru_cache(maxsize=1024)
def _same_validity(validity: str, names: str, note: str) -> Validities:
    """Returns the same validity for several members. Kept, because only this package's texts are
    arguments."""
    return dict.fromkeys(names.split(), FieldValidity(validity, note))


def debug_registers_plausible(dr7: int) -> bool:
    """Returns whether Dr7 may be the stored value of debug registers in use: its low word is not 0, and its
    reserved bits are.

    Source: Intel SDM volume 3, 17.2.4: bits 11 (outside TSX), 12, 14 and 15 and the upper half are 0.
    """
    return bool(dr7 & 0xFFFF) and dr7 < 1 << 32 and not dr7 & 0xD000
