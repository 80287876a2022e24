# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Object Manager's reference traces (`!obtrace`), Vista SP1 to build 26100.

ObpObjectTable points to 401 chains of `_OBJECT_REF_INFO`, one for each traced object, with an array of
events. An event names a trace by number; ObpStackTable points to the `_STACK_TABLE` that holds the traces.
"""

from __future__ import annotations

import struct
from typing import List, NamedTuple, Optional, Tuple

from ...base.decode.field import Buffer, Field
from ...tracedb.decode.rawstack import without_padding

OBJECT_BUCKETS = 401
TRACES_PER_BLOCK = 1024
MAX_TRACES = 16381
"""ObpObjectBuckets, ObpStacksPerBucket and ObpMaxStacks of the 2015 to 2016 kernels; the `_STACK_TABLE` of
all versions has room for as many traces."""

REFERENCE = 0x8000
"""Bit of `_OBJECT_REF_STACK_INFO.Index` that tells a reference from a dereference."""


class RefLayout(NamedTuple):
    """`_OBJECT_REF_INFO` and `_OBJECT_REF_STACK_INFO`; `tag` is None before 7, which has no Tag."""

    object_header: Field
    next_ref: Field
    image_file_name: int
    image_file_name_size: int
    next_pos: Field
    max_stacks: Field
    stack_info: int
    event_size: int
    sequence: Field
    trace_index: Field
    num_traces: Field
    tag: Optional[Field]


class StackTableLayout(NamedTuple):
    """`_STACK_TABLE` and `_OBJECT_REF_TRACE`."""

    pointer_size: int
    num_stack_traces: Field
    blocks: int
    block_count: int
    trace_size: int
    max_depth: int

    @property
    def header_size(self) -> int:
        return self.blocks + self.block_count * self.pointer_size


class RefInfo(NamedTuple):
    """A traced object: `next_pos` events of its array are used, of `max_stacks`."""

    object_header: int
    next_ref: int
    image_file_name: bytes
    next_pos: int
    max_stacks: int


class RefEvent(NamedTuple):
    """One operation on an object's reference count, which took or dropped `num_traces` references."""

    sequence: int
    reference: bool
    trace: int
    num_traces: int
    tag: Optional[int]


class StackTable(NamedTuple):
    """How many traces there are, and the addresses of the blocks that hold 1024 each."""

    num_stack_traces: int
    blocks: Tuple[int, ...]


def decode_buckets(data: Buffer, pointer_size: int) -> List[int]:
    """Returns the heads of the chains."""
    return list(struct.unpack(f"<{len(data) // pointer_size}{_code(pointer_size)}", data))


def decode_ref_info(data: Buffer, layout: RefLayout) -> RefInfo:
    """Decodes an `_OBJECT_REF_INFO` without its events.

    Raises:
        ValueError: when data is too short
    """
    name = data[layout.image_file_name : layout.image_file_name + layout.image_file_name_size]
    return RefInfo(
        layout.object_header.of(data),
        layout.next_ref.of(data),
        bytes(name).split(b"\0", 1)[0],
        layout.next_pos.of(data),
        layout.max_stacks.of(data),
    )


def decode_events(data: Buffer, layout: RefLayout) -> List[RefEvent]:
    """Decodes as many whole events as data holds."""
    events = []
    for base in range(0, len(data) - layout.event_size + 1, layout.event_size):
        index = layout.trace_index.of(data, base)
        events.append(
            RefEvent(
                layout.sequence.of(data, base),
                bool(index & REFERENCE),
                index & ~REFERENCE,
                layout.num_traces.of(data, base),
                layout.tag.of(data, base) if layout.tag else None,
            )
        )
    return events


def decode_stack_table(data: Buffer, layout: StackTableLayout) -> StackTable:
    """Decodes the head of a `_STACK_TABLE`, its hash area excluded.

    Raises:
        ValueError: when data is too short
    """
    if len(data) < layout.header_size:
        raise ValueError("the data ends before the blocks' addresses")
    code = f"<{layout.block_count}{_code(layout.pointer_size)}"
    return StackTable(layout.num_stack_traces.of(data), struct.unpack_from(code, data, layout.blocks))


def locate_trace(table: StackTable, number: int, layout: StackTableLayout) -> Optional[int]:
    """Returns the address of a trace, None when the table has no such trace."""
    block = number // TRACES_PER_BLOCK
    if (
        number >= min(table.num_stack_traces, MAX_TRACES)
        or block >= len(table.blocks)
        or not table.blocks[block]
    ):
        return None
    return table.blocks[block] + number % TRACES_PER_BLOCK * layout.trace_size


def decode_trace(data: Buffer, layout: StackTableLayout) -> Tuple[int, ...]:
    """Returns the frames of an `_OBJECT_REF_TRACE`, innermost first."""
    stack = struct.unpack_from(f"<{layout.max_depth}{_code(layout.pointer_size)}", data)
    return without_padding(stack)


def tag_text(tag: int) -> str:
    """Returns a pool-style tag as text ('Dflt'), its bytes in memory order."""
    return tag.to_bytes(4, "little").rstrip(b"\0").decode("latin-1")


def bucket_of(object_header: int, body_offset: int) -> int:
    """Returns the bucket of an object on x64 (the shift that a 32-bit kernel uses is not established)."""
    return ((object_header + body_offset) >> 4 & 0xFFFFF) % OBJECT_BUCKETS


def _code(pointer_size: int) -> str:
    return "Q" if pointer_size == 8 else "I"
