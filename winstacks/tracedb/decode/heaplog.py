# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The heap's trace log of Windows 7 and later, behind ntdll's `RtlpHeapStackTraceLog`.

Under `gflags +ust` a heap block points to a record here, not to the Stack Trace Database. A record is never
released, and has neither an index nor a count. Sources: listings of ntdll 7600 to 22000 (x64) and of a 32-bit
ntdll; measured on logs that 7601 and 19044 (x64) and 16299 (x86) wrote. No public symbols describe the
structures.
"""

from __future__ import annotations

import operator
from typing import Iterator, List, Optional, Sequence, Set, Tuple

from ...memory.decode.memory import WINDOW, Memory, Reader, ReadWindows
from ...memory.decode.status import Status, contradicted, status
from ...memory.decode.structure import integers, unsigned
from . import status as stdstatus
from .anomalies import Trace
from .blocks import Frames, read_frames
from .capture import back_trace_hash
from .database import Figures
from .layout import HeapLogLayout

_SAMPLE = 16
FEW = 3
"""A log is rejected if more than one in this many pointers is damaged."""


def prove(reader: Reader, address: int, layouts: Sequence[HeapLogLayout]) -> Optional[HeapLogLayout]:
    """Returns the layout of the log at an address, None if there is no log.

    It is the first layout with which the buckets are plausible and most records of a sample are right. An
    empty log is not recognised: it contains no proof. `layouts` are layouts for one bitness, the newest
    first.
    """
    return next((layout for layout in layouts if HeapLog(reader, address, layout).proves_itself()), None)


def likeliest(reader: Reader, address: int, layouts: Sequence[HeapLogLayout]) -> HeapLogLayout:
    """Returns the layout of a damaged log: the layout with which most records are right.

    If no layout makes any record right, it is the oldest layout, which most builds of Windows use.
    """
    return max(reversed(layouts), key=lambda layout: HeapLog(reader, address, layout).sound_records())


class HeapLog:
    """The records of a log."""

    def __init__(self, reader: Reader, address: int, layout: HeapLogLayout) -> None:
        self.address = address
        self._layout = layout
        self._object = reader(address, layout.size)
        self._memory = Memory(ReadWindows(reader, WINDOW), layout.pointer_size)

    @property
    def max_depth(self) -> int:
        """The most frames that Windows keeps of a stack."""
        return self._layout.max_depth

    @property
    def trace_count(self) -> Optional[int]:
        """TraceCount: the log's own number of records; None if it is not in the image."""
        count = self._layout.trace_count
        return unsigned(self._object.read(self.address + count.offset, count.size))

    def proves_itself(self) -> bool:
        """Returns whether all of the log is present, and most sampled records are in the right buckets."""
        layout = self._layout
        data = self._object.read(self.address, layout.size)
        if data is None:
            return False
        stride = layout.bucket_size // layout.pointer_size
        count = stride * layout.bucket_count
        words = integers(data, layout.pointer_size, layout.buckets, count)
        # A single damaged pointer does not disprove the log.
        lowest_bytes = bytes(data[layout.buckets :: layout.pointer_size][:count])
        aligned = bytes(range(0, 0x100, layout.pointer_size))
        if len(lowest_bytes.translate(None, aligned)) * FEW > len(words) - words.count(0):
            return False
        heads, lasts = words[layout.first :: stride], words[layout.last_hit :: stride]
        # A bucket with a LastHit has a Head, too. If many have none, the address is one pointer too high:
        # what is read as Head is LastHit, and what is read as LastHit is the next bucket's Head.
        without_head = sum(map(operator.lt, map(bool, heads), map(bool, lasts)))
        if without_head * FEW > len(lasts) - lasts.count(0):
            return False
        used = [(bucket, records) for bucket, records in enumerate(zip(heads, lasts)) if records[0]]
        verdicts = self._check_records(used)
        # A damaged record among sound ones does not disprove the log: bytes that are no log have no sound
        # record.
        return verdicts.count(True) > verdicts.count(False)

    def sound_records(self) -> int:
        """Returns the number of right records in a sample, from the present parts of the object."""
        return self._check_records([(bucket, (head,)) for bucket, head in self._heads() if head]).count(True)

    def _check_records(self, used: Sequence[Tuple[int, Tuple[int, ...]]]) -> List[Optional[bool]]:
        """Returns for each record of a sample whether it is right, None if a part of it is missing. `used`
        are buckets that are not empty, each with the addresses of records in its chain."""
        return [
            Record(self._memory, record, self._layout).agrees(bucket)
            for bucket, records in used[:: max(len(used) // _SAMPLE, 1)][:_SAMPLE]
            for record in records
            if record
        ]

    def traces(self, carve: bool = False) -> Iterator[Trace]:
        """Yields the records as traces, chain by chain. They have neither an index nor a count. `carve` has
        no effect, because records are never released."""
        return (trace for trace in self._records() if trace is not None)

    def figures(self) -> Figures:
        """Counts the records as `chained`. The figure `unreadable` counts the missing bytes in the object and
        in the records to which chains lead."""
        layout = self._layout
        traces = wrong = 0
        missing = self._object.missing(self.address, self.address + layout.size)
        for trace in self.traces():
            traces += 1
            wrong += bool(trace.status & (stdstatus.BUCKET | stdstatus.DEPTH))
            missing += layout.frames if trace.depth is None else 0
            missing += trace.frames.count(None) * layout.pointer_size
        return Figures(0, traces, 0, 0, wrong, 0, missing)

    @property
    def status(self) -> Status:
        """The faults of the log as a whole: broken chains, missing parts, or a TraceCount that contradicts
        the number of records in the chains."""
        faults = records = 0
        for trace in self._records():
            records += trace is not None
            faults |= stdstatus.BUCKET if trace is None else trace.status & stdstatus.UNREADABLE
        if self._object.missing(self.address, self.address + self._layout.size):
            faults |= stdstatus.UNREADABLE
        differs = not faults and self.trace_count not in (None, records)
        return status(
            stdstatus.status_of(faults),
            contradicted("TraceCount") if differs else None,
        )

    def _records(self) -> Iterator[Optional[Trace]]:
        """Yields the records, and None where a chain leads to a record that is no part of it."""
        visited: Set[int] = set()
        for bucket, address in self._heads():
            while address:
                if address in visited or address % self._layout.pointer_size:
                    yield None
                    break
                visited.add(address)
                record = Record(self._memory, address, self._layout)
                if not record.plausible(bucket):
                    yield None
                    break
                yield record.trace(bucket)
                address = record.next

    def _heads(self) -> Iterator[Tuple[int, int]]:
        """Yields (bucket, address of its first record) for the present part of the array."""
        layout = self._layout
        for bucket in range(layout.bucket_count):
            address = self.address + layout.buckets + bucket * layout.bucket_size
            address += layout.first * layout.pointer_size
            head = self._object.read(address, layout.pointer_size)
            if head is not None:
                yield bucket, int.from_bytes(head, "little")


class Record:
    """A record of a log, as far as it is in the image.

    Attributes:
        next: address of the chain's next record; 0 at the end of the chain, or if the member is not present
        hash, depth: members as stored; None if not present
        frames: as many return addresses as Depth says, at most `max_depth`; None for a missing one
        total: hash of the frames; None if one is not present, or Depth is impossible
    """

    __slots__ = ("_address", "_layout", "depth", "frames", "hash", "next", "total")

    def __init__(self, memory: Memory, address: int, layout: HeapLogLayout) -> None:
        self._layout = layout
        self._address = address
        head = memory.read(address, layout.frames)
        self.next: int
        self.hash: Optional[int]
        self.depth: Optional[int]
        if head is not None:
            self.next, self.hash, self.depth = layout.head(head, 0)
        else:
            self.next = memory.member(address, layout.next) or 0
            self.hash, self.depth = (memory.member(address, field) for field in (layout.hash, layout.depth))
        start, size, depth = address + layout.frames, layout.pointer_size, self.depth or 0
        if depth > layout.max_depth:
            depth = layout.max_depth
        data = memory.read(start, depth * size)
        self.frames: Frames
        self.total: Optional[int] = None
        if data is None:
            self.frames = read_frames(memory.read, start, depth, size)
        else:
            self.frames = return_addresses = integers(data, size, 0, depth)
            if depth and depth == self.depth:
                self.total = back_trace_hash(return_addresses)

    @property
    def impossible(self) -> bool:
        """Whether Depth is present and outside the range that Windows records, 1 to `max_depth`, or counts a
        frame that is 0: the hash is a sum, to which such a frame adds nothing."""
        outside = self.depth is not None and not 0 < self.depth <= self._layout.max_depth
        return outside or 0 in self.frames

    def plausible(self, bucket: int) -> bool:
        """Returns whether this may be a record of a bucket: its stored or computed hash belongs there, or its
        head is not in the image."""
        if self.hash is None or self.depth is None:
            return True
        count = self._layout.bucket_count
        return self.hash % count == bucket or (self.total is not None and self.total % count == bucket)

    def trace(self, bucket: int) -> Trace:
        """Returns the record as a trace of the bucket whose chain leads to it."""
        flags = 0
        if self.depth is None or self.hash is None or None in self.frames:
            flags |= stdstatus.UNREADABLE
        if self.impossible:
            flags |= stdstatus.DEPTH
        elif self.total not in (None, self.hash):
            flags |= stdstatus.BUCKET
        if self.hash is not None and self.hash % self._layout.bucket_count != bucket:
            flags |= stdstatus.BUCKET
        return Trace(None, self._address, None, self.depth, self.hash, bucket, self.frames, flags)

    def agrees(self, bucket: int) -> Optional[bool]:
        """Returns whether the record is valid and in the right bucket; None if a part of it is missing."""
        if self.hash is None or self.depth is None:
            return None
        if self.impossible or self.total is None:
            return False if self.impossible else None
        return self.total == self.hash and self.total % self._layout.bucket_count == bucket
