# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The bytes of a forged Stack Trace Database."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Dict

from .std_layouts import MAX_DEPTH

if TYPE_CHECKING:
    from .std import Block, Std

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_OLD_POOL = b"\xde\xad\xbe\xef"


def regions(std: Std) -> Dict[int, bytes]:
    """The committed memory by address: what is committed from below and from above, in a kernel one block."""
    if std.layout.kernel:
        memory = bytearray(_OLD_POOL * (std.reserve // 4))
        memory[: std.first_entry - std.base] = bytes(std.first_entry - std.base)
        _write_lower(std, memory)
        _write_slots(std, memory, std.base)
        return {std.base: bytes(memory)}
    memory = bytearray(std.end - std.base)
    _write_lower(std, memory)
    _write_slots(std, memory, std.base)
    if std.lower_limit >= std.upper_limit:
        return {std.base: bytes(memory)}
    lower = {std.base: bytes(memory[: std.lower_limit - std.base])}
    upper = {std.upper_limit: bytes(memory[std.upper_limit - std.base :])}
    return lower if std.upper_limit == std.end else {**lower, **upper}


def _write_lower(std: Std, memory: bytearray) -> None:
    layout = std.layout
    for name, value in std.header().items():
        offset, size = layout.fields[name]
        struct.pack_into("<" + _CODES[size], memory, offset, value)
    if layout.old:
        struct.pack_into("<" + _CODES[layout.pointer], memory, 0, std.lock)
    else:
        _write_free_lists(std, memory)
    code = "<" + _CODES[layout.pointer]
    for bucket, chain in std.chains.items():
        places = [layout.buckets + bucket * layout.stride, *(block.va - std.base for block in chain)]
        for place, following in zip(places, [*(block.va for block in chain), 0]):
            struct.pack_into(code, memory, place, following)
    for block in std.blocks:
        _write_entry(std, memory, block)
    for blocks in std.free:
        _write_links(std, memory, blocks)


def _write_entry(std: Std, memory: bytearray, block: Block) -> None:
    layout, depth = std.layout, len(block.frames)
    offset = block.va - std.base + layout.pointer
    if layout.old:
        struct.pack_into("<IHH", memory, offset, block.count, block.index & 0xFFFF, depth)
    else:
        word = block.count | (min(block.capacity, MAX_DEPTH) - 1) << 11
        struct.pack_into("<HHHH", memory, offset, word, block.index >> 16, block.index & 0xFFFF, depth)
    code = f"<{depth}{_CODES[layout.pointer]}"
    struct.pack_into(code, memory, block.va - std.base + layout.head, *block.frames)


def _write_links(std: Std, memory: bytearray, blocks: list[Block]) -> None:
    """Links released blocks, the last one that was released first."""
    code = "<" + _CODES[std.layout.pointer]
    link = std.layout.head if std.layout.lists else 0
    below = 0
    for block in blocks:
        struct.pack_into(code, memory, block.va - std.base, block.following)
        struct.pack_into(code, memory, block.va - std.base + link, below)
        below = block.va + link


def _write_free_lists(std: Std, memory: bytearray) -> None:
    start, size = std.layout.fields["FreeLists"]
    link = std.layout.head if std.layout.lists else 0
    for number, (blocks, pushes) in enumerate(zip(std.free, std.pushes)):
        offset = start + number * size
        top = blocks[-1].va + link if blocks else 0
        if not std.layout.lists:
            struct.pack_into("<" + _CODES[size], memory, offset, top)
        elif size == 16 and pushes:
            struct.pack_into("<QQ", memory, offset, pushes << 16 | len(blocks), top | std.seven)
        elif pushes:
            struct.pack_into("<IHH", memory, offset, top, len(blocks), pushes & 0xFFFF)


def _write_slots(std: Std, memory: bytearray, base: int) -> None:
    if std.slots:
        slots = [block.va for block in reversed(std.slots)]
        code = f"<{len(slots)}{_CODES[std.layout.pointer]}"
        struct.pack_into(code, memory, std.upper - base, *slots)
