# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The low-fragmentation heap (Vista and later): many equal blocks inside one block of an NT heap.

Source: `_HEAP_SUBSEGMENT` and `_HEAP_USERDATA_HEADER` from public symbols of ntdll; the signature, where
blocks begin and what UnusedBytes means in them are described (C. Valasek, "Understanding the Low
Fragmentation Heap", 2010; C. Valasek and T. Mandt, "Windows 8 Heap Internals", 2012). Measured on
7601.17514 and 19044.1766 (x64) under an interceptor.
"""

from __future__ import annotations

from typing import Iterable, Optional

from ...memory.decode.memory import Memory
from ...memory.decode.structure import Structures

SIGNATURE = 0xF0E0D0C0
LFH_BLOCK = 0x80  # in UnusedBytes; nothing else there: the block is free


class LfhTypes:
    """`_HEAP_USERDATA_HEADER` and `_HEAP_SUBSEGMENT` of the low-fragmentation heap.

    Attributes:
        signature: offset of Signature
        header: where blocks may begin at the earliest: after the header, or after its BitmapData
        bitmap: whether the header ends in a bitmap of busy blocks (8 and later), and the first block lies
            some way behind it
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        user_data, subsegment = types["_HEAP_USERDATA_HEADER"], types["_HEAP_SUBSEGMENT"]
        entry = types["_HEAP_ENTRY"]
        bitmap = user_data.find("BitmapData")
        self.pointer_size = pointer_size
        self.unit = entry.size
        self.unused = entry.field("UnusedBytes")
        self.signature = user_data.offset("Signature")
        self.subsegment = user_data.field("SubSegment")
        self.header = user_data.size if bitmap is None else bitmap.offset
        self.bitmap = bitmap is not None
        self.user_blocks = subsegment.field("UserBlocks")
        self.block_size = subsegment.field("BlockSize")
        self.block_count = subsegment.field("BlockCount")


def read_user_blocks(memory: Memory, address: int, end: int, types: LfhTypes) -> Optional[range]:
    """Reads what the low-fragmentation heap put into a block of the heap, or returns None if it did not.

    Args:
        memory: the process's
        address: of the block's contents, a _HEAP_USERDATA_HEADER perhaps: the subsegment that it names must
            point back
        end: of the block
        types: the structures of the heap's generation

    Returns:
        The addresses of the blocks' _HEAP_ENTRY structures, one block's size apart.
    """
    if memory.number(address + types.signature, 4) != SIGNATURE:
        return None
    subsegment = memory.member(address, types.subsegment)
    if not subsegment or memory.member(subsegment, types.user_blocks) != address:
        return None
    units = memory.member(subsegment, types.block_size)
    count = memory.member(subsegment, types.block_count)
    if not units or not count:
        return None
    unit = types.unit
    stride = units * unit
    start = address + types.header
    if not types.bitmap:
        return _headers(start, stride, count) if start + count * stride <= end else None
    bitmap = -(-count // (8 * types.pointer_size)) * types.pointer_size
    first = address - (-(types.header + bitmap) // unit) * unit
    latest = min(end - count * stride, first + stride)
    return _aligned(memory, range(first, latest + 1, unit), stride, count, types)


def hides_blocks(memory: Memory, address: int, types: LfhTypes) -> bool:
    """Tells whether a block that is the heap's own may hold blocks of the low-fragmentation heap that cannot
    be told, since what describes them is not present.

    Args:
        memory: the process's
        address: of the block's contents
        types: the structures of the heap's generation
    """
    signature = memory.number(address + types.signature, 4)
    if signature is None:
        return True
    if signature != SIGNATURE:
        return False
    subsegment = memory.member(address, types.subsegment)
    needed = (types.user_blocks, types.block_size, types.block_count)
    return subsegment is None or any(memory.member(subsegment, each) is None for each in needed)


def _aligned(
    memory: Memory, firsts: Iterable[int], stride: int, count: int, types: LfhTypes
) -> Optional[range]:
    """Finds where the blocks begin: the offset is stored, but XORed with a key that only ntdll has.

    Every block has LFH_BLOCK in its header; the lowest place at which all that are present do is taken.
    """
    for first in firsts:
        headers = _headers(first, stride, count)
        if _marked(memory, headers, types):
            return headers
    return None


def _marked(memory: Memory, headers: Iterable[int], types: LfhTypes) -> bool:
    """Tells whether each block that is present, and one at least, is marked as one of these."""
    present = 0
    for header in headers:
        mark = memory.member(header, types.unused)
        if mark is not None:
            if not mark & LFH_BLOCK:
                return False
            present += 1
    return present > 0


def _headers(first: int, stride: int, count: int) -> range:
    return range(first, first + count * stride, stride)
