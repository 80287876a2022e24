# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Back traces from the linked entries of a database, each with what is special or wrong about it."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from . import stdentries, stdstatus
from .extents import Extents
from .stdbounds import Bounds
from .stdheader import Header
from .stdlinks import Chain, Links, ReadBytes

_MAX_STRAYS = 1000
_Pair = Tuple[Optional[int], Optional[int], int]


class Trace(NamedTuple):
    """A back trace, or what is left of it. What is not present is None.

    Attributes:
        trace_index: number by which Windows knows it, 0: none. It comes from the position in the index array;
            what no slot leads to has the number that the entry itself holds (16 bits in 5.x)
        address: of the entry
        trace_count: TraceCount (0x7FF means that or more since 6.0)
        depth: as stored
        hash: sum of the low halves of the frames, as RtlCaptureStackBackTrace returns it
        bucket: the bucket in which that hash belongs
        frames: return addresses, innermost first; None: overwritten, or not present
        status: in the words of `stdstatus`
    """

    trace_index: Optional[int]
    address: int
    trace_count: Optional[int]
    depth: Optional[int]
    hash: Optional[int]
    bucket: Optional[int]
    frames: Tuple[Optional[int], ...]
    status: str


Row = Tuple[int, Trace]
"""A trace, and its status as flags."""


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
        self._slot_count = (used.upper_end - used.upper_start) // self._codec.pointer_size
        self._slots_known = used.upper_known
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
            head = self._read(self._links.blocks.addresses[entry], self._codec.head_size)
            if head is not None and self._links.buckets[entry] >= 0:
                found.setdefault(self._codec.stored_index(head), entry)
        found.pop(0, None)
        return found

    def _by_slot(self, claims: Dict[int, int]) -> Iterator[_Pair]:
        strays = 0
        for run, entries in zip(self._links.slots, self._links.entries):
            for index, (entry, pointer) in enumerate(zip(entries, run.pointers), run.first):
                if entry is None:
                    strays += 1
                    if index in claims or strays > _MAX_STRAYS:
                        continue
                yield index, entry, pointer

    def _decode(self, pairs: Iterable[_Pair]) -> Iterator[Row]:
        codec, links = self._codec, self._links
        addresses, depths, buckets = links.blocks.addresses, links.blocks.depths, links.buckets
        records, shift, capacities = codec.records, codec.shift, codec.capacities
        mask, most, count = codec.count_mask, codec.saturation or codec.count_mask + 1, self._bucket_count
        wide, skip = codec.wide, 5 if codec.wide else 4
        data, start, size = b"", 0, 0
        for index, entry, pointer in pairs:
            if entry is None:
                yield stdstatus.INDEX, Trace(index, pointer, None, None, None, None, (), "index")
                continue
            address, depth = addresses[entry], depths[entry]
            record = records.get(depth)
            offset = address - start
            if record is None or offset < 0 or offset + record.size > size:
                run = self._memory.run_at(address)
                start, data = run or (0, b"")
                size, offset = len(data), address - start
                if record is None or offset + record.size > size:
                    yield self._damaged(index, entry)
                    continue
            values = record.unpack_from(data, offset)
            frames = values[skip:]
            total = sum(frames) & 0xFFFFFFFF
            bucket = total % count
            stored = values[2] << 16 | values[3] if wide else values[2]
            traces = values[1] & mask
            if (
                bucket == buckets[entry]
                and stored == index
                and 0 < traces < most
                and (not shift or depth <= capacities[values[1] >> shift])
            ):
                yield 0, Trace(stored, address, traces, depth, total, bucket, frames, "")
            else:
                yield self._judged(index, entry, values[1], stored, frames)

    def _damaged(self, index: Optional[int], entry: int) -> Row:
        """Decodes an entry frame by frame: it is not all present, or its Depth is nonsense."""
        codec, address = self._codec, self._links.blocks.addresses[entry]
        head = self._read(address, codec.head_size)
        if head is None:
            status = stdstatus.text(stdstatus.UNREADABLE)
            return stdstatus.UNREADABLE, Trace(index, address, None, None, None, None, (), status)
        word, stored = codec.count_word(head), codec.stored_index(head)
        depth = self._links.blocks.depths[entry]
        if depth > codec.max_depth:
            depth = min(codec.capacities[word >> codec.shift] if codec.shift else depth, codec.max_depth)
        frames: List[Optional[int]] = []
        for number in range(depth):
            frame = self._read(address + codec.head_size + number * codec.pointer_size, codec.pointer_size)
            frames.append(int.from_bytes(frame, "little") if frame is not None else None)
        return self._judged(index, entry, word, stored, tuple(frames))

    def _judged(
        self, index: Optional[int], entry: int, word: int, stored: int, frames: Tuple[Optional[int], ...]
    ) -> Row:
        """Makes a trace of an entry that may have something special or wrong about it."""
        codec, links = self._codec, self._links
        depth, found, count = links.blocks.depths[entry], links.buckets[entry], word & codec.count_mask
        capacity = codec.capacities[word >> codec.shift] if codec.shift else codec.max_depth
        flags = 0
        if count == codec.saturation and count:
            flags |= stdstatus.SATURATED
        if not 0 < depth <= min(capacity, codec.max_depth):
            flags |= stdstatus.DEPTH
        if None in frames:
            flags |= stdstatus.UNREADABLE
        total: Optional[int] = None
        bucket: Optional[int] = None
        if not flags & stdstatus.UNREADABLE and depth == len(frames):
            total = sum(frame or 0 for frame in frames) & stdentries.HASH_MASK
            bucket = total % self._bucket_count
        if found < 0 and not count and codec.overwritten >= 0:
            flags |= stdstatus.FREED
            lost = min(codec.overwritten, len(frames))
            frames, total, bucket = (None,) * lost + frames[lost:], None, None
        elif found < 0 and index is None:
            flags |= stdstatus.ORPHAN
        elif bucket is not None and found != bucket:
            if found >= 0 or links.chains[bucket] != Chain.UNREADABLE:
                flags |= stdstatus.BUCKET
        flags |= self._index_flags(index, stored, flags)
        number = stored if index is None else index
        address = links.blocks.addresses[entry]
        return flags, Trace(number, address, count, depth, total, bucket, frames, stdstatus.text(flags))

    def _index_flags(self, index: Optional[int], stored: int, flags: int) -> int:
        """Compares the number that an entry holds with its place in the index array."""
        wide = self._codec.wide
        if index is not None:
            return stdstatus.INDEX if stored != (index if wide else index & 0xFFFF) else 0
        if not stored and wide:
            return 0 if flags & (stdstatus.FREED | stdstatus.ORPHAN) else stdstatus.UNINDEXED
        if not wide and self._slot_count > 0xFFFF:
            return stdstatus.INDEX
        beyond = self._slots_known and stored > self._slot_count
        return stdstatus.INDEX if beyond or self._links.slot_present(stored) else 0
