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
import struct
from typing import Iterator, Optional, Set, Tuple

from ...memory.decode.machine import POINTER_CODES
from ...memory.decode.memory import WINDOW, Memory, Reader, Windows
from ...memory.decode.status import Said, Status, Word, status
from . import status as stdstatus
from .capture import back_trace_hash
from .database import Figures
from .judge import Trace
from .layout import HeapLogLayout

_SAMPLE = 16
FEW = 3
"""One pointer of so many may be damaged."""


def prove(reader: Reader, address: int, layout: HeapLogLayout) -> bool:
    """Tells whether an address holds a log with at least one record, in which a sample of records is right.

    An empty log proves nothing, and is not recognised.
    """
    log = HeapLog(reader, address, layout)
    return log.proves_itself()


class HeapLog:
    """The records of a log.

    Args:
        reader: reads memory
        address: of the log object, canonical
        layout: of its bitness
    """

    def __init__(self, reader: Reader, address: int, layout: HeapLogLayout) -> None:
        self.address = address
        self._layout = layout
        self._object = reader(address, layout.size)
        self._memory = Memory(Windows(reader, WINDOW), layout.pointer_size)

    @property
    def max_depth(self) -> int:
        """The most frames that Windows keeps of a stack."""
        return self._layout.max_depth

    @property
    def trace_count(self) -> Optional[int]:
        """The log's own number of records; None if it is not in the image."""
        count = self._layout.trace_count
        data = self._object.read(self.address + count.offset, count.size)
        return int.from_bytes(data, "little") if data is not None else None

    def proves_itself(self) -> bool:
        """Tells whether all of the object is present, and a sample of its records is in the right buckets."""
        layout = self._layout
        data = self._object.read(self.address, layout.size)
        if data is None:
            return False
        code, each = POINTER_CODES[layout.pointer_size], layout.bucket_size // layout.pointer_size
        count = each * layout.bucket_count
        words = struct.unpack_from(f"<{count}{code}", data, layout.buckets)
        # One pointer that is damaged does not take the log away.
        lowest = bytes(data[layout.buckets :: layout.pointer_size][:count])
        aligned = bytes(range(0, 0x100, layout.pointer_size))
        if len(lowest.translate(None, aligned)) * FEW > len(words) - words.count(0):
            return False
        heads, lasts = words[::each], words[1::each]
        # One pointer further on, what a bucket found last stands for the head of its chain.
        without_head = sum(map(operator.lt, map(bool, heads), map(bool, lasts)))
        if without_head * FEW > len(lasts) - lasts.count(0):
            return False
        used = [(bucket, records) for bucket, records in enumerate(zip(heads, lasts)) if records[0]]
        verdicts = [
            _Record(self._memory, record, layout).agrees(bucket)
            for bucket, records in used[:: max(len(used) // _SAMPLE, 1)][:_SAMPLE]
            for record in records
            if record
        ]
        # A damaged record among sound ones does not take the log away; no other bytes have a sound one.
        return verdicts.count(True) > verdicts.count(False)

    def traces(self, carve: bool = False) -> Iterator[Trace]:
        """Returns the records, chain by chain. They have neither an index nor a count.

        Args:
            carve: makes no difference here, because records are never released
        """
        return (trace for trace in self._rows() if trace is not None)

    def figures(self) -> Figures:
        """Counts the traces. `unreadable` counts the missing bytes of the object and of the known records."""
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
        """What is wrong with the log as a whole; TraceCount if it does not count what the chains have."""
        found = records = 0
        for trace in self._rows():
            records += trace is not None
            found |= stdstatus.BUCKET if trace is None else trace.status & stdstatus.UNREADABLE
        if self._object.missing(self.address, self.address + self._layout.size):
            found |= stdstatus.UNREADABLE
        differs = not found and self.trace_count not in (None, records)
        return status(
            stdstatus.of(found), Said(Word.CONTRADICTED, members=("TraceCount",)) if differs else None
        )

    def _rows(self) -> Iterator[Optional[Trace]]:
        """Yields the records, and None for a chain that leads astray."""
        seen: Set[int] = set()
        for bucket, address in self._heads():
            while address:
                if address in seen or address % self._layout.pointer_size:
                    yield None
                    break
                seen.add(address)
                record = _Record(self._memory, address, self._layout)
                if not record.plausible(bucket):
                    yield None
                    break
                yield record.trace(bucket)
                address = record.next

    def _heads(self) -> Iterator[Tuple[int, int]]:
        """Yields (bucket, address of its first record) for the present part of the array."""
        layout = self._layout
        for bucket in range(layout.bucket_count):
            place = self.address + layout.buckets + bucket * layout.bucket_size
            head = self._object.read(place, layout.pointer_size)
            if head is not None:
                yield bucket, int.from_bytes(head, "little")


class _Record:
    """The present members of a record."""

    def __init__(self, memory: Memory, address: int, layout: HeapLogLayout) -> None:
        self._layout = layout
        self._address = address
        self._memory = memory
        self.next = self._number(layout.next, layout.pointer_size) or 0
        self.hash = self._number(layout.hash, 4)
        self.depth = self._number(layout.depth, 4)
        self.frames: Tuple[Optional[int], ...] = ()
        if self.depth is not None:
            self.frames = self._frames(min(self.depth, layout.max_depth))

    def plausible(self, bucket: int) -> bool:
        """Tells whether it may be a record of a bucket, damaged or not; one that is not in the image may."""
        if self.hash is None or self.depth is None:
            return True
        total = self._sum()
        if total is not None and 0 < self.depth <= self._layout.max_depth:
            return bucket in (self.hash % self._layout.bucket_count, total % self._layout.bucket_count)
        return self.hash % self._layout.bucket_count == bucket

    def trace(self, bucket: int) -> Trace:
        total, flags = self._sum(), 0
        if self.depth is None or self.hash is None or None in self.frames:
            flags |= stdstatus.UNREADABLE
        if self.depth is not None and not 0 < self.depth <= self._layout.max_depth:
            flags |= stdstatus.DEPTH
        elif total is not None and total != self.hash:
            flags |= stdstatus.BUCKET
        if self.hash is not None and self.hash % self._layout.bucket_count != bucket:
            flags |= stdstatus.BUCKET
        return Trace(None, self._address, None, self.depth, self.hash, bucket, self.frames, flags)

    def agrees(self, bucket: int) -> Optional[bool]:
        """Tells whether it is valid and in the right bucket; None if a part of it is missing."""
        if self.hash is None or self.depth is None:
            return None
        if not 0 < self.depth <= self._layout.max_depth:
            return False
        total = self._sum()
        if total is None:
            return None
        return total == self.hash and total % self._layout.bucket_count == bucket

    def _sum(self) -> Optional[int]:
        present = [frame for frame in self.frames if frame is not None]
        return back_trace_hash(present) if present and len(present) == self.depth else None

    def _frames(self, depth: int) -> Tuple[Optional[int], ...]:
        pointer, start = self._layout.pointer_size, self._layout.frames
        data = self._memory.read(self._address + start, depth * pointer) if depth else None
        if data is not None:
            return struct.unpack(f"<{depth}{POINTER_CODES[pointer]}", data)
        return tuple(self._number(start + number * pointer, pointer) for number in range(depth))

    def _number(self, offset: int, size: int) -> Optional[int]:
        data = self._memory.read(self._address + offset, size)
        return int.from_bytes(data, "little") if data is not None else None
