# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decodes damaged and unusual entries of a database, and classifies their faults.

`IndexLookup` looks up a few traces by number, without reading the rest of the database.
"""

from __future__ import annotations

import bisect
from typing import Collection, List, Optional, Tuple

from ...columns.words import STD
from ...memory.decode.memory import WINDOW, Memory, Reader, ReadWindows
from ...memory.decode.records import NamedTuple
from . import status as stdstatus
from .blocks import Frames, ReadBytes, StdEntry, read_entry, read_frames
from .capture import back_trace_hash, known_hash
from .header import Bounds, Header, bounds
from .linked import Chain, Links
from .recorded import RecordedStack


class Trace(NamedTuple):
    """A back trace, or the remains of a damaged one. A value that is not in the image is None.

    Attributes:
        trace_index: position of the trace in the index array. If no slot leads to the trace, the index that
            the entry itself holds (16 bits in 5.x), 0 for none
        trace_count: TraceCount as stored. Since 6.0, 0x7FF means 0x7FF or more
        hash: 32-bit sum of the frames, as RtlCaptureStackBackTrace returns it; of a heap log's record, the
            hash as stored
        bucket: bucket in which the hash belongs; of a heap log's record, the bucket that leads to the record
        frames: return addresses, innermost first; None for an address that is overwritten or not present
        status: flags of `tracedb.decode.status`, 0 for a live trace without fault
    """

    trace_index: Optional[int]
    address: int
    trace_count: Optional[int]
    depth: Optional[int]
    hash: Optional[int]
    bucket: Optional[int]
    frames: Frames
    status: int

    def recorded(self, max_depth: int) -> RecordedStack:
        """Returns the recorded stack of a trace in a database."""
        statuses, full = stdstatus.status_of(self.status), len(self.frames) >= max_depth
        return RecordedStack(STD, self.address, self.trace_index or 0, self.frames, statuses, full)


class TraceClassifier:
    """Decodes entries that are damaged, freed or otherwise special, and sets the flags of their status."""

    def __init__(self, header: Header, used: Bounds, links: Links, read: ReadBytes) -> None:
        self._header = header
        self._layout = header.layout.entry
        self._slot_count = (used.upper_end - used.upper_start) // self._layout.pointer_size
        self._slots_known = used.upper_known
        self._links = links
        self._read = read

    def classify(self, index: Optional[int], entry: int, word: int, stored: int, frames: Frames) -> Trace:
        """Returns the trace of an entry whose Depth may be right.

        Args:
            index: index of the slot that leads to the entry, None if no slot does
            entry: row of the entry in the columns of the links
            word: TraceCount as stored, with BlockDepth if they share a word
        """
        depth, chained_bucket = len(frames), self._links.buckets[entry]
        total, bucket = self._hash(frames)
        flags = 0
        if (
            chained_bucket >= 0
            and bucket is not None
            and chained_bucket != bucket
            and depth > self._room(entry, word)
        ):
            return self.classify_damaged(index, entry)
        if depth > self._capacity(word):
            flags |= stdstatus.DEPTH
        return self._finish(index, entry, flags, word, stored, frames, total, bucket)

    def classify_damaged(self, index: Optional[int], entry: int) -> Trace:
        """Returns the trace of an entry that lacks a part, or whose Depth is impossible.

        An impossible Depth is replaced by the greatest depth with which the hash of the frames fits the chain
        that leads to the entry. If no depth fits, the trace has as many frames as the block has room for.
        """
        layout, address = self._layout, self._links.blocks.addresses[entry]
        head = self._read(address, layout.head_size)
        if head is None:
            return Trace(index, address, None, None, None, None, (), stdstatus.UNREADABLE)
        word, stored = layout.count_word(head), layout.stored_index(head)
        depth, room = self._links.blocks.depths[entry], self._room(entry, word)
        if 0 < depth <= room:
            frames = self._frames(address, depth)
            total, bucket = self._hash(frames)
            return self._finish(index, entry, 0, word, stored, frames, total, bucket)
        frames = self._frames(address, room)
        for likely_depth in range(room, 0, -1):
            total, bucket = self._hash(frames[:likely_depth])
            if bucket is not None and bucket == self._links.buckets[entry]:
                if layout.shift and not frames[likely_depth - 1]:
                    # Block sizes are rounded up: a 0 at the end was probably never written.
                    continue
                return self._finish(
                    index, entry, stdstatus.DEPTH, word, stored, frames[:likely_depth], total, bucket
                )
        return self._finish(index, entry, stdstatus.DEPTH, word, stored, frames, None, None)

    def _finish(
        self,
        index: Optional[int],
        entry: int,
        flags: int,
        word: int,
        stored: int,
        frames: Frames,
        total: Optional[int],
        bucket: Optional[int],
    ) -> Trace:
        """Returns the trace, with the flags for its count, its frames, its chain and its index added.

        Args:
            total: hash of the frames, None if a frame is missing
            bucket: bucket in which the hash belongs, None if the hash is unknown
        """
        layout, links = self._layout, self._links
        chained_bucket, count = links.buckets[entry], word & layout.count_mask
        if count == layout.saturation and count:
            flags |= stdstatus.SATURATED
        if None in frames:
            flags |= stdstatus.UNREADABLE
        if chained_bucket < 0 and not count and layout.overwritten >= 0:
            flags |= stdstatus.FREED
            overwritten = min(layout.overwritten, len(frames))
            frames, total, bucket = (None,) * overwritten + frames[overwritten:], None, None
        elif chained_bucket < 0 and index is None:
            flags |= stdstatus.ORPHAN
        elif bucket is not None and chained_bucket != bucket:
            if chained_bucket >= 0 or links.chains[bucket] != Chain.UNREADABLE:
                flags |= stdstatus.BUCKET
        flags |= self._index_flags(index, stored, flags)
        number = stored if index is None else index
        address, depth = links.blocks.addresses[entry], links.blocks.depths[entry]
        return Trace(number, address, count, depth, total, bucket, frames, flags)

    def _index_flags(self, index: Optional[int], stored: int, flags: int) -> int:
        """Returns the flags for a contradiction between the index that an entry holds and its slot."""
        wide = self._layout.wide
        if index is not None:
            return 0 if self._layout.is_index(stored, index) else stdstatus.INDEX
        if not stored and wide:
            return 0 if flags & (stdstatus.FREED | stdstatus.ORPHAN) else stdstatus.UNINDEXED
        if not wide and self._slot_count > 0xFFFF:
            return stdstatus.INDEX
        beyond = self._slots_known and stored > self._slot_count
        return stdstatus.INDEX if beyond or self._links.slot_present(stored) else 0

    def _hash(self, frames: Frames) -> Tuple[Optional[int], Optional[int]]:
        """Returns hash and bucket of the frames, or (None, None) if a frame is missing."""
        total = known_hash(frames)
        return total, None if total is None else total % self._header.bucket_count

    def _frames(self, address: int, depth: int) -> Frames:
        layout = self._layout
        return read_frames(self._read, address + layout.head_size, depth, layout.pointer_size)

    def _capacity(self, word: int) -> int:
        """Returns the most frames of an entry: by its BlockDepth, or by the declaration of BackTrace."""
        layout = self._layout
        return (
            min(layout.capacities[word >> layout.shift], layout.max_depth)
            if layout.shift
            else layout.max_depth
        )

    def _room(self, entry: int, word: int) -> int:
        """Returns for how many frames an entry has room: up to the end of its block, or to the next entry."""
        layout, links = self._layout, self._links
        if layout.shift:
            return self._capacity(word)
        addresses, walked = links.blocks.addresses, links.walked
        following = bisect.bisect_right(addresses, addresses[entry], 0, walked)
        if following == walked:
            return layout.max_depth
        gap = addresses[following] - addresses[entry] - layout.head_size
        return min(max(gap // layout.pointer_size, 0), layout.max_depth)


MOST = 64
"""The most traces that are looked up one by one: for more, reading the whole database takes less time."""
_LONGEST = 0x1000
"""The most entries of a chain that are followed."""


class IndexLookup:
    """Looks up traces by index as Windows does, and checks each structure on the way."""

    def __init__(self, reader: Reader, header: Header) -> None:
        self._header = header
        self._used = bounds(header)
        self._layout = header.layout.entry
        self._memory = Memory(ReadWindows(reader, WINDOW), header.layout.pointer_size)

    def traces(self, indices: Collection[int]) -> Optional[List[Trace]]:
        """Returns the traces with some indices, in the order of the indices; None if an index has no slot, or
        if its slot, its entry, or the part of the bucket's chain up to the entry is missing or contradicts
        the others: such a trace can be judged only after the whole database has been read."""
        if len(indices) > MOST or not (self._used.lower_known and self._used.upper_known):
            return None
        traces = []
        for index in sorted(indices):
            trace = self._trace(index) if self._is_slot(index) else None
            if trace is None:
                return None
            traces.append(trace)
        return traces

    def _is_slot(self, index: int) -> bool:
        slots = (self._used.upper_end - self._used.upper_start) // self._layout.pointer_size
        return 0 < index <= slots

    def _trace(self, index: int) -> Optional[Trace]:
        layout = self._layout
        address = self._memory.pointer(self._used.upper_end - index * layout.pointer_size) or 0
        entry = self._entry(address)
        if entry is None or not layout.is_index(entry.number, index):
            return None
        count, total = entry.word & layout.count_mask, back_trace_hash(entry.frames)
        bucket = self._header.bucket_of(entry.frames)
        if not 0 < count < (layout.saturation or layout.count_mask + 1) or not self._chain_leads_to(
            bucket, address
        ):
            return None
        return Trace(index, address, count, len(entry.frames), total, bucket, entry.frames, 0)

    def _chain_leads_to(self, bucket: int, target: int) -> bool:
        """Returns whether a bucket's chain leads to an address by entries that all belong in the bucket."""
        address = self._memory.pointer(self._header.buckets + bucket * self._header.bucket_stride) or 0
        visited = {0}
        while address not in visited and len(visited) < _LONGEST:
            if address == target:
                return True
            visited.add(address)
            entry = self._entry(address)
            if entry is None or self._header.bucket_of(entry.frames) != bucket:
                return False
            address = entry.chain
        return False

    def _entry(self, address: int) -> Optional[StdEntry]:
        """Returns the entry at an address if all of it is present and plausible."""
        used, layout = self._used, self._layout
        within = used.first_entry <= address < used.lower_end
        if not within or (address - used.first_entry) % layout.alignment:
            return None
        entry = read_entry(layout, self._memory.read, address)
        return entry if entry is not None and layout.fits(entry.word, len(entry.frames)) else None
