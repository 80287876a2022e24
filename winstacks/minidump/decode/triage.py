# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small kernel dumps (DumpType 4, "triage"): the parts that TRIAGE_DUMP names, and the memory in them.

    dump = TriageDump(read, size)
    dump.part("Context"), dump.memory()

All offsets are offsets in the file. Every offset, size and count is untrusted: a part is read as far as the
file has it, and its status states how much is missing. The CONTEXT and the EXCEPTION_RECORD may lie anywhere,
also within DUMP_HEADER: what lies there decides whether they count. A file that ends before TRIAGE_DUMP has
the header only (`header_only`).

Source of TRIAGE_DUMP64 and of the data blocks: measured (10.0.19041 x64, 10.0.22000 ARM64), and rizin's
`dmp_specs.h`. Windows itself lets ContextOffset and ExceptionOffset point into DUMP_HEADER64 (measured).
TRIAGE_DUMP32 is inferred from it: the same members, pointers of 4 bytes. Older versions of Windows write
fewer of the last members: a member that was not written is `PAGE`, 0, or an offset before the end of the
header.
"""

from __future__ import annotations

import bisect
import struct
from typing import Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from ...memory.decode.machine import Machine
from ...memory.decode.memory import ReadFile
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, StatusItem, naming, status
from ...memory.decode.statuscodes import StatusCode
from ...traps.decode.record import MAX_PARAMETERS, RECORDS
from .contexts import FORMS
from .debuggerdata import MAX_SIZE, DebuggerData, read_debugger_data
from .kernelheader import FILLER, FILLERS, TRIAGE, KernelDumpHeader, NotAKernelDumpError, read_header
from .memory import MAX_ADDRESS, MemoryRange, disjoint

MAX_BLOCKS = 0x20000
"""Greatest number of data blocks that are read. A dump of 1.4 MB has 1,800."""
MAX_PART = 1 << 24
"""Greatest number of bytes of a part that are read."""

_NAMES = (
    "ServicePackBuild", "SizeOfDump", "ValidOffset", "ContextOffset", "ExceptionOffset", "MmOffset",
    "UnloadedDriversOffset", "PrcbOffset", "ProcessOffset", "ThreadOffset", "CallStackOffset",
    "SizeOfCallStack", "DriverListOffset", "DriverCount", "StringPoolOffset", "StringPoolSize",
    "BrokenDriverOffset", "TriageOptions",
)  # fmt: skip
_HEAD = struct.Struct(f"<{len(_NAMES)}I")
_TAIL = (
    "TopOfStack", "DataPageAddress", "DataPageOffset", "DataPageSize",
    "DebuggerDataOffset", "DebuggerDataSize", "DataBlocksOffset", "DataBlocksCount",
)  # fmt: skip
_WIDE_TAIL = struct.Struct("<Q16xQIIIIII")
_NARROW_TAILS = (struct.Struct("<IIIIIIII"), struct.Struct("<I12xIIIIIII"), struct.Struct("<Q16xQIIIIII"))
"""Layouts of the last members of TRIAGE_DUMP32, none of it measured: as declared, with the members
of Itanium, and as in the 64-bit structure. The layout whose DebuggerDataOffset leads to the tag of
KDDEBUGGER_DATA64 counts; if none does, the first."""
_BLOCK = struct.Struct("<QII")

_STARTS = (
    "ContextOffset", "ExceptionOffset", "MmOffset", "UnloadedDriversOffset", "PrcbOffset",
    "ProcessOffset", "ThreadOffset", "CallStackOffset", "DriverListOffset", "StringPoolOffset",
    "BrokenDriverOffset", "DataPageOffset", "DebuggerDataOffset", "DataBlocksOffset",
)  # fmt: skip
"""The members that hold the offset of a part: a part without a size ends where the next one begins."""
_ANYWHERE = ("ContextOffset", "ExceptionOffset")
"""The members that may lead into DUMP_HEADER."""

_CONTEXTS = {form.machine: form for form in FORMS}
_PARTS_OF_CONTEXT, _KNOWN_FLAGS = 0x3F, 0xF80000FF
"""The bits of ContextFlags for parts; all bits that winnt.h has, without the bits of architectures."""
_LEAST_OFFSET = 8
"""The signature lies before it."""


_NOT_A_CONTEXT = status(StatusCode.NOT_A_CONTEXT)


class Part(NamedTuple):
    """A part of a dump.

    Attributes:
        name: name of its member, without `Offset`
        data: the bytes that the file has
    """

    name: str
    offset: int
    size: int
    data: bytes
    status: Status


class TriageDump:
    """A small kernel dump.

    Attributes:
        header_only: whether the file ends before TRIAGE_DUMP, so that it has no stack, drivers or memory
        members: members of TRIAGE_DUMP by name, None for a member that Windows did not write

    Raises:
        NotAKernelDumpError: the file is no small kernel dump; the text is a sentence for users
    """

    def __init__(self, read: ReadFile, size: int) -> None:
        self._read = read
        self.size = size
        self.header: KernelDumpHeader = read_header(read)
        tails = (_WIDE_TAIL,) if self.header.wide else _NARROW_TAILS
        data = read(self.header.size, _HEAD.size + max(tail.size for tail in tails))
        kind = self.header.DumpType
        # The beginning of a dump of any type is all that a collector of bug checks keeps.
        self.header_only = not data or (kind == TRIAGE and len(data) < _HEAD.size)
        if kind != TRIAGE and not self.header_only:
            raise NotAKernelDumpError(
                f"The crash dump is of type {'unknown' if kind is None else kind}, not a small kernel dump "
                f"(type {TRIAGE}); plugins such as windows.callstacks read larger dumps"
            )
        self.members: Dict[str, Optional[int]] = dict.fromkeys((*_NAMES, *_TAIL))
        if not self.header_only:
            known = [self._members(data, tail) for tail in tails]
            self.members = next(filter(self._tagged, known), known[0])
        self._starts = sorted(
            {value for name in _STARTS for value in [self._offset(name)] if value} | {self._end_of_file()}
        )
        self.status = self._judge()

    @staticmethod
    def _members(data: bytes, tail: struct.Struct) -> Dict[str, Optional[int]]:
        """Returns the members of TRIAGE_DUMP by name, None for a member that Windows did not write."""
        rest = data[_HEAD.size : _HEAD.size + tail.size].ljust(tail.size, b"\0")
        values = (*_HEAD.unpack(data[: _HEAD.size]), *tail.unpack(rest))
        return {name: None if value in FILLERS else value for name, value in zip((*_NAMES, *_TAIL), values)}

    def _tagged(self, members: Dict[str, Optional[int]]) -> bool:
        """Returns whether KDDEBUGGER_DATA64 lies at the offset in some members."""
        offset = members["DebuggerDataOffset"] or 0
        return offset >= self.header.size and read_debugger_data(self.available(offset, MAX_SIZE)).tagged

    @property
    def machine(self) -> Machine:
        """The machine that crashed. Raises UnsupportedMachineError if the machine is not supported; the text
        is a sentence for users."""
        return self.header.machine

    def member(self, name: str) -> int:
        """Returns a member of TRIAGE_DUMP, 0 if Windows did not write it."""
        return self.members[name] or 0

    def available(self, offset: int, size: int) -> bytes:
        """Returns the bytes of a range of the file, fewer at the end of the file."""
        size = min(size, self.size - offset, MAX_PART)
        return self._read(offset, size) if size > 0 and offset >= 0 else b""

    def part(self, name: str, size: Optional[int] = None) -> Part:
        """Returns a part; its offset is 0 if the dump has none of this name.

        Args:
            name: name of the member, without `Offset`
            size: size in bytes; without it, the part ends where the next one begins
        """
        member = f"{name}Offset"
        offset, value = self._offset(member), self.member(member)
        if not offset:
            wrong = naming(StatusCode.HEADER, member) if value else None
            return Part(name, 0, 0, b"", status(wrong))
        if size is None:
            size = next((start for start in self._starts if start > offset), self.size) - offset
        data = self.available(offset, size)
        missing = min(size, MAX_PART) - len(data)
        faults = status(
            StatusItem(StatusCode.BEYOND_THE_FILE, missing) if missing else None,
            StatusCode.LIMIT if size > MAX_PART else None,
        )
        return Part(name, offset, size, data, faults)

    @property
    def context(self) -> Part:
        """The CONTEXT of the processor that crashed."""
        known = _CONTEXTS.get(self.header.MachineImageType or 0)
        size = 0 if known is None else known.size
        return self._held("Context", self.header.context_offset, size, self._is_context, _NOT_A_CONTEXT)

    @property
    def exception(self) -> Part:
        """The EXCEPTION_RECORD of the crash."""
        size = RECORDS[self.header.wide].size
        wrong = naming(StatusCode.HEADER, "ExceptionOffset")
        return self._held("Exception", self.header.exception_offset, size, self._is_record, wrong)

    def _held(
        self, name: str, in_header: int, size: int, accepts: Callable[[bytes], bool], wrong: Status
    ) -> Part:
        """Returns a part that its content proves: at the member's offset, else in DUMP_HEADER. `wrong` is the
        status if neither place has one."""
        member = self.member(f"{name}Offset")
        for offset in (member, in_header):
            data = self.available(offset, size) if offset >= _LEAST_OFFSET else b""
            if len(data) == size and accepts(data):
                moved = offset != member and not self.header_only
                return Part(name, offset, size, data, wrong if moved and member else NOTHING)
        part = self.part(name, size)
        if self.header_only:
            return part
        return part._replace(status=status(part.status, wrong if part.offset else None))

    def _is_context(self, data: bytes) -> bool:
        form = _CONTEXTS.get(self.header.MachineImageType or 0)
        if form is None:
            return False
        flags = form.flags_of(data)
        unknown = flags & ~(form.cpu | _KNOWN_FLAGS)
        return bool(flags & form.cpu and flags & _PARTS_OF_CONTEXT) and not unknown

    def _is_record(self, data: bytes) -> bool:
        record = RECORDS[self.header.wide].decode(data)
        return record.ExceptionCode not in (0, FILLER) and record.NumberParameters <= MAX_PARAMETERS

    @property
    def call_stack(self) -> Part:
        """The kernel stack of the thread that crashed; its address in memory is `TopOfStack`."""
        return self.part("CallStack", self.member("SizeOfCallStack"))

    @property
    def debugger_data(self) -> DebuggerData:
        """KDDEBUGGER_DATA64: addresses of the kernel's variables, and offsets of some members."""
        return read_debugger_data(self.part("DebuggerData", self.member("DebuggerDataSize")).data)

    def canonical(self, address: int) -> int:
        """Returns an address of the dump in the form that Windows stores in a pointer."""
        return address if self.header.wide else Machine.I386.canonical(address)

    def blocks(self) -> Tuple[List[MemoryRange], Status]:
        """Returns the data blocks in the order of the dump, and the status of their list."""
        count = self.member("DataBlocksCount")
        if not self.member("DataBlocksOffset") and not count:
            return [], NOTHING
        read = min(count, MAX_BLOCKS)
        part = self.part("DataBlocks", read * _BLOCK.size)
        whole = len(part.data) - len(part.data) % _BLOCK.size
        found = [
            MemoryRange(self.canonical(address), offset, size)
            for address, offset, size in _BLOCK.iter_unpack(part.data[:whole])
        ]
        return found, status(part.status, StatusCode.LIMIT if count > MAX_BLOCKS else None)

    def listed_memory(self) -> Tuple[List[MemoryRange], Status]:
        """Returns the memory that the dump claims to have, the ranges with precedence first."""
        found, faults = self.blocks()
        call_stack = self.member("TopOfStack"), self.call_stack.offset, self.member("SizeOfCallStack")
        page = (
            self.member("DataPageAddress"),
            self._offset("DataPageOffset"),
            self.member("DataPageSize"),
        )
        block = self.header.KdDebuggerDataBlock or 0
        data = block, self._offset("DebuggerDataOffset"), self.member("DebuggerDataSize")
        for address, offset, size in (call_stack, data, page):
            if address and offset and size:
                found.append(MemoryRange(self.canonical(address), offset, size))
        return found, faults

    def _offset(self, name: str) -> int:
        """Returns the offset of a part, 0 if the value cannot be an offset of the file."""
        value = self.member(name)
        return value if self.header.size + _HEAD.size <= value < self.size else 0

    def _end_of_file(self) -> int:
        """Returns the end of the dump: SizeOfDump, unless the file is shorter."""
        size = self.member("SizeOfDump")
        return size if self.header.size < size <= self.size else self.size

    def _judge(self) -> Status:
        """Returns the faults of the dump as a whole."""
        if self.header_only:
            return status(StatusCode.HEADER_ONLY)
        size = self.member("SizeOfDump")
        wrong = tuple(
            name for name in _STARTS if name not in _ANYWHERE and self.member(name) and not self._offset(name)
        )
        if self._offset("DebuggerDataOffset") and not self.debugger_data.tagged:
            wrong += ("DebuggerDataOffset",)
        cut = max(size - self.size, 0)
        return status(
            StatusItem(StatusCode.BEYOND_THE_FILE, cut) if cut else None,
            naming(StatusCode.HEADER, *wrong),
        )


def memory_ranges(dump: TriageDump, more: Iterable[MemoryRange] = ()) -> Tuple[List[MemoryRange], Status]:
    """Returns the memory of a dump, sorted by address and disjoint, and its status.

    If ranges share addresses, the first counts: data blocks, the call stack, the debugger's data, then
    `more`. A byte of the file belongs to one address: a block that claims bytes of another block for other
    addresses, as a small file could do to claim to be a large memory, is left out and counted. `more` are
    structures whose addresses come from other structures.
    """
    listed, faults = dump.listed_memory()
    blocks, beyond, outside = [], 0, False
    for candidate in listed:
        length = (
            max(min(candidate.length, dump.size - candidate.offset), 0)
            if candidate.offset >= dump.header.size
            else 0
        )
        beyond += candidate.length - length
        outside = outside or length > MAX_ADDRESS - candidate.start
        length = min(length, MAX_ADDRESS - candidate.start)
        if length > 0:
            blocks.append(candidate._replace(length=length))
    apart, shared = disjoint(
        [*blocks, *(candidate for candidate in more if candidate.length > 0)], by_file=True
    )
    found, _ = disjoint(apart, by_file=False)
    ends = _joined_ends(found) if shared else []
    lost = sum(not _covered(found, ends, candidate) for candidate in blocks) if shared else 0
    return found, status(
        faults,
        StatusItem(StatusCode.BEYOND_THE_FILE, beyond) if beyond else None,
        StatusItem(StatusCode.RANGES_OVERLAP, lost) if lost else None,
        naming(StatusCode.HEADER, "DataBlocksOffset") if outside else None,
    )


def _joined_ends(ranges: Sequence[MemoryRange]) -> List[int]:
    """Returns for each of some sorted, disjoint ranges the end of the memory that goes on from it without a
    gap."""
    ends: List[int] = []
    behind = MemoryRange(-1, 0, 0)
    for memory_range in reversed(ranges):
        end = memory_range.start + memory_range.length
        ends.append(ends[-1] if end == behind.start else end)
        behind = memory_range
    return ends[::-1]


def _covered(found: List[MemoryRange], ends: List[int], memory_range: MemoryRange) -> bool:
    """Returns whether sorted, disjoint ranges cover another range; `ends` are their `_joined_ends`."""
    place = bisect.bisect_right(found, (memory_range.start, MAX_ADDRESS, MAX_ADDRESS)) - 1
    return place >= 0 and ends[place] >= memory_range.start + memory_range.length
