# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The function table of an ARM64 image: entries of 8 bytes, whose unwind data has the length of the piece.

An entry has BeginAddress and UnwindData. The length of a piece is in UnwindData, or in the first word of the
record to which it leads. So an end is computed when it is first needed. A piece whose record is unreadable
counts up to the next entry: then the entry is found, and its record is unreadable.

Source: Microsoft, "ARM64 exception handling"; measured for branch islands (`unwind_arm64.ISLAND`).
"""

from __future__ import annotations

import bisect
from array import array
from typing import Dict, List, Optional, Sequence, Tuple, Union, overload

from ...memory.decode.statuscodes import StatusCode
from .functiontable import END_OF_IMAGE, Columns, FunctionTable, is_sorted
from .unwind_arm64 import (
    FLAG_MASK,
    INSTRUCTION,
    ISLAND,
    UnwindRecord,
    full_length,
    packed_length,
    read_record,
    record_length,
)
from .unwindinfo import ReadRva, RuntimeFunction, UnwindDataError, UnwindInfo, need

ISLAND_SIZE = 3 * INSTRUCTION
"""Bytes of a branch island: adrp, add, br."""


class _Ends(Sequence[int]):
    """The RVA behind each piece, computed when it is needed."""

    def __init__(self, begins: Sequence[int], unwinds: Sequence[int], read_rva: ReadRva) -> None:
        self._begins = begins
        self._unwinds = unwinds
        self._read_rva = read_rva
        self._known: Dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._begins)

    @overload
    def __getitem__(self, position: int) -> int: ...

    @overload
    def __getitem__(self, position: slice) -> List[int]: ...

    def __getitem__(self, position: Union[int, slice]) -> Union[int, List[int]]:
        if isinstance(position, slice):
            return [self[number] for number in range(*position.indices(len(self)))]
        if position < 0:
            position += len(self)
        end = self._known.get(position)
        if end is None:
            end = self._known[position] = self._computed(position)
        return end

    def _computed(self, position: int) -> int:
        begin, unwind = self._begins[position], self._unwinds[position]
        following = self._begins[position + 1] if position + 1 < len(self) else END_OF_IMAGE
        flag = unwind & FLAG_MASK
        if flag == ISLAND:
            return min(begin + ISLAND_SIZE, following)
        length = packed_length(unwind) if flag else full_length(self._read_rva, unwind)
        return following if length is None else min(begin + length, following)


class FunctionTableArm64(FunctionTable):
    """The entries of an ARM64 image by RVA, with access to their unwind data.

    `RuntimeFunction.unwind` is the second word of an entry, with its flag. The methods of chained unwind data
    of x64 have no use here: `record` returns the whole unwind data of a piece.
    """

    __slots__ = ()

    ENTRY_SIZE = 8

    @staticmethod
    def _columns(words: array[int], read_rva: ReadRva) -> Columns:
        """Returns the entries with a BeginAddress, ascending; of equal ones the first counts."""
        begins, unwinds = words[0::2], words[1::2]
        if not is_sorted(begins) or begins[:1] == array("I", [0]):
            first = dict(zip(reversed(begins), reversed(unwinds)))
            first.pop(0, None)
            begins = array("I", sorted(first))
            unwinds = array("I", map(first.__getitem__, begins))
        return begins, _Ends(begins, unwinds, read_rva), unwinds

    @property
    def records(self) -> Sequence[int]:
        """The RVAs of the full records."""
        return [unwind for unwind in self._unwinds if not unwind & FLAG_MASK]

    def record_length(self, unwind: int) -> int:
        """Returns how many bytes of a full record are read."""
        return record_length(self.read_rva, unwind)

    def record(self, entry: RuntimeFunction) -> UnwindRecord:
        """Returns the unwind data of an entry that is no island. Raises UnwindDataError if the record is
        unreadable or invalid."""
        record: Optional[UnwindRecord] = self._kept.get(entry.unwind)
        if record is None:
            record = read_record(self.read_rva, entry.unwind)
            self._kept.keep(entry.unwind, record, len(record.codes) + 1)
        return record

    def gap_around(self, rva: int) -> Tuple[int, int]:
        """Returns the RVAs between two pieces that surround an RVA in no piece."""
        position = bisect.bisect_right(self._begins, rva)
        low = self._ends[position - 1] if position else 0
        return low, self._begins[position] if position < len(self) else END_OF_IMAGE

    def may_be_moved(self, position: int) -> bool:
        """Returns False: an entry does not lead to the function that it is a part of."""
        return False

    def direct(self, entry: RuntimeFunction) -> RuntimeFunction:
        """Returns the entry to which an island leads, or the entry itself if it is none. Raises
        UnwindDataError if the table has no such entry, or that is an island, too."""
        if entry.unwind & FLAG_MASK != ISLAND:
            return entry
        begin = int.from_bytes(need(self.read_rva, entry.unwind & ~FLAG_MASK, INSTRUCTION), "little")
        position = bisect.bisect_left(self._begins, begin)
        if position < len(self) and self._begins[position] == begin:
            found = self.entry(position)
            if found.unwind & FLAG_MASK != ISLAND:
                return found
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)

    def primary(self, entry: RuntimeFunction) -> Optional[RuntimeFunction]:
        """Returns an entry, or the entry to which an island leads, if a function begins there; None for
        another part of a function."""
        try:
            found = self.direct(entry)
            return found if self.record(found).whole else None
        except UnwindDataError:
            return None

    def unwind_info(self, entry: RuntimeFunction) -> UnwindInfo:
        """Raises UnwindDataError: there is no UNWIND_INFO of x64."""
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
