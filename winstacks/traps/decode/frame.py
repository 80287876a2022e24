# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames (_KTRAP_FRAME): which registers an entry into the kernel saved, and which slots are stale.

An entry writes only a part of the structure; the rest is what the stack held before. What is written
depends on the kind of entry, and the kind shows in the frame's own bytes (`kinds_x64`, `kinds_x86`).

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
COMPUTED = "computed"  # a value of the kernel's own that stands for the register (a constant, a link)
REUSED = "reused"  # the slot holds something else than its name says
REUSED_UNSURE = "reused, unsure"  # or not written at all
PARTIAL = "partial"  # only the low word was written
UNSURE = "unsure"  # the frame does not tell whether it was written
UNWRITTEN = "not saved"  # what the stack held before
_SHOWN = (SAVED, COMPUTED, UNSURE)

EFLAGS_ONE = 0x2  # always set
EFLAGS_IF = 0x200
USER_LOWEST = 0x10000  # MM_LOWEST_USER_ADDRESS of ntddk.h
CS_USER_32 = 0x23
"""The code segment of 32-bit user code in a 64-bit Windows."""

_SEGMENT_MASK = 0xFFFF
_PARTIAL_MASK = 0xFFFF


class Verdict(NamedTuple):
    """How much a member's value is worth, and what it is where that is not its name."""

    validity: str
    note: str = ""


Verdicts = Dict[str, Verdict]

_NOT_WRITTEN = Verdict(UNWRITTEN)


class Facts(NamedTuple):
    """What is known of a frame from outside its own bytes; everything may be left out.

    Attributes:
        handler: the function in which the return address just below the frame lies (KiPageFault...), without
            its module
        dispatcher: the same for the return address just below the exception frame
        service_linkage: address of nt!KiServiceLinkage, 0 if unknown
        saves_arguments: the kernel has KiSystemCall64Shadow: its system calls always save Rax, Rcx and Rdx
        debug_active: _DISPATCHER_HEADER.DebugActive of the thread, as it is now; None if unknown
        system_call_return: KUSER_SHARED_DATA.SystemCallReturn (x86), 0 if unknown
        clears_dr7: an x86 kernel that zeroes the Dr7 slot when no debug registers are in use (5.2 and later);
            None if unknown
        chained: KTHREAD.TrapFrame or a frame before it names this one; only services set that
        system_call: KTHREAD.SystemCallNumber and FirstArgument of the thread's newest system call; None if
            unknown or of another frame
        stored: the nonvolatile registers that the unwind data of this frame's entry code say it stores in the
            members of their names (x64); None if unknown
        instruction: the two bytes of user mode before Rip, which the process cannot have changed since; empty
            if they are not known
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


NO_FACTS = Facts()


class TrapBounds(NamedTuple):
    """What an address of this image may be.

    Attributes:
        user_end: the first address beyond user mode
        kernel_start: the first address of kernel mode
        kernel_image: start and end of nt
        service_linkage: address of nt!KiServiceLinkage, 0 if unknown
        ist_tops: tops of the stacks that the TSS's IST names
    """

    user_end: int
    kernel_start: int
    kernel_image: Tuple[int, int] = (0, 0)
    service_linkage: int = 0
    ist_tops: FrozenSet[int] = frozenset()


class TrapFrame(NamedTuple):
    """What a trap frame tells.

    Attributes:
        address: where it is (canonical)
        kind: syscall, service, interrupt or exception, or empty where the bytes do not tell
        mode: user or kernel
        registers: under their x64 names, the registers that this entry saved, those named in `unsure`
            included; what is not in it was not saved
        unsure: registers of which the frame cannot decide whether they were written
        verdicts: the validity of each member that the entry code is known to write or to leave alone
    """

    address: int
    kind: str
    mode: str
    registers: Mapping[str, int]
    unsure: Tuple[str, ...]
    verdicts: Mapping[str, Verdict]


class MemberValue(NamedTuple):
    """One member of the structure: `value` is None where nothing was written."""

    name: str
    offset: int
    size: int
    value: Optional[int]
    validity: str
    note: str


class _Members(Dict[str, Field]):
    """Where the members of a trap frame lie, by their names.

    Raises, where one is asked for that the symbols lack:
        MissingMemberError
    """

    def __init__(self, structure: Structure) -> None:
        super().__init__((name, structure.field(name)) for name in structure.names)
        self._structure = structure

    def __missing__(self, name: str) -> Field:
        return self._structure.field(name)


class TrapForm(abc.ABC):
    """The trap frames of one processor architecture, in one build of Windows.

    Args:
        structure: the image's _KTRAP_FRAME

    Attributes:
        structure: as given
        size: its bytes
        members: its members by name
    """

    exception_type = ""
    """The structure that an exception's dispatcher puts below a trap frame, empty if it puts none."""

    shared_data = 0
    """Where the kernel of this architecture sees KUSER_SHARED_DATA if its entries depend on that, else 0."""

    only_names: Mapping[str, str] = {}
    """Columns whose registers have another name in the structure."""

    anchor: Pattern[bytes]
    """What every frame that can be found by a scan holds."""

    anchor_member = ""
    """The member that the anchor is."""

    alignment = 1
    """What the address of a frame is a multiple of."""

    instruction_size = 0
    """How many bytes of user mode before Rip tell how the kernel was entered; 0 if none are needed."""

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
        """Returns how far below the top of a kernel stack frames from user mode may begin.

        Args:
            types: the structures in which the kernel saves registers
        """

    @abc.abstractmethod
    def is_user(self, data: bytes) -> bool:
        """Returns whether the processor was in user mode (or virtual-8086 mode) when the frame was made."""

    @abc.abstractmethod
    def judge(self, address: int, data: bytes, facts: Facts) -> Tuple[str, Verdicts]:
        """Returns the kind of entry and the validity of the members."""

    @abc.abstractmethod
    def accepts(self, address: int, data: bytes, bounds: TrapBounds) -> bool:
        """Returns whether bytes at an address are a trap frame.

        Args:
            address: where the bytes are (canonical)
            data: as many as a frame has, at least
            bounds: the image's address ranges
        """

    @abc.abstractmethod
    def plausible(self, address: int, data: bytes) -> bool:
        """Returns whether bytes to which the thread itself points may be a trap frame.

        This is weaker than `accepts`: an entry that nobody has measured may break its rules.
        """

    @abc.abstractmethod
    def previous(self, frame: TrapFrame, data: bytes) -> int:
        """Returns the thread's trap frame before this one, which services keep, or 0."""

    def stored(self, infos: Sequence[UnwindInfo]) -> Optional[FrozenSet[str]]:
        """Returns the nonvolatile registers that an entry stores in the members of their names.

        Args:
            infos: the unwind data of the entry's code, each followed by the one that it is chained to

        Returns:
            None if they do not say, or are of code that makes no such frame.
        """
        return None

    def pushed(self, address: int) -> Mapping[str, int]:
        """Returns registers of an entry from kernel mode that follow from where its frame is."""
        return {}

    def decode(self, address: int, data: bytes, facts: Facts = NO_FACTS) -> TrapFrame:
        """Decodes a trap frame.

        Args:
            address: where the frame is (canonical virtual address)
            data: its bytes, as many as the structure has at least
            facts: what is known from outside the frame

        Returns:
            The registers and their validity. Nothing is checked: `accepts` tells a frame from other bytes.
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

    def listed(self, frame: TrapFrame, data: bytes) -> Iterator[MemberValue]:
        """Yields every member that the structure has, by offset, with its validity.

        A member that shares its bytes with one that the entries are known to write (the unions of the
        structure) takes that one's validity.
        """
        ordered = sorted(self.members.items(), key=lambda item: item[1].offset)
        known = [(name, place) for name, place in ordered if name in frame.verdicts]
        for name, place in ordered:
            verdict = frame.verdicts.get(name)
            if verdict is None:
                verdict = _NOT_WRITTEN
                for other, span in known:
                    if span.offset < place.offset + place.size and place.offset < span.offset + span.size:
                        verdict = Verdict(frame.verdicts[other].validity, f"the bytes of {other}")
                        break
            value = None if verdict.validity == UNWRITTEN else self.number(data, name)
            if value is not None and verdict.validity == PARTIAL:
                value &= _PARTIAL_MASK
            yield MemberValue(name, place.offset, place.size, value, verdict.validity, verdict.note)

    def scan(self, memory: Extents, start: int, end: int, bounds: TrapBounds) -> Iterator[int]:
        """Yields the addresses of the trap frames that lie wholly in a range, in order.

        Of two that overlap only the one that was found first, from low to high, is one.

        Source of the tests: 318 emulated stacks of 5.2 x64 and 475 of x86, 40 million random positions, a
        crash of 10.0.19041. A test on bytes cannot tell a frame in use from one that is left over.

        Args:
            memory: the stack; frames are looked for in what is present
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
        """Yields where the one word that every frame holds is in its place, with the frame's bytes."""
        offset = self.members[self.anchor_member].offset
        for low, high in memory.covered(start, end):
            data = memory.read(low, high - low)
            if data is None:
                continue
            for found in self.anchor.finditer(data, offset):
                begin = found.start() - offset
                if (low + begin) % self.alignment == 0 and begin + self.size <= high - low:
                    yield low + begin, bytes(data[begin : begin + self.size])

    def overlaps(self, address: int, taken: List[int]) -> bool:
        """Returns whether a frame at an address would share bytes with one that is known already."""
        return any(abs(address - other) < self.size for other in taken)


def mark(verdicts: Verdicts, validity: str, names: str, note: str = "") -> None:
    """Gives the members named (separated by blanks) one validity; `note` says why one is unsure."""
    verdicts.update(_marked(validity, names, note))


@functools.lru_cache(maxsize=1024)
def _marked(validity: str, names: str, note: str) -> Verdicts:
    """Returns one verdict for several members; all texts are of this package, so there are few."""
    return dict.fromkeys(names.split(), Verdict(validity, note))


def debug_registers_plausible(dr7: int) -> bool:
    """Returns whether a Dr7 can be one that enables something: low word not 0, reserved bits as they must be.

    Source: Intel SDM volume 3, 17.2.4: bits 11 (outside TSX), 12, 14 and 15 and the upper half are 0.
    """
    return bool(dr7 & 0xFFFF) and dr7 < 1 << 32 and not dr7 & 0xD000
