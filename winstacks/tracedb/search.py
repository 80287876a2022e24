# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the databases of a process without ntdll's symbols: by pointers in ntdll's writable data.

A process may write to all of this memory. So a pointer that was found in one process is only tried first in
the next process, at the same RVA. A database whose header has a fault is also found, if its entries agree
with the rest of the header.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

from ..columns.words import HEAPLOG, STD
from ..memory.decode.memory import Reader
from ..memory.decode.ranges import Extents
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import integers
from ..memory.image import AddressSpace
from .decode import heaplog
from .decode import proof as stdproof
from .decode.layout import HeapLogLayout
from .decode.proof import UNREADABLE, Proof
from .model import Layouts

_UNIT = 8
"""Alignment of lookaside lists, and of every block that the heap allocates."""

ALLOCATION_GRANULARITY = 0x10000
"""The reserved memory of a process begins at multiples of 64 KB, and so does a database."""

MIN_RESERVE = 0x800000
"""The least bytes of a private range that may be a damaged database: half of ntdll's smallest reservation."""

USER_END = {4: 1 << 32, 8: 1 << 47}
"""End of user memory, by pointer size. Most aligned words in the data of a 64-bit ntdll are above it."""

MAX_CANDIDATES = {STD: 256, HEAPLOG: 8192}
"""The most words that are tried in a process, by kind. An ordinary ntdll has about ten that may point to an
`std`, and a few hundred that may point to a `heaplog`. A process may have any number of decoys."""

LOG_PLACES = 0x100
"""A heap's trace log is searched in this many bytes at the start of each private memory range."""

LOG_ALIGNMENT = {8: 16, 4: 4}
"""Alignment of a log, by pointer size. It is at 70h of private memory on x64 (measured: 7601.24384,
19044.1766) and at 2Ch on x86 (16299.15, 14393 WoW64)."""

MAX_RECORDS = 1 << 24
"""More records than any log that fits into a process."""

MAX_LOG_TRIES = 256
"""The most places in private memory that are tried in a process as a heap's trace log."""

MIN_EVIDENCE = 2
"""A damaged database is accepted with this many right bucket heads, or with more blocks than this."""

_MAX_PLACES = 16
"""The most RVAs of pointers that are remembered for each kind and bitness."""


class SearchHit(NamedTuple):
    """A pointer to a database.

    Attributes:
        address: canonical address of the database, as the pointer holds it
        proof: proof of an `std`, None for a `heaplog`
    """

    rva: int
    address: int
    proof: Optional[Proof]


class Search:
    """Searches the data of ntdlls, and remembers the places of the pointers for each kind and bitness."""

    def __init__(self) -> None:
        self._places: Dict[Tuple[str, int], List[int]] = {}

    def words(
        self, space: AddressSpace, kind: str, base: int, size: int, data: List[Extents]
    ) -> Tuple[Dict[int, int], Status]:
        """Returns the words that may point to a database (value by RVA), and the status of the search.

        Words at RVAs that were right in another process come first.
        """
        unit = ALLOCATION_GRANULARITY if kind == STD else LOG_ALIGNMENT[space.pointer_size]
        image, end = range(base, base + size), USER_END[space.pointer_size]
        values = {0}
        candidates: Dict[int, int] = {}
        for address, value in _aligned_words(data, space.pointer_size):
            if value % unit or value >= end or value in image:
                continue
            if value not in values:
                values.add(value)
                candidates[address - base] = value
        known_rvas = [rva for rva in self.known(space, kind) if rva in candidates]
        ordered = {rva: candidates[rva] for rva in [*known_rvas, *candidates]}
        most = MAX_CANDIDATES[kind]
        statuses = status(StatusCode.SEARCH_CUT_SHORT) if len(ordered) > most else NOTHING
        return dict(list(ordered.items())[:most]), statuses

    def known(self, space: AddressSpace, kind: str) -> List[int]:
        """Returns the RVAs at which other processes had the pointer, the latest first."""
        return self._places.get((kind, space.pointer_size), [])

    def remember(self, space: AddressSpace, kind: str, rva: int) -> None:
        """Remembers the RVA of a pointer for the next process."""
        places = self._places.setdefault((kind, space.pointer_size), [])
        if rva not in places:
            places.insert(0, rva)
            del places[_MAX_PLACES:]

    @staticmethod
    def prove_words(
        words: Dict[int, int], kind: str, reader: Reader, layouts: Layouts
    ) -> Tuple[List[SearchHit], List[Tuple[int, int]]]:
        """Tries all words, because a process may have made a database of its own beside the real one. Returns
        the pointers to databases without fault, the database with the most traces first, and the words (RVA,
        value) that point to an `std` with one fault in its header."""
        nearly = []
        hits: List[Tuple[int, SearchHit]] = []
        for rva, value in words.items():
            if kind == HEAPLOG:
                layout = heaplog.prove(reader, value, layouts.heaplogs)
                if layout is not None:
                    log = heaplog.HeapLog(reader, value, layout)
                    hits.append((log.trace_count or 0, SearchHit(rva, value, None)))
                continue
            proof = stdproof.prove(reader, value, layouts.std)
            if proof.header is not None:
                hits.append((proof.header.back_traces, SearchHit(rva, value, proof)))
            elif len(proof.failed) == 1 and UNREADABLE not in proof.failed:
                nearly.append((rva, value))
        hits.sort(key=lambda pair: pair[0], reverse=True)
        return [hit for _, hit in hits], nearly

    @staticmethod
    def recover_words(
        words: Iterable[Tuple[int, int]], known: Set[int], reader: Reader, layouts: Layouts
    ) -> Iterator[SearchHit]:
        """Yields the pointers to databases whose header is damaged and whose entries agree with it. `words`
        has RVA and value of the words that may point to one."""
        tried = set(known)
        for rva, value in words:
            if value in tried:
                continue
            tried.add(value)
            proof = recover_checked(reader, value, layouts)
            if proof is not None:
                yield SearchHit(rva, value, proof)


def find_logs(starts: Iterable[int], reader: Reader, layouts: Layouts) -> Tuple[List[int], Status]:
    """Returns the canonical addresses of the heap's trace logs that prove themselves in private memory, and
    the status of the search."""
    log_layouts = layouts.heaplogs
    width = log_layouts[0].pointer_size
    logs: List[int] = []
    tries = 0
    for start in starts:
        memory = reader(start, LOG_PLACES)
        for address in _log_addresses(memory, start, width):
            likely = [layout for layout in log_layouts if _may_be_log(memory, address, layout)]
            if not likely:
                continue
            if tries >= MAX_LOG_TRIES:
                return logs, status(StatusCode.SEARCH_CUT_SHORT)
            tries += 1
            if heaplog.prove(reader, address, likely) is not None:
                logs.append(address)
    return logs, NOTHING


def _log_addresses(memory: Extents, start: int, width: int) -> Iterator[int]:
    """Yields the present addresses at which a log may begin: aligned, with a pointer other than 0."""
    step = LOG_ALIGNMENT[width]
    for low, data in memory.runs:
        skip = (start - low) % step
        for number, word in enumerate(integers(data, width, skip)[:: step // width]):
            if word and not word % _UNIT:
                yield low + skip + step * number


def may_be_log(memory: Extents, address: int, layouts: Iterable[HeapLogLayout]) -> bool:
    """Returns whether a log of one of several layouts may begin at an address of memory that was read."""
    return any(_may_be_log(memory, address, layout) for layout in layouts)


def _may_be_log(memory: Extents, address: int, layout: HeapLogLayout) -> bool:
    """Returns whether a log may begin at an address: its lookaside list and record count are plausible."""
    head = memory.read(address, layout.trace_count.offset + layout.pointer_size)
    if head is None:
        return False
    lookaside = int.from_bytes(head[: layout.pointer_size], "little")
    count = layout.trace_count.value_in(head)
    return 0 < lookaside < USER_END[layout.pointer_size] and not lookaside % _UNIT and 0 < count < MAX_RECORDS


def recover_checked(reader: Reader, address: int, layouts: Layouts) -> Optional[Proof]:
    """Returns the proof of a possibly damaged database, None unless enough of its entries agree with it."""
    proof = stdproof.recover(reader, address, layouts.std)
    if proof.header is None:
        return None
    matching, _ = stdproof.sample_agreement(reader, proof.header)
    enough = matching >= MIN_EVIDENCE or stdproof.block_count(reader, proof.header) > MIN_EVIDENCE
    return proof if enough else None


def _aligned_words(data: List[Extents], width: int) -> Iterator[Tuple[int, int]]:
    """Yields (address, value) of the pointer-sized words of sparse memory."""
    for extents in data:
        for start, run in extents.runs:
            skip = -start % width
            yield from zip(range(start + skip, start + len(run), width), integers(run, width, skip))
