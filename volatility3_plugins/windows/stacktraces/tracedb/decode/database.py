# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A Stack Trace Database, read by all three ways: index array, hash chains, block after block.

How to use it::

    proof = stdproof.prove(reader, address, layouts)      # an address found by search
    proof = stdproof.recover(reader, address, layouts)    # an address that a symbol gave
    if proof.header:
        database = stdwalk.Database(reader, proof.header)
        for trace in database.traces(carve=False): ...
        figures = database.figures()
        for piece in backtraces.encode(database.buffer(), database.records(), layout): file.write(piece)

`reader` returns what is present of a range (`reading.Reader`); memory is read when the object is made, in two
bulk reads (header to lower watermark, upper watermark to the end of the index array). The object holds these
bytes and some 200 bytes per entry; traces are decoded as they are yielded.
"""

from __future__ import annotations

import functools
from itertools import chain
from typing import Iterator, List, NamedTuple, Optional

from ...base.decode.extents import Extents
from ...base.decode.reading import Chunks, Reader
from . import entries, linked
from . import records as stdrecords
from . import slots as stdslots
from . import status as stdstatus
from .backtraces import Buffer, Record
from .blocks import BlockWalk
from .bounds import bounds
from .header import Header
from .judge import Trace
from .traces import TraceDecoder


class Figures(NamedTuple):
    """A database in numbers, counted from the traces that `Database.traces(carve=True)` yields.

    Attributes:
        indexed: live traces with an index
        chained: live traces that a hash chain leads to
        freed: traces that were released
        unindexed: live traces without an index
        mismatched: traces and index slots whose status says `index`, `bucket` or `depth`, and the index slots
            that `Database.unlisted` counts
        orphans: blocks in use that neither chain nor index leads to
        unreadable: bytes of the used parts that are not present
    """

    indexed: int
    chained: int
    freed: int
    unindexed: int
    mismatched: int
    orphans: int
    unreadable: int


class Database:
    """A database whose entries are known; see the module's description.

    Args:
        reader: reads memory
        header: of the database, from `stdproof`
    """

    def __init__(self, reader: Reader, header: Header) -> None:
        self.header = header
        self.bounds = used = bounds(header)
        self._codec = codec = entries.codec(header.layout)
        self._memory = reader(header.address, used.lower_end - header.address)
        # No method of this object: what holds each other is let go much later than what is no longer needed.
        self._read = functools.partial(_read, self._memory, Chunks(reader), used.lower_end)
        upper = reader(used.upper_start, used.upper_end - used.upper_start)
        heads = tuple(entries.bucket_heads(header, self._memory))
        slots = stdslots.index_slots(upper, used, codec.pointer_size)

        def pointers() -> List[int]:
            return [*chain(*(run.addresses for run in heads), *(run.pointers for run in slots))]

        walk = BlockWalk(codec, self._memory, used.first_entry, used.lower_end, pointers)
        self._links = links = linked.Links(header, used, self._read, walk.walk(), heads, slots)
        self._decoder = TraceDecoder(header, used, links, self._memory, self._read)
        self.unreadable = self._missing(upper)

    def traces(self, carve: bool = False) -> Iterator[Trace]:
        """Yields the traces by index, then those that no index slot leads to by address.

        Args:
            carve: also what was released, and orphans
        """
        return self._decoder.traces(0 if carve else stdstatus.FREED | stdstatus.ORPHAN)

    def figures(self) -> Figures:
        """Counts what `traces` yields, and what is `unlisted`."""
        plain = indexed = freed = unindexed = mismatched = orphans = 0
        for trace in self._decoder.traces():
            if not trace.status:
                plain += 1
                continue
            flags = stdstatus.flags(trace.status)
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
    def unlisted(self) -> int:
        """How many index slots lead to no entry besides the thousand that `traces` yields."""
        return self._decoder.unlisted()

    @property
    def status(self) -> str:
        """What is wrong with the database as a whole, in the words of `stdstatus`."""
        flags = stdstatus.UNREADABLE if self.unreadable else 0
        if linked.Chain.BROKEN in self._links.chains:
            flags |= stdstatus.BUCKET
        if self._links.strays:
            flags |= stdstatus.INDEX
        return stdstatus.text(flags)

    def buffer(self) -> Buffer:
        """Returns the header of RTL_PROCESS_BACKTRACES that goes with `records`."""
        header = self.header
        return Buffer(header.committed_memory, header.reserved_memory, header.lookups, self._record_count())

    def records(self) -> Iterator[Record]:
        """Yields what Windows would return of each index slot: released traces too, unindexed ones not."""
        claims = self._decoder.claims()
        return stdrecords.records(self.header, self._links, claims, self._record_count(), self._read)

    def _record_count(self) -> int:
        return stdrecords.record_count(self.header, self.bounds, self._links, self._decoder.claims())

    def _missing(self, upper: Extents) -> int:
        """Counts the bytes of the used parts that are not present, as far as it is known what is used."""
        used, address = self.bounds, self.header.address
        known = used.lower_end if used.lower_known else used.first_entry
        missing = self._memory.missing(address, known)
        return missing + (upper.missing(used.upper_start, used.upper_end) if used.upper_known else 0)


def _read(bulk: Extents, chunks: Chunks, end: int, address: int, length: int) -> Optional[memoryview]:
    """Reads from the bulk, else (beyond a watermark that is out of date) from memory."""
    found = bulk.read(address, length)
    return chunks.read(address, length) if found is None and address + length > end else found
