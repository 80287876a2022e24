# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The heap's trace log (`RtlpHeapStackTraceLog`, Windows 7 and later), written as ntdll writes it.

Offsets are from listings of ntdll 7600 to 22000 (x64) and of a 32-bit ntdll.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Dict, List, Optional, Sequence, Tuple

from .std import hash_of

BUCKETS = 401
PAGE = 0x1000
_OBJECT_SIZE = {4: 0xC90, 8: 0x1920}
_CODES = {4: "I", 8: "Q"}


@dataclasses.dataclass(frozen=True)
class Record:
    """A trace in the log; `frames` innermost first."""

    va: int
    next: int
    hash: int
    bucket: int
    depth: int
    frames: Tuple[int, ...]


class HeapLog:
    """A log that can be logged into.

    Args:
        arch: `x86` or `x64`
        address: of the log object
        zone: where the records go, one after another
        lookaside: what the object's first member holds
    """

    def __init__(
        self,
        arch: str = "x64",
        address: int = 0x30000070,
        zone: int = 0x30100040,
        lookaside: int = 0x30090000,
    ) -> None:
        self.pointer = {"x86": 4, "x64": 8}[arch]
        self.address = address
        self._zone = self._next = zone
        self._lookaside = lookaside
        self._records: List[Tuple[int, Tuple[int, ...]]] = []
        self._chains: List[List[int]] = [[] for _ in range(BUCKETS)]
        self._hits = [0] * BUCKETS

    def log(self, frames: Sequence[int], va: Optional[int] = None) -> int:
        """Logs a trace and returns its record's address.

        Args:
            frames: innermost first; only 32 are recorded
            va: where a new record goes; default is behind the last
        """
        trace = tuple(frames[:32])
        chain = self._chains[hash_of(trace) % BUCKETS]
        for number in chain:
            if self._records[number][1] == trace:
                self._hits[hash_of(trace) % BUCKETS] = self._records[number][0]
                return self._records[number][0]
        place = self._next if va is None else va
        self._next = place + -(-(self._head + len(trace) * self.pointer) // 16) * 16
        chain.insert(0, len(self._records))
        self._records.append((place, trace))
        return place

    @property
    def _head(self) -> int:
        return 0x10 if self.pointer == 8 else 0xC

    def records(self) -> List[Record]:
        """All records, chain by chain."""
        found = []
        for bucket, chain in enumerate(self._chains):
            for number, following in zip(chain, [*chain[1:], None]):
                va, frames = self._records[number]
                link = 0 if following is None else self._records[following][0]
                found.append(Record(va, link, hash_of(frames), bucket, len(frames), frames))
        return found

    def object_bytes(self) -> bytes:
        """The log object."""
        code = _CODES[self.pointer]
        first: Dict[int, int] = {}
        for record in self.records():
            first.setdefault(record.bucket, record.va)
        words = [word for bucket in range(BUCKETS) for word in (first.get(bucket, 0), self._hits[bucket])]
        head = struct.pack(f"<{code}I", self._lookaside, len(self._records)).ljust(2 * self.pointer, b"\0")
        return (head + struct.pack(f"<{len(words)}{code}", *words)).ljust(_OBJECT_SIZE[self.pointer], b"\0")

    def record_bytes(self, record: Record) -> bytes:
        code = _CODES[self.pointer]
        head = struct.pack(f"<{code}II", record.next, record.hash, record.depth)
        return head + struct.pack(f"<{record.depth}{code}", *record.frames)

    def regions(self) -> Dict[int, bytes]:
        """The pages that hold object and records, by address."""
        pieces = [(self.address, self.object_bytes())]
        pieces += [(record.va, self.record_bytes(record)) for record in self.records()]
        pages: Dict[int, bytearray] = {}
        for va, data in pieces:
            for page in range(va // PAGE, (va + len(data) - 1) // PAGE + 1):
                memory = pages.setdefault(page * PAGE, bytearray(PAGE))
                low, high = max(va, page * PAGE), min(va + len(data), (page + 1) * PAGE)
                memory[low - page * PAGE : high - page * PAGE] = data[low - va : high - va]
        return {page: bytes(memory) for page, memory in sorted(pages.items())}
