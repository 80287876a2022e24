# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A few traces of a Stack Trace Database by number, without reading the rest of it."""

from __future__ import annotations

from typing import Collection, List, NamedTuple, Optional, Tuple

from ...base.decode.reading import Chunks, Reader
from . import entries
from .bounds import bounds
from .capture import HASH_MASK
from .header import Header
from .judge import Trace

MOST = 64
"""For more than so many it costs less to read the database."""
_LONGEST = 0x1000


class _Entry(NamedTuple):
    chain: int
    word: int
    number: int
    frames: Tuple[int, ...]


class Picker:
    """Looks numbers up as Windows does, and checks the way there.

    Args:
        reader: reads memory
        header: of the database
    """

    def __init__(self, reader: Reader, header: Header) -> None:
        self._header = header
        self._used = bounds(header)
        self._codec = entries.codec(header.layout)
        self._chunks = Chunks(reader)

    def traces(self, indices: Collection[int]) -> Optional[List[Trace]]:
        """Returns the traces with some numbers, in their order.

        Returns:
            None when one of them has no slot, or is not sound: when its slot, its entry, its place in the
            chain of its bucket or what comes before it there is not present or contradicts the rest. What it
            is then only all of the database tells.
        """
        if len(indices) > MOST or not (self._used.lower_known and self._used.upper_known):
            return None
        found = []
        for index in sorted(indices):
            trace = self._trace(index) if self._is_slot(index) else None
            if trace is None:
                return None
            found.append(trace)
        return found

    def _is_slot(self, index: int) -> bool:
        size = self._codec.pointer_size
        return 0 < index <= (self._used.upper_end - self._used.upper_start) // size

    def _trace(self, index: int) -> Optional[Trace]:
        codec = self._codec
        address = self._pointer(self._used.upper_end - index * codec.pointer_size)
        entry = self._entry(address)
        if entry is None or entry.number != (index if codec.wide else index & 0xFFFF):
            return None
        count, total = entry.word & codec.count_mask, sum(entry.frames) & HASH_MASK
        bucket = total % self._header.bucket_count
        if not 0 < count < (codec.saturation or codec.count_mask + 1) or not self._leads(bucket, address):
            return None
        return Trace(index, address, count, len(entry.frames), total, bucket, entry.frames, "")

    def _leads(self, bucket: int, wanted: int) -> bool:
        """Tells whether the chain of a bucket leads to an address, through nothing but entries of its own."""
        address = self._pointer(self._header.buckets + bucket * self._header.bucket_stride)
        seen = {0}
        while address not in seen and len(seen) < _LONGEST:
            if address == wanted:
                return True
            seen.add(address)
            entry = self._entry(address)
            if entry is None or (sum(entry.frames) & HASH_MASK) % self._header.bucket_count != bucket:
                return False
            address = entry.chain
        return False

    def _pointer(self, address: int) -> int:
        """Returns a pointer, 0 where it is not present."""
        data = self._chunks.read(address, self._codec.pointer_size)
        return int.from_bytes(data, "little") if data is not None else 0

    def _entry(self, address: int) -> Optional[_Entry]:
        """Returns the entry at an address if it is all present and possible."""
        codec, used = self._codec, self._used
        within = used.first_entry <= address < used.lower_end
        if not within or (address - used.first_entry) % codec.alignment:
            return None
        head = self._chunks.read(address, codec.head_size)
        if head is None:
            return None
        chain, word, depth = codec.scan.unpack_from(head)
        layout = codec.frames.get(depth)
        data = self._chunks.read(address, layout.size) if layout is not None else None
        if layout is None or data is None or (codec.shift and depth > codec.capacities[word >> codec.shift]):
            return None
        return _Entry(chain, codec.count_word(head), codec.stored_index(head), layout.unpack_from(data))
