# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The function table of an x64 image (.pdata): finds the unwind data of a piece of code.

    table = FunctionTable.from_bytes(pdata, read_rva)
    entry = table.find_entry(rva)            # the piece of code that holds an RVA, or None
    primary = table.primary(entry)           # the piece with which the function starts
    in_function = primary is not None and primary.begin == rva_of_export

Each entry describes a piece of code, and a function may have several pieces. Two kinds of entries belong to
the function of another entry: entries whose UNWIND_INFO is chained to that entry, and indirect entries, whose
UnwindData has bit 0 set and is otherwise the RVA of that entry. An address without an entry is in a leaf
function (which changes neither the stack pointer nor a non-volatile register) or in no function. If pages of
the table could not be read, `complete_at` returns whether the table is readable for an address.

Source: Microsoft, "x64 exception handling" (struct RUNTIME_FUNCTION, chained unwind info structures).
"""

from __future__ import annotations

import bisect
import operator
import sys
from array import array
from typing import Any, Iterable, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar

from ...memory.decode.memo import Kept
from ...memory.decode.statuscodes import StatusCode
from .unwindinfo import (
    CHAININFO,
    RUNTIME_FUNCTION_SIZE,
    Bytes,
    ReadRva,
    RuntimeFunction,
    UnwindDataError,
    UnwindInfo,
    length_of,
    read_runtime_function,
    read_unwind_info,
)

INDIRECT = 1
"""The bit of UnwindData that marks an indirect entry."""
MAX_CHAIN = 32
"""Maximum number of links of chained unwind information that are followed, as in Windows."""

MAX_CODES = 512
"""Maximum number of unwind codes in one chain: more than any real function has. One piece has at most 255."""

MOST_DERIVED = 1 << 12
"""Number of return addresses of an address space, and of rules of a module, that are kept."""

MOST_CODES = 1 << 16
"""Number of unwind codes of a table that are kept. Records may overlap: few bytes make very many codes."""

END_OF_IMAGE = 1 << 32
"""An RVA behind every RVA of an image."""
_WORD = "I"
"""Code of 32-bit integers in the module `array`: a table may have millions of entries."""

Columns = Tuple[Sequence[int], Sequence[int], Sequence[int]]
"""Begin, end and unwind data of entries."""

AnyTable = TypeVar("AnyTable", bound="FunctionTable")


class FunctionTable:
    """RUNTIME_FUNCTION entries by RVA, with access to their unwind data.

    Args:
        words: BeginAddress, EndAddress and UnwindData of all entries, one after the other
        gaps: ranges (low, high) of RVAs for which entries may be missing

    Attributes:
        derived: values that stack walks derived from unwind data, by (RVA of the unwind data, offset in the
            function); kept as long as the table
        effects: values that stack walks derived of return addresses, by RVA; kept as long as the table
        contradicted: whether the section's code at the RVA of an entry's begin contradicts its unwind data;
            kept as long as the table
    """

    __slots__ = (
        *("_begins", "_ends", "_gaps", "_kept", "_unwinds", "contradicted", "derived", "effects"),
        "read_rva",
    )

    ENTRY_SIZE = RUNTIME_FUNCTION_SIZE
    """Bytes of an entry."""

    def __init__(self, words: array[int], gaps: Iterable[Tuple[int, int]], read_rva: ReadRva) -> None:
        self._begins: Sequence[int]
        self._ends: Sequence[int]
        self._unwinds: Sequence[int]
        self._begins, self._ends, self._unwinds = self._columns(words, read_rva)
        self._gaps = list(gaps)
        self._kept: Kept[int, Any] = Kept(MOST_CODES)
        self.derived: Kept[Tuple[int, int], Any] = Kept(MOST_DERIVED)
        self.effects: Kept[int, Any] = Kept(MOST_DERIVED)
        self.contradicted: Kept[int, bool] = Kept(MOST_DERIVED)
        self.read_rva = read_rva

    @staticmethod
    def _columns(words: array[int], read_rva: ReadRva) -> Columns:
        """Returns begin, end and unwind data of the usable entries, ascending by begin."""
        begins, ends, unwinds = words[0::3], words[1::3], words[2::3]
        if not (is_sorted(begins) and all(map(operator.lt, begins, ends))):
            valid = [number for number in range(len(begins)) if begins[number] < ends[number]]
            valid.sort(key=begins.__getitem__)
            columns = (begins, ends, unwinds)
            begins, ends, unwinds = (array(_WORD, map(column.__getitem__, valid)) for column in columns)
        return begins, ends, unwinds

    @classmethod
    def from_bytes(cls: Type[AnyTable], pdata: Bytes, read_rva: ReadRva) -> AnyTable:
        """Returns the table with all entries of the exception directory, from the bytes of the directory."""
        return cls.from_runs([(0, pdata)], len(pdata), read_rva)

    @classmethod
    def from_runs(
        cls: Type[AnyTable], runs: Iterable[Tuple[int, Bytes]], size: int, read_rva: ReadRva
    ) -> AnyTable:
        """Returns the table with the readable entries of the exception directory. `runs` are (offset in the
        directory, bytes) of its readable parts, ascending."""
        words = array(_WORD)
        gaps: List[Tuple[int, int]] = []
        expected = 0
        for first, entry_words in _whole_entries(runs, cls.ENTRY_SIZE):
            if first > expected:
                gaps.append((words[-2] if words else 0, entry_words[0]))
            words += entry_words
            expected = first + len(entry_words) * words.itemsize // cls.ENTRY_SIZE
        if expected < size // cls.ENTRY_SIZE:
            gaps.append((words[-2] if words else 0, END_OF_IMAGE))
        return cls(words, gaps, read_rva)

    def __len__(self) -> int:
        return len(self._begins)

    def __iter__(self) -> Iterator[RuntimeFunction]:
        return (RuntimeFunction(*entry) for entry in zip(self._begins, self._ends, self._unwinds))

    @property
    def ranges(self) -> Tuple[Sequence[int], Sequence[int]]:
        """BeginAddress of all entries, ascending, and their EndAddress: for callers with many RVAs."""
        return self._begins, self._ends

    @property
    def records(self) -> Sequence[int]:
        """UnwindData of all entries: the RVA of an UNWIND_INFO or, with bit 0 set, of another entry."""
        return self._unwinds

    def record_length(self, unwind: int) -> int:
        """Returns how many bytes of the unwind data at an UnwindData are read."""
        if unwind & INDIRECT:
            return RUNTIME_FUNCTION_SIZE
        return length_of(self.read_rva(unwind, 4))

    def entry(self, position: int) -> RuntimeFunction:
        """Returns the entry at a position in `ranges`."""
        return RuntimeFunction(self._begins[position], self._ends[position], self._unwinds[position])

    def may_be_moved(self, position: int) -> bool:
        """Returns whether an entry may be a piece of another's function. A cheap test: True if unknown."""
        unwind = self._unwinds[position]
        head = None if unwind & INDIRECT else self.read_rva(unwind, 1)
        return head is None or bool(head[0] >> 3 & CHAININFO)

    def find_entry(self, rva: int) -> Optional[RuntimeFunction]:
        """Returns the entry whose range holds an RVA, None if there is none. The entry may be indirect."""
        position = bisect.bisect_right(self._begins, rva) - 1
        if position < 0 or rva >= self._ends[position]:
            return None
        return RuntimeFunction(self._begins[position], self._ends[position], self._unwinds[position])

    def complete_at(self, rva: int) -> bool:
        """Returns whether the table is readable at an RVA. Then None from `find_entry` means that no entry
        has the RVA."""
        return not any(low <= rva < high for low, high in self._gaps)

    def unwind_info(self, entry: RuntimeFunction) -> UnwindInfo:
        """Returns the parsed unwind data of an entry that is not indirect. Raises UnwindDataError if the
        unwind data is unreadable or invalid."""
        info: Optional[UnwindInfo] = self._kept.get(entry.unwind)
        if info is None:
            info = read_unwind_info(self.read_rva, entry.unwind)
            self._kept.keep(entry.unwind, info, len(info.codes) + 1)
        return info

    def direct(self, entry: RuntimeFunction) -> RuntimeFunction:
        """Returns the entry to which an indirect entry leads, or the entry itself if it is not indirect.
        Raises UnwindDataError if the target is unreadable, or the links are more than MAX_CHAIN."""
        for _ in range(MAX_CHAIN):
            if not entry.unwind & INDIRECT:
                return entry
            entry = read_runtime_function(self.read_rva, entry.unwind - INDIRECT)
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)

    def chain(self, entry: RuntimeFunction) -> List[UnwindInfo]:
        """Returns the unwind data of a piece, followed by the unwind data to which it is chained. Raises
        UnwindDataError if some of it is unreadable or invalid, or the chain is longer than MAX_CHAIN or
        MAX_CODES."""
        infos: List[UnwindInfo] = []
        codes = 0
        link: Optional[RuntimeFunction] = entry
        while link is not None:
            info = self.unwind_info(self.direct(link))
            infos.append(info)
            codes += len(info.codes)
            if len(infos) > MAX_CHAIN or codes > MAX_CODES:
                raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
            link = info.chained
        return infos

    def primary(self, entry: RuntimeFunction) -> Optional[RuntimeFunction]:
        """Returns the entry of the first piece of an entry's function, None if it is unknown."""
        try:
            for _ in range(MAX_CHAIN):
                entry = self.direct(entry)
                chained = self.unwind_info(entry).chained
                if chained is None:
                    return entry
                entry = chained
        except UnwindDataError:
            pass
        return None


def is_sorted(begins: Sequence[int]) -> bool:
    """Returns whether numbers ascend, each once."""
    return all(map(operator.lt, begins, begins[1:]))


def _whole_entries(runs: Iterable[Tuple[int, Bytes]], size: int) -> Iterator[Tuple[int, array[int]]]:
    """Yields (number of the first entry, words of the entries) for the entries of `size` bytes that lie
    completely in a run."""
    for start, data in runs:
        first = -(-start // size)
        usable = data[first * size - start :]
        usable = usable[: len(usable) - len(usable) % size]
        if usable:
            words = array(_WORD)
            words.frombytes(usable)
            if sys.byteorder == "big":
                words.byteswap()
            yield first, words
