# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the bucket heads and single entries of a database from memory."""

from __future__ import annotations

import struct
from itertools import compress
from typing import Callable, Iterable, Iterator, Optional, Tuple

from ...base.decode.extents import Extents
from ...base.decode.record import Record
from ...base.decode.structure import Buffer
from .header import Header
from .layout import POINTER_CODES, EntryLayout

ReadBytes = Callable[[int, int], Optional[Buffer]]
"""Takes an address and a length in bytes; returns None unless all of them are present."""


class Heads(Record):
    """Adjacent bucket heads: the number of the first, and for each the address of its first entry or 0."""

    first: int
    addresses: Tuple[int, ...]


class StdEntry(Record):
    """A complete entry: HashChain, TraceCount's word, its own index, its frames."""

    chain: int
    word: int
    number: int
    frames: Tuple[int, ...]


def read_entry(layout: EntryLayout, read: ReadBytes, address: int) -> Optional[StdEntry]:
    """Returns the entry at an address if all of it is present and its Depth is one that Windows records.

    Args:
        layout: of the database's entries
        read: reads the database
        address: where the entry would be
    """
    head = read(address, layout.head_size)
    if head is None:
        return None
    chain, word, depth = layout.scan(head, 0)
    frames = layout.frames.get(depth)
    data = read(address, frames.size) if frames is not None else None
    if frames is None or data is None:
        return None
    return StdEntry(chain, word, layout.stored_index(head), frames.unpack_from(data))


def bucket_heads(header: Header, memory: Extents) -> Iterator[Heads]:
    """Yields the bucket heads that are present."""
    pointer, stride = header.layout.pointer_size, header.bucket_stride
    for low, high in memory.covered(header.buckets, header.buckets_end):
        first = -(-(low - header.buckets) // stride)
        last = (high - pointer - header.buckets) // stride
        if first > last:
            continue
        words = pointers(
            memory, header.buckets + first * stride, (last - first) * stride // pointer + 1, pointer
        )
        yield Heads(first, words[:: stride // pointer])


def starts(heads: Iterable[Heads]) -> Iterator[Tuple[int, int]]:
    """Yields (bucket, address of its first entry) of the buckets that have entries."""
    for run in heads:
        buckets = range(run.first, run.first + len(run.addresses))
        yield from zip(compress(buckets, run.addresses), filter(None, run.addresses))


def pointers(memory: Extents, address: int, count: int, size: int) -> Tuple[int, ...]:
    """Returns an array of pointers, or an empty tuple if a part of it is missing."""
    data = memory.read(address, count * size)
    return struct.unpack(f"<{count}{POINTER_CODES[size]}", data) if data is not None else ()
