# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The records of RTL_PROCESS_BACKTRACES from the linked entries of a database."""

from __future__ import annotations

from typing import Dict, Iterator, Optional, Tuple

from . import entries as stdentries
from .backtraces import Record
from .bounds import Bounds
from .header import Header
from .linked import Links, ReadBytes

_MAX_LOST = 0x10000


def record_count(header: Header, used: Bounds, links: Links, claims: Dict[int, int]) -> int:
    """Returns how many index slots are in use.

    Watermark and counter say so if they agree, else the highest index that leads to an entry. None of them
    is believed far beyond the number of blocks: a number is a block's, and each of them is a record.

    Args:
        claims: index to entry, of what no slot leads to
    """
    limit = len(links.blocks.addresses) + _MAX_LOST
    slots = (used.upper_end - used.upper_start) // header.layout.pointer_size
    if used.upper_known and slots == header.back_traces and slots <= limit:
        return slots
    found = [index for index in claims if index <= limit]
    for run, entries in zip(links.slots, links.entries):
        found += (index for index, entry in enumerate(entries, run.first) if entry is not None)
    return min(max(found, default=0), limit)


def records(
    header: Header, links: Links, claims: Dict[int, int], count: int, read: ReadBytes
) -> Iterator[Record]:
    """Yields a record per index 1, 2, ... count: the entries' bytes as they are, released ones too."""
    codec = stdentries.codec(header.layout)
    addresses, pointer, head_size = links.blocks.addresses, codec.pointer_size, codec.head_size
    for index, entry in _numbered(links, count):
        entry = claims.get(index) if entry is None else entry
        head = read(addresses[entry], head_size) if entry is not None else None
        if entry is not None and head is not None:
            depth = links.blocks.depths[entry]
            frames = read(addresses[entry] + head_size, depth * pointer) if depth <= codec.max_depth else None
            if frames is not None:
                yield Record(codec.count_word(head) & codec.count_mask, index, depth, bytes(frames))
                continue
        yield Record(0, index, 0, b"")


def _numbered(links: Links, count: int) -> Iterator[Tuple[int, Optional[int]]]:
    following = 1
    for run, entries in zip(links.slots, links.entries):
        yield from ((index, None) for index in range(following, min(run.first, count + 1)))
        present = entries[: max(count + 1 - run.first, 0)]
        yield from enumerate(present, run.first)
        following = run.first + len(entries)
    yield from ((index, None) for index in range(following, count + 1))
