# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decodes the back traces of a database from its entries, with the properties and faults of each."""

from __future__ import annotations

import struct
import sys
from itertools import chain, compress, count
from operator import not_
from typing import Dict, Iterable, Iterator, Optional, Tuple

from ...memory.decode.ranges import Extents
from . import status
from .anomalies import Trace, TraceClassifier
from .blocks import ReadBytes
from .capture import HASH_MASK
from .header import Bounds, Header
from .linked import Links

_MAX_STRAYS = 1000
"""The most index slots without an entry that become traces."""
_NO_FRAMES = (struct.Struct("").unpack_from, sys.maxsize)
"""Unpacker and length for an impossible Depth: no memory is that long, so the entry is decoded piecemeal."""
_Pair = Tuple[Optional[int], Optional[int], int]
"""Index of a slot (None without a slot), its entry (None if it leads to none), and its pointer."""


class TraceDecoder:
    """Decodes the entries in `Links`: sound ones here, all others by `TraceClassifier`. `memory` is the
    database from its header to the lower watermark, read in bulk."""

    def __init__(self, header: Header, used: Bounds, links: Links, memory: Extents, read: ReadBytes) -> None:
        self._layout = header.layout.entry
        self._bucket_count = header.bucket_count
        self._classifier = TraceClassifier(header, used, links, read)
        self._links = links
        self._memory = memory
        self._read = read
        by_address = links.blocks.addresses.__getitem__
        self._rest = sorted(compress(range(len(links.linked)), map(not_, links.linked)), key=by_address)

    def traces(self, hidden: int = 0) -> Iterator[Trace]:
        """Yields the traces by index, then the traces without a slot by address. `hidden` are flags of
        `status`; traces with one of these flags are left out."""
        pairs = self._credible_slots(self.claims()) if self._links.strays else self._all_slots()
        rest = ((None, entry, 0) for entry in self._rest)
        return chain(self._decode(pairs, hidden), self._decode(rest, hidden))

    def unlisted(self) -> int:
        """Returns the number of slots without an entry that `traces` omits: it yields the first thousand."""
        if self._links.strays <= _MAX_STRAYS:
            return 0
        claims = self.claims()
        strays = sum(
            entry is None and index not in claims
            for run, entries in zip(self._links.slots, self._links.entries)
            for index, entry in enumerate(entries, run.first)
        )
        return max(strays - _MAX_STRAYS, 0)

    def claims(self) -> Dict[int, int]:
        """Returns the entries that are in a chain but have no slot, by the index that they hold."""
        entries: Dict[int, int] = {}
        for entry in self._rest:
            if self._links.buckets[entry] < 0:
                continue
            head = self._read(self._links.blocks.addresses[entry], self._layout.head_size)
            if head is not None:
                entries.setdefault(self._layout.stored_index(head), entry)
        entries.pop(0, None)
        return entries

    def _all_slots(self) -> Iterator[_Pair]:
        """Returns the slots by index. Used if each slot leads to an entry."""
        runs = zip(self._links.slots, self._links.entries)
        return chain.from_iterable(zip(count(run.first), entries, run.pointers) for run, entries in runs)

    def _credible_slots(self, claims: Dict[int, int]) -> Iterator[_Pair]:
        """Yields the slots by index. A slot without an entry is left out if an entry in `claims` has its
        index, or if there have been _MAX_STRAYS such slots."""
        strays_left = _MAX_STRAYS
        for run, entries in zip(self._links.slots, self._links.entries):
            for index, (entry, pointer) in enumerate(zip(entries, run.pointers), run.first):
                if entry is None:
                    if index in claims or not strays_left:
                        continue
                    strays_left -= 1
                yield index, entry, pointer

    def _decode(self, pairs: Iterable[_Pair], hidden: int) -> Iterator[Trace]:
        """Yields the trace of each pair, without traces that have a flag in `hidden`."""
        layout, links = self._layout, self._links
        addresses, depths, buckets = links.blocks.addresses, links.blocks.depths, links.buckets
        shift, capacities = layout.shift, layout.capacities
        by_depth = [_NO_FRAMES] * (layout.max_depth + 1)
        for depth, frames_struct in layout.frames.items():
            by_depth[depth] = frames_struct.unpack_from, frames_struct.size
        marks, wide = layout.marks, layout.wide
        mask, most, modulus = (
            layout.count_mask,
            layout.saturation or layout.count_mask + 1,
            self._bucket_count,
        )
        data, start, size, low, deepest = b"", 0, 0, HASH_MASK, layout.max_depth
        # This takes half the time of Trace(...), which matters for a hundred thousand traces.
        make = tuple.__new__
        for index, entry, pointer in pairs:
            if entry is None:
                yield Trace(index, pointer, None, None, None, None, (), status.INDEX)
                continue
            address, depth = addresses[entry], depths[entry]
            unpack, length = by_depth[depth if 0 < depth <= deepest else 0]
            offset = address - start
            if not 0 <= offset <= size - length:
                start, data = self._memory.run_at(address) or (0, b"")
                size, offset = len(data), address - start
                if offset > size - length:
                    trace = self._classifier.classify_damaged(index, entry)
                    if not trace.status & hidden:
                        yield trace
                    continue
            frames = unpack(data, offset)
            values = marks(data, offset)
            total = sum(frames) & low
            bucket = total % modulus
            stored = values[1] << 16 | values[2] if wide else values[1]
            traces = values[0] & mask
            if (
                bucket == buckets[entry]
                and stored == index
                and 0 < traces < most
                and (not shift or depth <= capacities[values[0] >> shift])
            ):
                yield make(Trace, (stored, address, traces, depth, total, bucket, frames, 0))
            else:
                trace = self._classifier.classify(index, entry, values[0], stored, frames)
                if not trace.status & hidden:
                    yield trace
