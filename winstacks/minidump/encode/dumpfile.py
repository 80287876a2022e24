# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the file of a minidump: header, directory, streams, and the memory after them.

    draft = Draft(TimeDateStamp, Flags)
    draft.stream("SystemInfoStream", data)
    head = draft.head(ranges)          # all bytes before the memory, whose bytes follow in order

Streams come first because their RVAs have 32 bits. The memory comes last and may have any length; it begins
at a multiple of the page size, so that pages of zeros need no space on the disk.

Source of the layouts: Microsoft, "minidumpapiset.h", see `decode/dumpfile`.
"""

from __future__ import annotations

import array
import sys
from typing import Any, Dict, Iterable, List, Optional

from ...memory.decode.declared import Declared, Record
from ...memory.decode.records import NamedTuple
from ..decode.dumpfile import DIRECTORY, HEADER, SIGNATURE, STREAMS, VERSION, DumpHeader, Location, Stream
from ..decode.lists import COUNT, LIST_HEADER, Count, ListHeader
from ..decode.memory import MEMORY64_LIST, Memory64List

PAGE = 0x1000
_ALIGNMENT = 8
_LAST_RVA = (1 << 32) - 1
_LONGEST = 0xFFFE
"""Greatest size of the text of a MINIDUMP_STRING in bytes: no UNICODE_STRING is longer."""
_NUMBERS = {name: number for number, name in STREAMS.items()}


class MemoryPart(NamedTuple):
    """A range of the memory to which a structure of a stream refers.

    Attributes:
        position: file offset of the structure's 32-bit RVA
        start: offset from the first byte of the memory
    """

    position: int
    start: int
    size: int


class Draft:
    """Collects the bytes before the memory of a dump. `names` are the streams to come, in the order of the
    directory."""

    def __init__(self, time_date_stamp: int, flags: int, names: Iterable[str]) -> None:
        self._places: Dict[str, int] = {name: place for place, name in enumerate(names)}
        self._data = bytearray(HEADER.size + DIRECTORY.size * len(self._places))
        self._strings: Dict[str, int] = {}
        self._parts: List[MemoryPart] = []
        count = len(self._places)
        header = DumpHeader(SIGNATURE, VERSION, count, HEADER.size, 0, time_date_stamp, flags)
        self._overwrite(0, HEADER.encode(header))

    def put(self, data: bytes) -> int:
        """Adds bytes, and returns their RVA."""
        self._data += bytes(-len(self._data) % _ALIGNMENT)
        rva = len(self._data)
        self._data += data
        return rva

    def string(self, text: Optional[str]) -> int:
        """Adds a MINIDUMP_STRING, equal texts once, and returns its RVA; 0 for None."""
        if text is None:
            return 0
        rva = self._strings.get(text)
        if rva is None:
            data = text.encode("utf-16-le", "replace")[:_LONGEST]
            rva = self._strings[text] = self.put(COUNT.encode(Count(len(data))) + data + b"\0\0")
        return rva

    def stream(self, name: str, data: bytes, parts: Iterable[MemoryPart] = ()) -> Location:
        """Adds a stream. Returns the file range of the stream. `parts` are the ranges of memory to which it
        refers; `position` counts from the start of the stream."""
        rva = self.put(data)
        stream = Stream(_NUMBERS[name], Location(len(data), rva))
        self._overwrite(HEADER.size + DIRECTORY.size * self._places[name], DIRECTORY.encode(stream))
        self._parts += [part._replace(position=rva + part.position) for part in parts]
        return stream.Location

    def headed_list(
        self,
        name: str,
        form: Declared[Record],
        records: Iterable[Record],
        header: Declared[Any] = LIST_HEADER,
    ) -> int:
        """Adds a stream that is a list with a header, and returns the number of its entries."""
        data, count = bytearray(header.size), 0
        for record in records:
            data += form.encode(record, self.string)
            count += 1
        data[: header.size] = header.encode(ListHeader(header.size, form.size, count))
        self.stream(name, bytes(data))
        return count

    def _overwrite(self, rva: int, data: bytes) -> None:
        self._data[rva : rva + len(data)] = data

    def head(self, ranges: array.array[int]) -> bytearray:
        """Adds Memory64ListStream, and returns all bytes before the memory. `ranges` has the start and size
        of each range, alternating, ascending."""
        rows, count = array.array(ranges.typecode, ranges), len(ranges) // 2
        if sys.byteorder == "big":
            rows.byteswap()
        data = MEMORY64_LIST.encode(Memory64List(count, 0)) + rows.tobytes()
        stream = self.stream("Memory64ListStream", data)
        self._data += bytes(-len(self._data) % PAGE)
        base = len(self._data)
        self._overwrite(stream.Rva, MEMORY64_LIST.encode(Memory64List(count, base)))
        for part in self._parts:
            rva = base + part.start
            # Beyond the 32 bits of an RVA, readers find the range by its address.
            self._overwrite(part.position, COUNT.encode(Count(rva if rva + part.size <= _LAST_RVA else 0)))
        return self._data


def encode_counted_list(rows: Iterable[bytes]) -> bytes:
    """Returns a stream that is a 32-bit count and an array, such as ThreadListStream."""
    found = list(rows)
    return COUNT.encode(Count(len(found))) + b"".join(found)
