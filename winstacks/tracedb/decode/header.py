# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The header of a Stack Trace Database: its members, their contradictions, and the memory in use.

Sources: public symbols of ntdll (6.0 and later), listings of ntdll and ntoskrnl (XP SP3, 2003 SP2, 7 to 11).
Numbers given here were measured on databases that these builds wrote.

The used memory is found from the watermarks alone. The commit limits do not help, because a kernel does not
set them (its memory is committed beforehand, and ends with old pool data), and its counters may begin as
garbage.
"""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple, Sequence, Tuple

from .capture import back_trace_hash
from .layout import StdLayout

MAX_DATABASE = 0x8000000
"""128 MB, the most that ntdll reserves (StackTraceDatabaseSizeInMb). A kernel reserves 8 MB or less."""
MAX_BUCKETS = 100_000
"""The limit for a stored number of buckets. Windows uses 137, 1567, 5569 or 9551."""

_MARGIN = 0x10000


class Header(NamedTuple):
    """The fixed part of a database.

    Attributes:
        address: address of the database
        layout: layout of the database
        fields: the members as stored, by their public names
        bucket_stride: distance of two bucket heads, in bytes
        bucket_count: number of buckets
        index_end: end of the index array
    """

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
        """CommittedMemory as Windows computes it; meaningless in a kernel (memory committed beforehand)."""
        return self._difference("CurrentUpperCommitLimit")

    @property
    def reserved_memory(self) -> int:
        """ReservedMemory as Windows computes it."""
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
        return (self.fields[name] - self.fields["CommitBase"]) % (1 << 8 * self.layout.pointer_size)


def lower_memory_start(layout: StdLayout, stride: int, count: int) -> int:
    """Returns the offset of the first entry (6.1 and later): after the declared structure and the bucket
    array, with BackTrace aligned to two pointers (listings of ntdll 7 to 11 and ntoskrnl 10586 to 28000)."""
    unit = 2 * layout.pointer_size
    return -(-(layout.size + stride * count) // unit) * unit + -layout.entry.head_size % unit


def parse(layout: StdLayout, address: int, data: bytes) -> Iterator[Header]:
    """Yields the header once for each possible bucket stride. `data` must extend to the buckets."""
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


class Bounds(NamedTuple):
    """The used parts [database, lower_end) and [upper_start, upper_end), by address.

    Attributes:
        first_entry: start of the entries
        lower_end: end of the entries (NextFreeLowerMemory)
        upper_start: start of the index slots (NextFreeUpperMemory)
        upper_end: end of the index slots (EntryIndexArray); equal to upper_start if no index array is known
        lower_known, upper_known: False if the watermark is damaged and was replaced by the largest bound
    """

    first_entry: int
    lower_end: int
    upper_start: int
    upper_end: int
    lower_known: bool
    upper_known: bool


def bounds(header: Header) -> Bounds:
    """Returns the used parts of a database: at most 128 MB in all, whatever the header says."""
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
    """Returns the most index slots that are possible: one per block, and some for traces logged meanwhile."""
    smallest = header.layout.entry.head_size + header.layout.pointer_size
    return (lower_end - header.first_entry) // smallest + _MARGIN
