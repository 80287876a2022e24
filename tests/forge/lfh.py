# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forges what the low-fragmentation heap puts into a heap: a subsegment and its blocks."""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

from .heaps import NtHeap

SIGNATURE = 0xF0E0D0C0
FREE = 0x80


class Wanted(NamedTuple):
    """A block: the bytes asked for, the record that it names (0: it is not extended), whether it is freed."""

    size: int
    record: int = 0
    freed: bool = False


class _Form(NamedTuple):
    """Offsets of one generation and bitness."""

    subsegment_size: int
    user_blocks: int
    block_size: int
    block_count: int
    header_size: int
    signature: int
    bitmap: bool


FORMS = {
    "6.0-x64": _Form(0x30, 8, 0x18, 0x1C, 0x20, 0x18, False),
    "6.0-x86": _Form(0x20, 4, 0x10, 0x14, 0x10, 0x0C, False),
    "6.2-x64": _Form(0x40, 8, 0x24, 0x28, 0x30, 0x14, True),
    "6.2-x86": _Form(0x28, 4, 0x14, 0x18, 0x1C, 0x0C, True),
}


def add(heap: NtHeap, form: str, stride: int, expected: Sequence[Wanted], padding: int = 0) -> List[int]:
    """Adds a subsegment with a block for each that is wanted.

    Args:
        heap: gets two blocks, one with the subsegment and one with its user blocks
        form: `6.0-x86` and so on
        stride: bytes from block to block
        padding: bytes more than needed before the first block, a multiple of a header's size

    Returns:
        The addresses of the callers' bytes.
    """
    layout, numbers = heap.layout, FORMS[form]
    pointer, unit = layout.pointer, layout.unit
    subsegment = heap.plain(numbers.subsegment_size)
    head = numbers.header_size
    if numbers.bitmap:
        head += -(-len(expected) // (8 * pointer)) * pointer
    head = -(-head // unit) * unit + padding
    blocks = heap.plain(head + stride * len(expected))
    heap.put(subsegment + numbers.user_blocks, pointer, blocks)
    heap.put(subsegment + numbers.block_size, 2, stride // unit)
    heap.put(subsegment + numbers.block_count, 2, len(expected))
    heap.put(blocks, pointer, subsegment)
    heap.put(blocks + numbers.signature, 4, SIGNATURE)
    return [
        _block(heap, blocks + head + number * stride, stride, block) for number, block in enumerate(expected)
    ]


def _block(heap: NtHeap, header: int, stride: int, block: Wanted) -> int:
    unit = heap.layout.unit
    offset = 2 if block.record else 0
    user = header + (offset + 1) * unit
    unused = stride - block.size
    # SubSegmentCode is XORed with a key that only ntdll knows: any value does.
    heap.put(header + unit - 8, 4, 0x9E3779B9 ^ header & 0xFFFFFFFF)
    mark = FREE if block.freed else FREE | (0x40 | offset if offset else min(unused, 0x3F))
    heap.put(header + unit - 1, 1, mark)
    if offset:
        heap.put(header + unit, heap.layout.pointer, block.record)
        heap.extension(user, offset, unused)
    return user
