# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The header of a Stack Trace Database: its fields, and what in them contradicts the rest.

The layout is chosen by what the structure says of itself. Sources of the facts: the public symbols of ntdll
(6.0 and later) and the code of ntdll and ntoskrnl (XP SP3, 2003 SP2, 7 to 11); the measures given here were
checked on databases that these builds wrote.
"""

from __future__ import annotations

from typing import Dict, Iterator, NamedTuple, Tuple

from .layout import StdLayout, unpack

MAX_DATABASE = 0x8000000
"""128 MB: the most that ntdll reserves (StackTraceDatabaseSizeInMb); a kernel's is 8 MB or less."""
MAX_BUCKETS = 100_000
"""Windows uses 137, 1567, 5569 or 9551."""


class Header(NamedTuple):
    """The fixed part of a database.

    Attributes:
        address: of the database
        layout: which of the layouts it has
        fields: the members as stored, by their public names
        bucket_stride: distance of two bucket heads, in bytes
        bucket_count: number of buckets
        index_end: where the index array ends
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
        """Address of the first entry; in 6.0 entries may begin a little higher (the place is not known)."""
        if self.layout.has("LowerMemoryStart"):
            return self.address + lower_memory_start(self.layout, self.bucket_stride, self.bucket_count)
        return self.buckets_end

    @property
    def committed_memory(self) -> int:
        """CommittedMemory as Windows computes it; without meaning where memory is committed beforehand."""
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
        """NumberOfBackTraces: how many index slots Windows says it has handed out."""
        return self.fields["NumberOfEntriesAdded"]

    def _difference(self, name: str) -> int:
        return (self.fields[name] - self.fields["CommitBase"]) % (1 << 8 * self.layout.pointer_size)


def lower_memory_start(layout: StdLayout, stride: int, count: int) -> int:
    """Returns the offset of the first entry (6.1 and later): after the declared structure and the bucket
    array, such that BackTrace is aligned to two pointers (code of ntdll 7 to 11, ntoskrnl 10586 to 28000)."""
    unit = 2 * layout.pointer_size
    return -(-(layout.size + stride * count) // unit) * unit + -layout.entry.back_trace % unit


def parse(layout: StdLayout, address: int, data: bytes) -> Iterator[Header]:
    """Yields the header once per possible bucket stride; data must reach to the buckets."""
    fields = unpack(layout.members, data)
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
    # XP keeps its lock inside and calls it through routine pointers; 2003 has neither.
    for name in ("AcquireLockRoutine", "ReleaseLockRoutine", "OkayToLockRoutine"):
        if not fields.get(name, 1):
            yield name
