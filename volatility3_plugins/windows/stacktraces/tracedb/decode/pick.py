# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A few traces of a Stack Trace Database by number, without reading the rest of it."""

from __future__ import annotations

from typing import Collection, List, Optional

from ...base.decode.memory import WINDOW, Memory, Reader, Windows
from .capture import back_trace_hash
from .entries import StdEntry, read_entry
from .header import Header, bounds
from .judge import Trace

MOST = 64
"""The most traces that are looked up: for more it takes less time to read the whole database."""
_LONGEST = 0x1000


class Picker:
    """Looks up traces by index as Windows does, and checks everything on the way.

    Args:
        reader: reads memory
        header: of the database
    """

    def __init__(self, reader: Reader, header: Header) -> None:
        self._header = header
        self._used = bounds(header)
        self._layout = header.layout.entry
        self._memory = Memory(Windows(reader, WINDOW), header.layout.pointer_size)

    def traces(self, indices: Collection[int]) -> Optional[List[Trace]]:
        """Returns the traces with some indices, in the order of the indices.

        Returns:
            None if one of them has no slot, or is not sound: its slot, its entry, or its bucket's chain up to
            it is missing or contradicts the rest. Then the whole database must be read to tell what it is.
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
        if not 0 < count < (layout.saturation or layout.count_mask + 1) or not self._leads(bucket, address):
            return None
        return Trace(index, address, count, len(entry.frames), total, bucket, entry.frames, 0)

    def _leads(self, bucket: int, wanted: int) -> bool:
        """Tells whether the chain of a bucket leads to an address, and all entries before it belong there."""
        address = self._memory.pointer(self._header.buckets + bucket * self._header.bucket_stride) or 0
        seen = {0}
        while address not in seen and len(seen) < _LONGEST:
            if address == wanted:
                return True
            seen.add(address)
            entry = self._entry(address)
            if entry is None or self._header.bucket_of(entry.frames) != bucket:
                return False
            address = entry.chain
        return False

    def _entry(self, address: int) -> Optional[StdEntry]:
        """Returns the entry at an address if all of it is present and it can be one."""
        used, layout = self._used, self._layout
        within = used.first_entry <= address < used.lower_end
        if not within or (address - used.first_entry) % layout.alignment:
            return None
        entry = read_entry(layout, self._memory.read, address)
        return entry if entry is not None and layout.fits(entry.word, len(entry.frames)) else None
