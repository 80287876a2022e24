# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Samples of a database: whether what a header says agrees with the entries."""

from __future__ import annotations

from typing import Optional, Tuple

from ...base.decode.reading import Reader
from . import chains, entries
from .blocks import BlockWalk
from .capture import HASH_MASK
from .header import MAX_DATABASE, Header

_SAMPLE = 16
_SLOTS = 64
_FIRST_BLOCKS = 0x10000


def agreement(reader: Reader, header: Header) -> Tuple[int, int]:
    """Samples the bucket heads, and the first block.

    Returns:
        (heads that lead to an entry whose hash belongs in that bucket, heads that could be tried); the first
        block counts as one of either
    """
    memory = reader(header.buckets, header.buckets_end - header.buckets)
    heads = list(chains.starts(entries.bucket_heads(header, memory)))
    step = max(len(heads) // _SAMPLE, 1)
    verdicts = [_belongs(reader, header, bucket, head) for bucket, head in heads[::step][:_SAMPLE]]
    verdicts.append(_begins(reader, header))
    return verdicts.count(True), len(verdicts) - verdicts.count(None)


def _begins(reader: Reader, header: Header) -> Optional[bool]:
    """Tells whether a block is where the first one must be; None if there is none or its place is unknown."""
    codec, first = entries.codec(header.layout), header.first_entry
    known = header.layout.has("LowerMemoryStart") or not codec.shift
    if not known or not header.fields["NextFreeLowerMemory"] > first:
        return None
    head = reader(first, codec.head_size).read(first, codec.head_size)
    return 0 < codec.scan.unpack_from(head)[2] <= codec.max_depth if head is not None else None


def _belongs(reader: Reader, header: Header, bucket: int, address: int) -> Optional[bool]:
    """Tells whether an address holds an entry that belongs in a bucket; None when it is not present."""
    codec = entries.codec(header.layout)
    if not header.buckets_end <= address < header.address + MAX_DATABASE:
        return False
    memory = reader(address, codec.sizes[-1])
    head = memory.read(address, codec.head_size)
    if head is None:
        return None
    depth = codec.scan.unpack_from(head)[2]
    if not 0 < depth <= codec.max_depth:
        return False
    frames = entries.pointers(memory, address + codec.head_size, depth, codec.pointer_size)
    return (sum(frames) & HASH_MASK) % header.bucket_count == bucket if frames else None


def block_count(reader: Reader, header: Header) -> int:
    """Returns how many blocks make sense in the first 64 KB of where the entries would be."""
    first, end = header.first_entry, header.first_entry + _FIRST_BLOCKS
    memory = reader(first, end - first)
    walk = BlockWalk(entries.codec(header.layout), memory, first, end, tuple)
    return len(walk.walk().addresses)


def numbered_slots(reader: Reader, header: Header, end: int) -> int:
    """Returns how many of the first index slots, if the array ended there, lead to their entry."""
    codec = entries.codec(header.layout)
    size = codec.pointer_size
    memory = reader(end - _SLOTS * size, _SLOTS * size)
    right = 0
    for index in range(1, _SLOTS + 1):
        slot = memory.read(end - index * size, size)
        address = int.from_bytes(slot, "little") if slot is not None else 0
        if header.first_entry <= address < end:
            head = reader(address, codec.head_size).read(address, codec.head_size)
            right += head is not None and codec.stored_index(head) == index
    return right
