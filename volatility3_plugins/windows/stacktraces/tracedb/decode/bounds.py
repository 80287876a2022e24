# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which memory of a database is in use.

Bounds come from the structure alone: a kernel database leaves its commit limits unset (its memory is
committed beforehand and ends in old pool data), and its counters may begin as garbage.
"""

from __future__ import annotations

from typing import NamedTuple

from .header import MAX_DATABASE, Header

_MARGIN = 0x10000


class Bounds(NamedTuple):
    """The used parts [database, lower_end) and [upper_start, upper_end), by address.

    Attributes:
        first_entry: where the entries begin
        lower_end: where they end (NextFreeLowerMemory)
        upper_start: where the index slots begin (NextFreeUpperMemory)
        upper_end: where they end (EntryIndexArray); equal to upper_start when no index array is known
        lower_known, upper_known: false where a damaged watermark was replaced by the largest sensible bound
    """

    first_entry: int
    lower_end: int
    upper_start: int
    upper_end: int
    lower_known: bool
    upper_known: bool


def bounds(header: Header) -> Bounds:
    """Returns the used parts of a database, at most 128 MB in all, whatever its header holds."""
    first, pointer = header.first_entry, header.layout.pointer_size
    limit = header.address + MAX_DATABASE
    index_end = header.index_end
    upper, lower = header.fields["NextFreeUpperMemory"], header.fields["NextFreeLowerMemory"]
    has_index = first <= index_end <= limit and not index_end % pointer
    top = index_end if has_index else limit
    lower_known = first <= lower <= top and not lower % pointer
    upper_known = has_index and first <= upper <= top and not upper % pointer
    if lower_known and upper_known and lower > upper:
        lower_known = upper_known = False
    lower_end = lower if lower_known else upper if upper_known else top
    upper_start = upper if upper_known else lower if lower_known else first
    if not has_index:
        upper_start = top
    most = _most_slots(header, lower_end if lower_known or upper_known else first)
    if upper_start < top - most * pointer:
        upper_start, upper_known = top - most * pointer, False
    return Bounds(first, lower_end, upper_start, top, lower_known, upper_known)


def _most_slots(header: Header, lower_end: int) -> int:
    """Returns how many index slots there can be: one per block, and those of blocks logged meanwhile."""
    smallest = header.layout.entry.back_trace + header.layout.pointer_size
    return (lower_end - header.first_entry) // smallest + _MARGIN
