# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The low-fragmentation heap (Vista and later): many equal blocks inside one block of an NT heap.

Source: `_HEAP_SUBSEGMENT` and `_HEAP_USERDATA_HEADER` from public symbols of ntdll. The signature, the place
of the first block and the meaning of UnusedBytes are described (C. Valasek, "Understanding the Low
Fragmentation Heap", 2010; C. Valasek and T. Mandt, "Windows 8 Heap Internals", 2012). Measured on
7601.17514 and 19044.1766 (x64) under an interceptor.
"""

from __future__ import annotations

from typing import Iterable, Optional

from ...memory.decode.memory import Memory
from .layout import HeapLayout

SIGNATURE = 0xF0E0D0C0
LFH_BLOCK = 0x80  # bit in UnusedBytes; if all other bits are 0, the block is free


def read_user_blocks(memory: Memory, address: int, end: int, layout: HeapLayout) -> Optional[range]:
    """Returns the blocks that the low-fragmentation heap put into a block of the heap, None if it put none:
    the addresses of the _HEAP_ENTRY structures of the blocks, one block's size apart.

    Args:
        address: start of the block's contents, perhaps a _HEAP_USERDATA_HEADER: the subsegment that it names
            must point back
        layout: structures of the heap's generation; 5.x has no such front end
    """
    front, unit = layout.front, layout.unit
    if front is None or memory.number(address + front.signature, 4) != SIGNATURE:
        return None
    subsegment = memory.member(address, front.subsegment)
    if not subsegment or memory.member(subsegment, front.user_blocks) != address:
        return None
    units = memory.member(subsegment, front.block_size)
    count = memory.member(subsegment, front.block_count)
    if not units or not count:
        return None
    stride = units * unit
    start = address + front.header
    if not front.bitmap:
        return _headers(start, stride, count) if start + count * stride <= end else None
    bitmap = -(-count // (8 * layout.pointer_size)) * layout.pointer_size
    first = address - (-(front.header + bitmap) // unit) * unit
    latest = min(end - count * stride, first + stride)
    return _aligned(memory, range(first, latest + 1, unit), stride, count, layout)


def hides_blocks(memory: Memory, address: int, layout: HeapLayout) -> bool:
    """Returns whether one of the heap's own blocks may hide blocks of the low-fragmentation heap.

    The header or subsegment that would describe them is not present.
    """
    front = layout.front
    if front is None:
        return False
    signature = memory.number(address + front.signature, 4)
    if signature is None:
        return True
    if signature != SIGNATURE:
        return False
    subsegment = memory.member(address, front.subsegment)
    needed = (front.user_blocks, front.block_size, front.block_count)
    return subsegment is None or any(memory.member(subsegment, member) is None for member in needed)


def _aligned(
    memory: Memory, firsts: Iterable[int], stride: int, count: int, layout: HeapLayout
) -> Optional[range]:
    """Returns the addresses of the headers, by trying the possible addresses of the first one.

    Windows stores the offset of the first block XORed with a key that only ntdll has. But every header has
    the mark LFH_BLOCK: the lowest address is taken with which all headers in the image have the mark.
    """
    for first in firsts:
        headers = _headers(first, stride, count)
        if _marked(memory, headers, layout):
            return headers
    return None


def _marked(memory: Memory, headers: Iterable[int], layout: HeapLayout) -> bool:
    """Returns whether at least one header is present, and each present header is marked LFH_BLOCK."""
    present = 0
    for header in headers:
        mark = memory.member(header, layout.unused_bytes)
        if mark is not None:
            if not mark & LFH_BLOCK:
                return False
            present += 1
    return present > 0


def _headers(first: int, stride: int, count: int) -> range:
    return range(first, first + count * stride, stride)
