# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The header of a Stack Trace Database: its members, their contradictions, and the memory in use.

Sources: public symbols of ntdll (6.0 and later), listings of ntdll and ntoskrnl (XP SP3, 2003 SP2, 7 to 11).
Numbers given here were measured on databases that these builds wrote.

A database fills its memory from both ends: entries upwards from the header, index slots downwards from the
end. Two watermarks (NextFreeLowerMemory, NextFreeUpperMemory) bound the free memory between the two parts.
The used memory is found from these watermarks alone. In a kernel the commit limits and the counters do not
help: it never sets the limits (all memory is committed beforehand, and the unused part holds old pool data),
and its counters may start as garbage.
"""

from __future__ import annotations

from typing import Dict, Iterator, Sequence, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from .capture import back_trace_hash
from .layout import StdLayout

MAX_DATABASE = 0x8000000
"""128 MB, the most that ntdll reserves (StackTraceDatabaseSizeInMb). A kernel reserves 8 MB or less."""
MAX_BUCKETS = 100_000
"""The limit for a stored number of buckets. Windows uses 137, 1567, 5569 or 9551."""

_MARGIN = 0x10000
"""Index slots in excess of the blocks, for traces that are logged while the image is taken."""


class Header(NamedTuple):
    """The fixed part of a database. `fields` are values of the members as stored, by their names in
    Microsoft's symbols."""

    address: int
    layout: StdLayout
    fields: Dict[str, int]
    bucket_stride: int
    bucket_count: int
    index_end: int

    @property
    def buckets(self) -> int:
        """Address of the first bucket head."""
        return self.address + self.layout.buckets

    @property
    def buckets_end(self) -> int:
        """Address behind the last bucket head."""
        return self.buckets + self.bucket_count * self.bucket_stride

    @property
    def first_entry(self) -> int:
        """Address of the first entry. In 6.0 it may lie a little higher: the exact place is unknown."""
        if self.layout.has_start:
            return self.address + lower_memory_start(self.layout, self.bucket_stride, self.bucket_count)
        return self.buckets_end

    def bucket_of(self, frames: Sequence[int]) -> int:
        """Returns the bucket in which a trace belongs."""
        return back_trace_hash(frames) % self.bucket_count

    @property
    def committed_memory(self) -> int:
        """CommittedMemory as Windows computes it, in bytes; meaningless in a kernel, which commits it all."""
        return self._difference("CurrentUpperCommitLimit")

    @property
    def reserved_memory(self) -> int:
        """ReservedMemory as Windows computes it, in bytes."""
        return self._difference("EntryIndexArray")

    @property
    def lookups(self) -> int:
        """NumberOfBackTraceLookups."""
        return self.fields["NumberOfEntriesLookedUp"]

    @property
    def back_traces(self) -> int:
        """NumberOfBackTraces: the number of index slots that Windows has handed out."""
        return self.fields["NumberOfEntriesAdded"]

    def _difference(self, name: str) -> int:
        """Returns the distance of a member's address from CommitBase, modulo the size of a pointer."""
        return (self.fields[name] - self.fields["CommitBase"]) % (1 << 8 * self.layout.pointer_size)


def lower_memory_start(layout: StdLayout, stride: int, count: int) -> int:
    """Returns the offset of the first entry from the start of the database (6.1 and later).

    It lies behind the declared structure and the bucket array, so that its BackTrace is aligned to two
    pointers (listings of ntdll 7 to 11 and ntoskrnl 10586 to 28000).
    """
    unit = 2 * layout.pointer_size
    return -(-(layout.size + stride * count) // unit) * unit + -layout.entry.head_size % unit


def parse(layout: StdLayout, address: int, data: bytes) -> Iterator[Header]:
    """Yields the header at an address once for each possible bucket stride. `data` has the bytes of the
    database, at least up to the buckets."""
    fields = dict(zip(layout.names, layout.values(data, 0)))
    for stride in layout.bucket_strides:
        yield Header(address, layout, fields, stride, fields["NumberOfBuckets"], fields["EntryIndexArray"])


def contradictions(header: Header) -> Tuple[str, ...]:
    """Returns the names of the members that cannot be right, given the others."""
    return tuple(_contradictions(header))


def _contradictions(header: Header) -> Iterator[str]:
    fields, address = header.fields, header.address
    if fields["CommitBase"] != address:
        yield "CommitBase"
    if not 0 < header.bucket_count <= MAX_BUCKETS:
        yield "NumberOfBuckets"
        return
    first = header.first_entry
    if fields.get("LowerMemoryStart", first) != first:
        yield "LowerMemoryStart"
    order = [first, fields["NextFreeLowerMemory"], fields["NextFreeUpperMemory"], fields["EntryIndexArray"]]
    names = ("NextFreeLowerMemory", "NextFreeUpperMemory", "EntryIndexArray")
    for name, low, value in zip(names, order, order[1:]):
        if value < low or value % header.layout.pointer_size or value - address > MAX_DATABASE:
            yield name
    for name in ("PreCommitted", "DumpInProgress"):
        if fields[name] > 1:
            yield name
    # XP has its lock in the structure, and pointers to the routines of the lock; 2003 has neither.
    for name in ("AcquireLockRoutine", "ReleaseLockRoutine", "OkayToLockRoutine"):
        if not fields.get(name, 1):
            yield name


def wrong_counters(header: Header) -> Tuple[str, ...]:
    """Returns the names of the members that contradict the index slots, which bound the used memory.

    Each slot that was handed out is counted, and the upper part is committed page by page, down to the page
    with the latest slot. Measured on XP, 2003, 7, 8.1, 10 and 11. A kernel (PreCommitted) keeps no commit
    limit, and may start its counters as garbage. Neither these nor a damaged watermark contradict anything.
    """
    used, fields = bounds(header), header.fields
    if not used.upper_known:
        return ()
    committed = fields["CurrentUpperCommitLimit"] == used.upper_start - used.upper_start % PAGE_SIZE
    if fields["PreCommitted"]:
        return ("PreCommitted",) if committed else ()
    slots = (used.upper_end - used.upper_start) // header.layout.pointer_size
    counted = slots == header.back_traces
    wrong = ((counted, "NumberOfEntriesAdded"), (committed, "CurrentUpperCommitLimit"))
    return tuple(name for right, name in wrong if not right)


class Bounds(NamedTuple):
    """The used parts of a database by address: its start to `lower_end`, and `upper_start` to `upper_end`.

    Attributes:
        lower_end: end of the entries (NextFreeLowerMemory)
        upper_start: start of the index slots (NextFreeUpperMemory)
        upper_end: end of the index slots (EntryIndexArray); equal to upper_start if no index array is known
        lower_known, upper_known: whether `lower_end` or `upper_start` is the watermark; False if the
            watermark is damaged, and the widest possible bound takes its place
    """

    first_entry: int
    lower_end: int
    upper_start: int
    upper_end: int
    lower_known: bool
    upper_known: bool


def bounds(header: Header) -> Bounds:
    """Returns the used parts of a database, within MAX_DATABASE bytes whatever its header says."""
    first, pointer = header.first_entry, header.layout.pointer_size
    limit = header.address + MAX_DATABASE
    index_end = header.index_end
    upper, lower = header.fields["NextFreeUpperMemory"], header.fields["NextFreeLowerMemory"]
    has_index = first <= index_end <= limit and not index_end % pointer
    top = index_end if has_index else limit
    lower_known = first <= lower <= top and not lower % pointer
    upper_known = has_index and first <= upper <= top and not upper % pointer
    if lower_known and upper_known and lower > upper:
        lower_known = upper_known = False
    lower_end = lower if lower_known else upper if upper_known else top
    upper_start = upper if upper_known else lower if lower_known else first
    if not has_index:
        upper_start = top
    most = _most_slots(header, lower_end if lower_known or upper_known else first)
    if upper_start < top - most * pointer:
        upper_start, upper_known = top - most * pointer, False
    return Bounds(first, lower_end, upper_start, top, lower_known, upper_known)


def _most_slots(header: Header, lower_end: int) -> int:
    """Returns the most index slots that are possible: one for each smallest block, and _MARGIN."""
    smallest = header.layout.entry.head_size + header.layout.pointer_size
    return (lower_end - header.first_entry) // smallest + _MARGIN
