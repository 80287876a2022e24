# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Back traces from the linked entries of a database, each with what is special or wrong about it."""

from __future__ import annotations

import functools
import struct
import sys
from typing import Dict, Iterable, Iterator, Optional, Tuple

from . import stdentries, stdstatus
from .extents import Extents
from .stdbounds import Bounds
from .stdheader import Header
from .stdjudge import Judge, Row, Trace
from .stdlinks import Links, ReadBytes

_MAX_STRAYS = 1000
_NO_RECORD = (struct.Struct("").unpack_from, sys.maxsize)
_Pair = Tuple[Optional[int], Optional[int], int]


class TraceDecoder:
    """Decodes the entries that `Links` knows.

    Args:
        header: of the database
        used: its bounds
        links: its entries
        memory: header to lower watermark in bulk
        read: any part of the database
    """

    def __init__(self, header: Header, used: Bounds, links: Links, memory: Extents, read: ReadBytes) -> None:
        self._codec = stdentries.codec(header.layout)
        self._bucket_count = header.bucket_count
        self._judge = Judge(header, used, links, read)
        self._links = links
        self._memory = memory
        self._read = read
        by_address = links.blocks.addresses.__getitem__
        self._rest = sorted((entry for entry, led in enumerate(links.led) if not led), key=by_address)

    def rows(self) -> Iterator[Row]:
        """Yields all traces, by index, then what no slot leads to by address."""
        claims = self.claims() if self._links.strays else {}
        yield from self._decode(self._by_slot(claims))
        yield from self._decode((None, entry, 0) for entry in self._rest)

    def claims(self) -> Dict[int, int]:
        """Returns index to entry, as chained entries that no slot leads to have it in themselves."""
        found: Dict[int, int] = {}
        for entry in self._rest:
            if self._links.buckets[entry] < 0:
                continue
            head = self._read(self._links.blocks.addresses[entry], self._codec.head_size)
            if head is not None:
                found.setdefault(self._codec.stored_index(head), entry)
        found.pop(0, None)
        return found

    def _by_slot(self, claims: Dict[int, int]) -> Iterator[_Pair]:
        strays = 0
        for run, entries in zip(self._links.slots, self._links.entries):
            if not self._links.strays:
                yield from zip(range(run.first, run.first + len(entries)), entries, run.pointers)
                continue
            for index, (entry, pointer) in enumerate(zip(entries, run.pointers), run.first):
                if entry is None:
                    strays += 1
                    if index in claims or strays > _MAX_STRAYS:
                        continue
                yield index, entry, pointer

    def _decode(self, pairs: Iterable[_Pair]) -> Iterator[Row]:
        codec, links = self._codec, self._links
        addresses, depths, buckets = links.blocks.addresses, links.blocks.depths, links.buckets
        shift, capacities = codec.shift, codec.capacities
        records = {depth: (record.unpack_from, record.size) for depth, record in codec.records.items()}
        mask, most, count = codec.count_mask, codec.saturation or codec.count_mask + 1, self._bucket_count
        wide, skip = codec.wide, 5 if codec.wide else 4
        data, start, size, low = b"", 0, 0, stdentries.HASH_MASK
        # Half the time of Trace(...), which matters for a hundred thousand.
        make = functools.partial(tuple.__new__, Trace)
        for index, entry, pointer in pairs:
            if entry is None:
                yield stdstatus.INDEX, Trace(index, pointer, None, None, None, None, (), "index")
                continue
            address, depth = addresses[entry], depths[entry]
            unpack, length = records.get(depth, _NO_RECORD)
            offset = address - start
            if not 0 <= offset <= size - length:
                start, data = self._memory.run_at(address) or (0, b"")
                size, offset = len(data), address - start
                if offset > size - length:
                    yield self._judge.piecemeal(index, entry)
                    continue
            values = unpack(data, offset)
            frames = values[skip:]
            total = sum(frames) & low
            bucket = total % count
            stored = values[2] << 16 | values[3] if wide else values[2]
            traces = values[1] & mask
            if (
                bucket == buckets[entry]
                and stored == index
                and 0 < traces < most
                and (not shift or depth <= capacities[values[1] >> shift])
            ):
                yield 0, make((stored, address, traces, depth, total, bucket, frames, ""))
            else:
                yield self._judge.row(index, entry, values[1], stored, frames)
