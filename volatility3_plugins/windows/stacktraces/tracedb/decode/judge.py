# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decodes damaged and unusual entries of a database, and says what is wrong with them."""

from __future__ import annotations

import bisect
from typing import List, Optional, Tuple

from ...base.decode.record import Record
from . import status as stdstatus
from .capture import back_trace_hash
from .entries import ReadBytes
from .header import Bounds, Header
from .linked import Chain, Links

Frames = Tuple[Optional[int], ...]


class Trace(Record):
    """A back trace, or the rest of a damaged one. A value that is not in the image is None.

    Attributes:
        trace_index: the index by which Windows knows the trace; 0: it has none. It is the position in the
            index array. If no slot leads to the trace, it is the index that the entry itself holds (16 bits
            in 5.x)
        address: of the entry
        trace_count: TraceCount (0x7FF means that or more since 6.0)
        depth: as stored
        hash: sum of the low halves of the frames, as RtlCaptureStackBackTrace returns it
        bucket: the bucket in which that hash belongs
        frames: return addresses, innermost first; None: overwritten, or not present
        status: flags of `tracedb.decode.status`, 0 for a live trace without fault
    """

    trace_index: Optional[int]
    address: int
    trace_count: Optional[int]
    depth: Optional[int]
    hash: Optional[int]
    bucket: Optional[int]
    frames: Tuple[Optional[int], ...]
    status: int


class Judge:
    """Makes traces of entries that are damaged, freed or otherwise special.

    Args:
        header: of the database
        used: its bounds
        links: its entries
        read: any part of the database
    """

    def __init__(self, header: Header, used: Bounds, links: Links, read: ReadBytes) -> None:
        self._header = header
        self._layout = header.layout.entry
        self._slot_count = (used.upper_end - used.upper_start) // self._layout.pointer_size
        self._slots_known = used.upper_known
        self._links = links
        self._read = read

    def row(self, index: Optional[int], entry: int, word: int, stored: int, frames: Frames) -> Trace:
        """Makes a trace of an entry whose Depth may be right.

        Args:
            index: of the slot that leads to the entry, None if no slot does
            entry: its number in the columns of the links
            word: TraceCount as stored, with BlockDepth where they share a word
            stored: the index that the entry itself holds
            frames: as many as its Depth says
        """
        depth, found = len(frames), self._links.buckets[entry]
        total, bucket = self._hash(frames)
        flags = 0
        if found >= 0 and bucket is not None and found != bucket and depth > self._room(entry, word):
            return self.piecemeal(index, entry)
        if depth > self._capacity(word):
            flags |= stdstatus.DEPTH
        return self._finish(index, entry, flags, word, stored, frames, total, bucket)

    def piecemeal(self, index: Optional[int], entry: int) -> Trace:
        """Makes a trace of an entry of which a part is missing, or whose Depth is impossible.

        An impossible Depth is replaced by one with which the hash of the frames fits the chain that leads to
        the entry. If there is none, all frames are taken for which the block has room.
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
        for fitting in range(room, 0, -1):
            total, bucket = self._hash(frames[:fitting])
            if bucket is not None and bucket == self._links.buckets[entry]:
                if layout.shift and not frames[fitting - 1]:
                    # Block sizes are rounded up: a 0 at the end was probably never written.
                    continue
                return self._finish(
                    index, entry, stdstatus.DEPTH, word, stored, frames[:fitting], total, bucket
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
        layout, links = self._layout, self._links
        found, count = links.buckets[entry], word & layout.count_mask
        if count == layout.saturation and count:
            flags |= stdstatus.SATURATED
        if None in frames:
            flags |= stdstatus.UNREADABLE
        if found < 0 and not count and layout.overwritten >= 0:
            flags |= stdstatus.FREED
            lost = min(layout.overwritten, len(frames))
            frames, total, bucket = (None,) * lost + frames[lost:], None, None
        elif found < 0 and index is None:
            flags |= stdstatus.ORPHAN
        elif bucket is not None and found != bucket:
            if found >= 0 or links.chains[bucket] != Chain.UNREADABLE:
                flags |= stdstatus.BUCKET
        flags |= self._index_flags(index, stored, flags)
        number = stored if index is None else index
        address, depth = links.blocks.addresses[entry], links.blocks.depths[entry]
        return Trace(number, address, count, depth, total, bucket, frames, flags)

    def _index_flags(self, index: Optional[int], stored: int, flags: int) -> int:
        """Compares the index that an entry holds with its place in the index array."""
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
        present = [frame for frame in frames if frame is not None]
        if not present or len(present) < len(frames):
            return None, None
        return back_trace_hash(present), self._header.bucket_of(present)

    def _frames(self, address: int, depth: int) -> Frames:
        start, size = address + self._layout.head_size, self._layout.pointer_size
        frames: List[Optional[int]] = []
        for number in range(depth):
            frame = self._read(start + number * size, size)
            frames.append(int.from_bytes(frame, "little") if frame is not None else None)
        return tuple(frames)

    def _capacity(self, word: int) -> int:
        layout = self._layout
        return (
            min(layout.capacities[word >> layout.shift], layout.max_depth)
            if layout.shift
            else layout.max_depth
        )

    def _room(self, entry: int, word: int) -> int:
        """Returns how many frames an entry has room for, up to the end of its block or to the next entry."""
        layout, links = self._layout, self._links
        if layout.shift:
            return self._capacity(word)
        addresses, walked = links.blocks.addresses, links.walked
        following = bisect.bisect_right(addresses, addresses[entry], 0, walked)
        if following == walked:
            return layout.max_depth
        gap = addresses[following] - addresses[entry] - layout.head_size
        return min(max(gap // layout.pointer_size, 0), layout.max_depth)
