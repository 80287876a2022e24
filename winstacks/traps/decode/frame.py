# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames (_KTRAP_FRAME): which registers an entry into the kernel saved, and which slots are stale.

An entry writes only a part of the structure; the other slots keep the old content of the stack. The written
part depends on the kind of entry, which the frame's own bytes show (`kinds_x64`, `kinds_x86`).

Sources: execution of the entry code of real kernels (x64 5.2.3790.3959; x86 5.1.2600.5512 and
5.2.3790.3959) and a real crash of 10.0.19041.804; for Windows 7 and later, public disassembly of
KiSystemCall64, KiServiceInternal, KiPageFault and KxIsrLinkage; layouts from public symbols.
"""

from __future__ import annotations

import abc
import functools
from typing import Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from ...columns.dictionary import REGISTERS
from ...columns.words import KERNEL, USER
from ...memory.decode.ranges import Extents
from ...memory.decode.structure import Field, Structure, Structures
from ...names.decode.unwindinfo import UnwindInfo

SAVED = "saved"  # the register's value at the entry
COMPUTED = "computed"  # the kernel's own value in place of the register (a constant, a link)
REUSED = "reused"  # the slot holds another value than its name states
REUSED_UNSURE = "reused, unsure"  # or not written at all
PARTIAL = "partial"  # only the low word was written
UNSURE = "unsure"  # the frame does not show whether it was written
UNWRITTEN = "not saved"  # the old content of the stack
_SHOWN = (SAVED, COMPUTED, UNSURE)

EFLAGS_ONE = 0x2  # always set
EFLAGS_IF = 0x200
USER_LOWEST = 0x10000  # MM_LOWEST_USER_ADDRESS of ntddk.h
CS_USER_32 = 0x23
"""The code segment of 32-bit user code in a 64-bit Windows."""

_SEGMENT_MASK = 0xFFFF
_PARTIAL_MASK = 0xFFFF


class FieldValidity(NamedTuple):
    """The validity of a member's value, and its meaning if the member's name does not state it."""

    validity: str
    note: str = ""


Verdicts = Dict[str, FieldValidity]

_NOT_WRITTEN = FieldValidity(UNWRITTEN)


class EntryFacts(NamedTuple):
    """Facts about a frame from outside its own bytes; each is optional.

    Attributes:
        handler: name, without module, of the function that the return address just below the frame is in
            (KiPageFault...)
        dispatcher: name of the function that the return address just below the exception frame is in
        service_linkage: address of nt!KiServiceLinkage, 0 if unknown
        saves_arguments: whether the kernel has KiSystemCall64Shadow: its system calls always save Rax, Rcx
            and Rdx
        debug_active: the thread's present _DISPATCHER_HEADER.DebugActive; None if unknown
        system_call_return: KUSER_SHARED_DATA.SystemCallReturn (x86), 0 if unknown
        clears_dr7: whether an x86 kernel zeroes the Dr7 slot when no debug registers are in use (5.2 and
            later); None if unknown
        chained: whether KTHREAD.TrapFrame or a frame before it names this one; only services set that pointer
        system_call: KTHREAD.SystemCallNumber and FirstArgument of the thread's newest system call; None if
            unknown, or if they belong to another frame
        stored: nonvolatile registers that this frame's entry code stores in the members of their names, by
            its unwind data (x64); None if unknown
        instruction: the two bytes of user code before Rip, if the process cannot have changed them; else
            empty
    """

    handler: str = ""
    dispatcher: str = ""
    service_linkage: int = 0
    saves_arguments: bool = False
    debug_active: Optional[int] = None
    system_call_return: int = 0
    clears_dr7: Optional[bool] = None
    chained: bool = False
    system_call: Optional[Tuple[int, int]] = None
    stored: Optional[FrozenSet[str]] = None
    instruction: bytes = b""


NO_FACTS = EntryFacts()


class TrapBounds(NamedTuple):
    """The address ranges of an image.

    Attributes:
        user_end: first address beyond user mode
        kernel_start: first address of kernel mode
        kernel_image: start and end of nt
        service_linkage: address of nt!KiServiceLinkage, 0 if unknown
        ist_tops: tops of the stacks in the TSS's IST
    """

    user_end: int
    kernel_start: int
    kernel_image: Tuple[int, int] = (0, 0)
    service_linkage: int = 0
    ist_tops: FrozenSet[int] = frozenset()


class TrapFrame(NamedTuple):
    """A decoded trap frame.

    Attributes:
        address: canonical address of the frame
        kind: syscall, service, interrupt or exception; empty if the bytes do not decide
        mode: user or kernel
        registers: registers that this entry saved, by x64 names, including those in `unsure`; a register that
            is missing was not saved
        unsure: registers that the entry may or may not have written
        verdicts: the validity of each member that the entry code is known to write or to leave alone
    """

    address: int
    kind: str
    mode: str
    registers: Mapping[str, int]
    unsure: Tuple[str, ...]
    validities: Mapping[str, FieldValidity]


class MemberValue(NamedTuple):
    """One member of the structure; `value` is None if the entry did not write it."""

    name: str
    offset: int
    size: int
    value: Optional[int]
    validity: str
    note: str


class _Members(Dict[str, Field]):
    """The members of a trap frame, by name.

    Raises:
        MissingMemberError: a looked-up member is missing in the symbols
    """

    def __init__(self, structure: Structure) -> None:
        super().__init__((name, structure.field(name)) for name in structure.names)
        self._structure = structure

    def __missing__(self, name: str) -> Field:
        return self._structure.field(name)


class TrapFrameLayout(abc.ABC):
    """The trap frames of one processor architecture, in one build of Windows.

    Args:
        structure: structure _KTRAP_FRAME of the image

    Attributes:
        structure: see the argument
        size: size in bytes
        members: members by name
    """

    exception_type = ""
    """Name of the structure that an exception's dispatcher puts below a trap frame, empty if there is
    none."""

    shared_data = 0
    """Kernel address of KUSER_SHARED_DATA if the entries of this architecture depend on it, else 0."""

    only_names: Mapping[str, str] = {}
    """Columns whose registers have another name in the structure."""

    anchor: Pattern[bytes]
    """Bytes that every frame which a scan can find contains."""

    anchor_member = ""
    """Member that the anchor matches."""

    alignment = 1
    """Alignment of a frame's address, in bytes."""

    instruction_size = 0
    """Bytes of user code before Rip that identify the kind of entry; 0 if none are needed."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.size = structure.size
        self.members = _Members(structure)
        names = ((column, self.only_names.get(column, column)) for column in REGISTERS)
        self._columns = [(column, member) for column, member in names if member in self.members]

    def number(self, data: bytes, member: str) -> int:
        """Returns a member as an unsigned number; 0 if the bytes end before it."""
        offset, size = self.members[member][:2]
        return int.from_bytes(data[offset : offset + size], "little")

    @abc.abstractmethod
    def tops(self, types: Structures) -> Tuple[int, ...]:
        """Returns the possible distances of frames from user mode below the top of a kernel stack, in bytes.

        Args:
            types: structures in which the kernel saves registers
        """

    @abc.abstractmethod
    def is_user(self, data: bytes) -> bool:
        """Returns whether the processor was in user mode (or virtual-8086 mode) when the frame was made."""

    @abc.abstractmethod
    def judge(self, address: int, data: bytes, facts: EntryFacts) -> Tuple[str, Verdicts]:
        """Returns the kind of entry and the validity of the members."""

    @abc.abstractmethod
    def accepts(self, address: int, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at an address are a trap frame.

        Args:
            address: canonical address of the bytes
            data: bytes, at least as many as a frame has
            bounds: address ranges of the image
        """

    @abc.abstractmethod
    def plausible(self, address: int, data: bytes) -> bool:
        """Returns whether bytes to which the thread itself points may be a trap frame.

        This test is weaker than `accepts`: an entry that was never measured may break the rules of `accepts`.
        """

    @abc.abstractmethod
    def previous(self, frame: TrapFrame, data: bytes) -> int:
        """Returns the address of the thread's previous trap frame, which services keep, or 0."""

    def stored(self, infos: Sequence[UnwindInfo]) -> Optional[FrozenSet[str]]:
        """Returns the nonvolatile registers that an entry stores in the members of their names.

        Args:
            infos: unwind data of the entry's code, each followed by the data to which it is chained

        Returns:
            None if the data does not show this, or belongs to code that makes no such frame.
        """
        return None

    def pushed(self, address: int) -> Mapping[str, int]:
        """Returns the registers of an entry from kernel mode that follow from the address of its frame."""
        return {}

    def decode(self, address: int, data: bytes, facts: EntryFacts = NO_FACTS) -> TrapFrame:
        """Decodes a trap frame.

        Args:
            address: canonical virtual address of the frame
            data: bytes of the frame, at least as many as the structure has
            facts: facts from outside the frame

        Returns:
            The registers and their validity. The bytes are not checked: `accepts` does this.
        """
        kind, verdicts = self.judge(address, data, facts)
        registers: Dict[str, int] = {}
        unsure = []
        for column, member in self._columns:
            validity = verdicts.get(member, _NOT_WRITTEN).validity
            if validity in _SHOWN:
                value = self.number(data, member)
                registers[column] = value & _SEGMENT_MASK if column.startswith("Seg") else value
                if validity == UNSURE:
                    unsure.append(column)
        user = self.is_user(data)
        if not user:
            for name, value in self.pushed(address).items():
                registers.setdefault(name, value)
        return TrapFrame(address, kind, USER if user else KERNEL, registers, tuple(unsure), verdicts)

    def list_members(self, frame: TrapFrame, data: bytes) -> Iterator[MemberValue]:
        """Yields every member of the structure, by offset, with its validity.

        If a member shares bytes (in the structure's unions) with a member that entries are known to write, it
        has the validity of that member.
        """
        ordered = sorted(self.members.items(), key=lambda item: item[1].offset)
        written = [(name, place) for name, place in ordered if name in frame.validities]
        for name, place in ordered:
            verdict = frame.validities.get(name)
            if verdict is None:
                verdict = _NOT_WRITTEN
                for other, span in written:
                    if span.offset < place.offset + place.size and place.offset < span.offset + span.size:
                        verdict = FieldValidity(frame.validities[other].validity, f"the bytes of {other}")
                        break
            value = None if verdict.validity == UNWRITTEN else self.number(data, name)
            if value is not None and verdict.validity == PARTIAL:
                value &= _PARTIAL_MASK
            yield MemberValue(name, place.offset, place.size, value, verdict.validity, verdict.note)

    def scan(self, memory: Extents, start: int, end: int, bounds: TrapBounds) -> Iterator[int]:
        """Yields the addresses of the trap frames that lie wholly in a range, in order.

        If two overlap, only the first that was found, from low to high addresses, counts.

        Source of the tests: 318 emulated stacks of 5.2 x64 and 475 of x86, 40 million random positions, a
        crash of 10.0.19041. A test on bytes cannot distinguish a frame in use from an old one.

        Args:
            memory: memory of the stack; only the present parts are scanned
            start: first address of the range
            end: first address behind it
            bounds: the image's address ranges
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
        """Returns whether a frame at an address would share bytes with a known frame."""
        return any(abs(address - other) < self.size for other in taken)


def mark(verdicts: Verdicts, validity: str, names: str, note: str = "") -> None:
    """Gives one validity to the named members (separated by blanks); `note` is the reason for UNSURE."""
    verdicts.update(_marked(validity, names, note))


@functools.lru_cache(maxsize=1024)
def _marked(validity: str, names: str, note: str) -> Verdicts:
    """Returns one verdict for several members; all texts are of this package, so there are few."""
    return dict.fromkeys(names.split(), FieldValidity(validity, note))


def debug_registers_plausible(dr7: int) -> bool:
    """Returns whether a Dr7 is valid and enables something: low word not 0, reserved bits as required.

    Source: Intel SDM volume 3, 17.2.4: bits 11 (outside TSX), 12, 14 and 15 and the upper half are 0.
    """
    return bool(dr7 & 0xFFFF) and dr7 < 1 << 32 and not dr7 & 0xD000
