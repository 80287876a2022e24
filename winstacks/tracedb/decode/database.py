# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A Stack Trace Database, whose entries are found in three ways: by index array, by hash chains, by block
walk.

How to use it::

    result = proof.prove(reader, address, layouts)      # an address found by search
    result = proof.recover(reader, address, layouts)    # an address that a symbol gave
    if result.header:
        opened = database.StdDatabase(reader, result.header)
        for trace in opened.traces(carve=False): ...
        figures = opened.figures()
        for piece in backtraces.encode(opened.buffer(), opened.records(), layout): file.write(piece)

`reader` returns the present parts of a range (`memory.Reader`). Memory is read when the object is made, in
two bulk reads: from the header to the lower watermark (the end of the entries), and from the upper watermark
(the start of the index slots) to the end of the index array. The object holds these bytes and some 200 bytes
per entry; traces are decoded as they are yielded.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import Dict, Iterator, List, Optional, Tuple

from ...memory.decode.memory import WINDOW, Memory, Reader, ReadWindows
from ...memory.decode.ranges import Extents
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import Status, naming, status
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import Buffer as Bytes
from . import blocks, linked
from . import status as stdstatus
from .anomalies import Trace
from .backtraces import BacktraceRecord, Buffer
from .blocks import BlockWalk
from .header import Bounds, Header, bounds, wrong_counters
from .linked import Links
from .traces import TraceDecoder

_MAX_LOST = 0x10000
"""The most index slots in excess of the number of blocks: traces are logged while the image is taken."""


class Figures(NamedTuple):
    """A database in numbers, counted from the traces that `StdDatabase.traces(carve=True)` yields.

    Attributes:
        indexed: live traces with an index: from a slot, or held by the entry itself
        mismatched: traces and index slots with status `index`, `bucket` or `depth`, and the index slots that
            `StdDatabase.unlisted` counts
        orphans: blocks in use to which neither chain nor index leads
    """

    indexed: int
    chained: int
    freed: int
    unindexed: int
    mismatched: int
    orphans: int
    unreadable: int


class StdDatabase:
    """A database whose entries are known; see the module's description."""

    def __init__(self, reader: Reader, header: Header) -> None:
        self.header = header
        self.bounds = used = bounds(header)
        self._memory = reader(header.address, used.lower_end - header.address)
        # A method of this object would be a reference cycle, and cycles are freed much later.
        memory = Memory(ReadWindows(reader, WINDOW), header.layout.pointer_size)
        self._read = functools.partial(_read, self._memory, memory, used.lower_end)
        upper = reader(used.upper_start, used.upper_end - used.upper_start)
        heads = tuple(blocks.bucket_heads(header, self._memory))
        slots = linked.index_slots(upper, used, header.layout.pointer_size)

        def pointers() -> List[int]:
            return [*chain(*(run.addresses for run in heads), *(run.pointers for run in slots))]

        layout = header.layout.entry
        walk = BlockWalk(layout, self._memory, used.first_entry, used.lower_end, pointers)
        self._links = links = Links(header, used, self._read, walk.walk(), heads, slots)
        self._decoder = TraceDecoder(header, used, links, self._memory, self._read)
        self.unreadable = self._missing(upper)

    def traces(self, carve: bool = False) -> Iterator[Trace]:
        """Yields the traces by index, then those without an index slot by address. `carve` also yields freed
        traces and orphans."""
        return self._decoder.traces(0 if carve else stdstatus.FREED | stdstatus.ORPHAN)

    def figures(self) -> Figures:
        """Counts the traces that `traces(carve=True)` yields, and the index slots in `unlisted`."""
        plain = indexed = freed = unindexed = mismatched = orphans = 0
        for trace in self._decoder.traces():
            flags = trace.status
            if not flags:
                plain += 1
                continue
            freed += bool(flags & stdstatus.FREED)
            orphans += bool(flags & stdstatus.ORPHAN)
            unindexed += bool(flags & stdstatus.UNINDEXED)
            mismatched += bool(flags & (stdstatus.INDEX | stdstatus.BUCKET | stdstatus.DEPTH))
            stray = trace.depth is None and not flags & stdstatus.UNREADABLE
            live = not flags & (stdstatus.FREED | stdstatus.ORPHAN)
            indexed += bool(live and trace.trace_index and not stray)
        chained = sum(bucket >= 0 for bucket in self._links.buckets)
        mismatched += self.unlisted
        return Figures(plain + indexed, chained, freed, unindexed, mismatched, orphans, self.unreadable)

    @property
    def max_depth(self) -> int:
        """The most frames that Windows keeps of a stack."""
        return self.header.layout.entry.max_depth

    @property
    def unlisted(self) -> int:
        """Number of index slots without an entry that `traces` omits: it yields the first thousand."""
        return self._decoder.unlisted()

    @property
    def status(self) -> Status:
        flags = stdstatus.UNREADABLE if self.unreadable else 0
        if linked.Chain.BROKEN in self._links.chains:
            flags |= stdstatus.BUCKET
        if self._links.strays:
            flags |= stdstatus.INDEX
        wrong = wrong_counters(self.header)
        return status(stdstatus.status_of(flags), naming(StatusCode.HEADER, *wrong))

    def buffer(self) -> Buffer:
        """Returns the header of RTL_PROCESS_BACKTRACES for `records`."""
        header = self.header
        return Buffer(header.committed_memory, header.reserved_memory, header.lookups, self._record_count())

    def records(self) -> Iterator[BacktraceRecord]:
        """Yields the record that Windows would return for each index slot; a released trace has one, too."""
        claims = self._decoder.claims()
        return _records(self.header, self._links, claims, self._record_count(), self._read)

    def _record_count(self) -> int:
        """Returns how many index slots are in use."""
        return _record_count(self.header, self.bounds, self._links, self._decoder.claims())

    def _missing(self, upper: Extents) -> int:
        """Counts the missing bytes of the used parts: of the lower part, and of `upper`, the index slots."""
        used, address = self.bounds, self.header.address
        lower_end = used.lower_end if used.lower_known else used.first_entry
        missing = self._memory.missing(address, lower_end)
        return missing + (upper.missing(used.upper_start, used.upper_end) if used.upper_known else 0)


def _read(bulk: Extents, memory: Memory, end: int, address: int, length: int) -> Optional[Bytes]:
    """Returns bytes of the database, None unless all of them are present. `memory` reads what lies beyond:
    the watermark may be older than the last entries."""
    data = bulk.read(address, length)
    return memory.read(address, length) if data is None and address + length > end else data


def _record_count(header: Header, used: Bounds, links: Links, claims: Dict[int, int]) -> int:
    """Returns how many index slots are in use.

    If the upper watermark and NumberOfEntriesAdded agree, they give the number; otherwise it is the highest
    index of an entry. It is at most the number of blocks plus _MAX_LOST, because each index belongs to a
    block. `claims` are entries to which no slot leads, by the index that they hold.
    """
    limit = len(links.blocks.addresses) + _MAX_LOST
    slots = (used.upper_end - used.upper_start) // header.layout.pointer_size
    if used.upper_known and slots == header.back_traces and slots <= limit:
        return slots
    indices = [index for index in claims if index <= limit]
    for run, entries in zip(links.slots, links.entries):
        indices += (index for index, entry in enumerate(entries, run.first) if entry is not None)
    return min(max(indices, default=0), limit)


def _records(
    header: Header, links: Links, claims: Dict[int, int], count: int, read: blocks.ReadBytes
) -> Iterator[BacktraceRecord]:
    """Yields a record for each index from 1 to `count`, with the frames' bytes as the entry has them."""
    layout = header.layout.entry
    addresses, pointer, head_size = links.blocks.addresses, layout.pointer_size, layout.head_size
    for index, entry in _numbered(links, count):
        entry = claims.get(index) if entry is None else entry
        head = read(addresses[entry], head_size) if entry is not None else None
        if entry is not None and head is not None:
            depth = links.blocks.depths[entry]
            frames = (
                read(addresses[entry] + head_size, depth * pointer) if depth <= layout.max_depth else None
            )
            if frames is not None:
                yield BacktraceRecord(
                    layout.count_word(head) & layout.count_mask, index, depth, bytes(frames)
                )
                continue
        yield BacktraceRecord(0, index, 0, b"")


def _numbered(links: Links, count: int) -> Iterator[Tuple[int, Optional[int]]]:
    """Yields (index, entry) for each index from 1 to `count`; None for the entry if its slot is absent."""
    next_index = 1
    for run, entries in zip(links.slots, links.entries):
        yield from ((index, None) for index in range(next_index, min(run.first, count + 1)))
        present = entries[: max(count + 1 - run.first, 0)]
        yield from enumerate(present, run.first)
        next_index = run.first + len(entries)
    yield from ((index, None) for index in range(next_index, count + 1))
