# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The low-fragmentation heap (Vista and later): many equal blocks inside one block of an NT heap.

Source: `_HEAP_SUBSEGMENT` and `_HEAP_USERDATA_HEADER` from public symbols of ntdll; the signature, where
blocks begin and what UnusedBytes means in them from public write-ups (C. Valasek, "Understanding the Low
Fragmentation Heap", 2010; C. Valasek and T. Mandt, "Windows 8 Heap Internals", 2012). Not measured.
"""

from __future__ import annotations

from typing import Iterable, Iterator, NamedTuple, Optional

from ...base.decode.types import Types, offset, size
from .memory import HeapMemory

SIGNATURE = 0xF0E0D0C0
LFH_BLOCK = 0x80  # in UnusedBytes; nothing else there: the block is free


class LfhLayout(NamedTuple):
    """`_HEAP_USERDATA_HEADER` and `_HEAP_SUBSEGMENT`.

    Attributes:
        header: where blocks may begin at the earliest: after the header, or after its BitmapData
        bitmap: whether the header ends in a bitmap of busy blocks (8 and later), and the first block lies
            some way behind it
    """

    pointer_size: int
    signature: int
    subsegment: int
    header: int
    bitmap: bool
    user_blocks: int
    block_size: int
    block_count: int


class UserBlocks(NamedTuple):
    """The blocks of a subsegment: `blocks` of them, `stride` bytes apart, from `first` on."""

    first: int
    stride: int
    blocks: int

    def headers(self) -> Iterator[int]:
        """Yields the addresses of the blocks' _HEAP_ENTRY structures."""
        return iter(range(self.first, self.first + self.blocks * self.stride, self.stride))


def lfh_layout(types: Types, pointer_size: int) -> LfhLayout:
    """Builds the layout from a symbol table.

    Raises:
        symboltypes.MissingMemberError: when the table lacks one of the types
    """
    user_data = "_HEAP_USERDATA_HEADER"
    bitmap = types.offset(user_data, "BitmapData")
    return LfhLayout(
        pointer_size=pointer_size,
        signature=offset(types, user_data, "Signature"),
        subsegment=offset(types, user_data, "SubSegment"),
        header=size(types, user_data) if bitmap is None else bitmap,
        bitmap=bitmap is not None,
        user_blocks=offset(types, "_HEAP_SUBSEGMENT", "UserBlocks"),
        block_size=offset(types, "_HEAP_SUBSEGMENT", "BlockSize"),
        block_count=offset(types, "_HEAP_SUBSEGMENT", "BlockCount"),
    )


def read_user_blocks(
    memory: HeapMemory, address: int, end: int, layout: LfhLayout, unit: int
) -> Optional[UserBlocks]:
    """Reads what the low-fragmentation heap put into a block of the heap, or returns None if it did not.

    Args:
        memory: the process's
        address: of the block's contents, a _HEAP_USERDATA_HEADER perhaps: the subsegment that it names must
            point back
        end: of the block
        layout: of the heap's generation
        unit: size of a block's header, whose last byte is UnusedBytes
    """
    if memory.number(address + layout.signature, 4) != SIGNATURE:
        return None
    subsegment = memory.pointer(address + layout.subsegment)
    if not subsegment or memory.pointer(subsegment + layout.user_blocks) != address:
        return None
    units = memory.number(subsegment + layout.block_size, 2)
    count = memory.number(subsegment + layout.block_count, 2)
    if not units or not count:
        return None
    stride = units * unit
    start = address + layout.header
    if not layout.bitmap:
        return UserBlocks(start, stride, count) if start + count * stride <= end else None
    bitmap = -(-count // (8 * layout.pointer_size)) * layout.pointer_size
    first = address - (-(layout.header + bitmap) // unit) * unit
    latest = min(end - count * stride, first + stride)
    return _aligned(memory, range(first, latest + 1, unit), stride, count, unit)


def _aligned(
    memory: HeapMemory, firsts: Iterable[int], stride: int, count: int, unit: int
) -> Optional[UserBlocks]:
    """Finds where the blocks begin: the offset is stored, but XORed with a key that only ntdll has.

    Every block has LFH_BLOCK in its header; the lowest place at which all that are present do is taken.
    """
    for first in firsts:
        blocks = UserBlocks(first, stride, count)
        if _marked(memory, blocks, unit - 1):
            return blocks
    return None


def _marked(memory: HeapMemory, blocks: UserBlocks, unused: int) -> bool:
    """Tells whether each block that is present, and one at least, is marked as one of these."""
    present = 0
    for header in blocks.headers():
        mark = memory.number(header + unused, 1)
        if mark is not None:
            if not mark & LFH_BLOCK:
                return False
            present += 1
    return present > 0
