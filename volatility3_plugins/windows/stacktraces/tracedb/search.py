# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The databases of a process without ntdll's symbols: pointers in its writable data to what proves itself.

All of this is memory that the process itself may write. So what was proven in one process is only where the
next one is looked at first, and a header with a fault does not hide a database whose entries agree with it.
"""

from __future__ import annotations

import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..base.decode.extents import Extents
from ..base.decode.memory import Reader
from ..base.decode.status import NOTHING, Status, Word, status
from ..base.space import AddressSpace
from .decode import heaplog
from .decode import proof as stdproof
from .decode.layout import POINTER_CODES
from .decode.proof import UNREADABLE, Proof
from .found import HEAPLOG, STD
from .layouts import Layouts

ALLOCATION_GRANULARITY = 0x10000
"""What a process reserves begins at a multiple of 64 KB, so does its database."""

MIN_RESERVE = 0x800000
"""ntdll reserves 16 MB and more for a database: half of that is asked of a range that may be one."""

USER_END = {4: 1 << 32, 8: 1 << 47}
"""End of what can be user memory, by pointer size; most aligned words of a 64-bit ntdll are no addresses."""

MAX_CANDIDATES = {STD: 256, HEAPLOG: 8192}
"""A process whose data is made of decoys costs no more; an ordinary ntdll has some ten and some hundred."""

MIN_EVIDENCE = 2
_MAX_PLACES = 16


class Hit(NamedTuple):
    """A word that leads to a database: its RVA in ntdll, what it holds, and the proof of an `std`."""

    rva: int
    address: int
    proof: Optional[Proof]


class Search:
    """Searches the data of ntdlls; remembers by kind and bitness where the pointers were."""

    def __init__(self) -> None:
        self._places: Dict[Tuple[str, int], List[int]] = {}

    def words(
        self, space: AddressSpace, kind: str, base: int, size: int, data: List[Extents]
    ) -> Tuple[Dict[int, int], Status]:
        """Returns the words that may point to a database (value by RVA), known places first, and a status.

        Args:
            space: one half of a process
            kind: `std` or `heaplog`
            base: of its ntdll
            size: of its ntdll
            data: what is present of ntdll's writable data
        """
        unit = ALLOCATION_GRANULARITY if kind == STD else 2 * space.pointer_size
        image, end = range(base, base + size), USER_END[space.pointer_size]
        seen = {0}
        found: Dict[int, int] = {}
        for address, value in _aligned_words(data, space.pointer_size):
            if value % unit or value >= end or value in image:
                continue
            if value not in seen:
                seen.add(value)
                found[address - base] = value
        known = [rva for rva in self.known(space, kind) if rva in found]
        ordered = {rva: found[rva] for rva in [*known, *found]}
        most = MAX_CANDIDATES[kind]
        said = status(Word.SEARCH_CUT_SHORT) if len(ordered) > most else NOTHING
        return dict(list(ordered.items())[:most]), said

    def known(self, space: AddressSpace, kind: str) -> List[int]:
        """Returns where the pointer was in other processes, by RVA."""
        return self._places.get((kind, space.pointer_size), [])

    def remember(self, space: AddressSpace, kind: str, rva: int) -> None:
        """Notes where a pointer was, for the next process."""
        places = self._places.setdefault((kind, space.pointer_size), [])
        if rva not in places:
            places.insert(0, rva)
            del places[_MAX_PLACES:]

    @staticmethod
    def proven(
        words: Dict[int, int], kind: str, reader: Reader, layouts: Layouts
    ) -> Tuple[Optional[Hit], List[Tuple[int, int]]]:
        """Tries words until one leads to a database without fault.

        Returns:
            The hit, and the words (RVA, value) that lead to an `std` with a single fault in its header
        """
        nearly = []
        for rva, value in words.items():
            if kind == HEAPLOG:
                if heaplog.prove(reader, value, layouts.heaplog):
                    return Hit(rva, value, None), []
                continue
            proof = stdproof.prove(reader, value, layouts.std)
            if proof.header is not None:
                return Hit(rva, value, proof), []
            if len(proof.failed) == 1 and UNREADABLE not in proof.failed:
                nearly.append((rva, value))
        return None, nearly


def recovered(reader: Reader, address: int, layouts: Layouts) -> Optional[Proof]:
    """Returns what can be made of a place that may be a damaged database, if its entries speak for it."""
    proof = stdproof.recover(reader, address, layouts.std)
    if proof.header is None:
        return None
    matching, _ = stdproof.agreement(reader, proof.header)
    enough = matching >= MIN_EVIDENCE or stdproof.block_count(reader, proof.header) > MIN_EVIDENCE
    return proof if enough else None


def _aligned_words(data: List[Extents], width: int) -> Iterator[Tuple[int, int]]:
    """Yields (address, value) of the pointer-sized words of sparse memory."""
    for extents in data:
        for start, run in extents.runs:
            skip = -start % width
            count = max((len(run) - skip) // width, 0)
            words = struct.unpack_from(f"<{count}{POINTER_CODES[width]}", run, skip)
            yield from zip(range(start + skip, start + len(run), width), words)
