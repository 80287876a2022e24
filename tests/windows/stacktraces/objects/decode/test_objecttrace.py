# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Object traces: the forms of an event, the block that holds a trace, and hostile tables."""

from __future__ import annotations

import struct
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.plugins.windows.stacktraces.base.decode.field import Field
from volatility3.plugins.windows.stacktraces.objects.decode import objecttrace
from volatility3.plugins.windows.stacktraces.objects.decode.objecttrace import (
    RefEvent,
    RefInfo,
    RefLayout,
    StackTable,
    StackTableLayout,
)

SEVEN = RefLayout(
    object_header=Field(0, 8),
    next_ref=Field(8, 8),
    image_file_name=0x10,
    image_file_name_size=16,
    next_pos=Field(0x20, 2),
    max_stacks=Field(0x22, 2),
    stack_info=0x24,
    event_size=12,
    sequence=Field(0, 4),
    trace_index=Field(4, 2),
    num_traces=Field(6, 2),
    tag=Field(8, 4),
)
VISTA = SEVEN._replace(event_size=8, tag=None)
TABLE = StackTableLayout(
    pointer_size=8,
    num_stack_traces=Field(0, 2),
    blocks=8,
    block_count=16,
    trace_size=0x80,
    max_depth=16,
)
TABLE_X86 = TABLE._replace(pointer_size=4, blocks=4, trace_size=0x40)

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
EVENTS = st.lists(st.tuples(U32, U16, U16, U32), max_size=6)


@given(EVENTS, st.binary(max_size=11))
def test_events_of_7(events: List[Tuple[int, int, int, int]], rest: bytes) -> None:
    data = b"".join(struct.pack("<IHHI", *event) for event in events) + rest
    assert objecttrace.decode_events(data, SEVEN) == [
        RefEvent(sequence, index >= 0x8000, index & 0x7FFF, number, tag)
        for sequence, index, number, tag in events
    ]


@given(EVENTS)
def test_events_of_vista_have_no_tag(events: List[Tuple[int, int, int, int]]) -> None:
    data = b"".join(struct.pack("<IHH", *event[:3]) for event in events)
    found = objecttrace.decode_events(data, VISTA)
    assert [event.tag for event in found] == [None] * len(events)
    assert [(event.sequence, event.num_traces) for event in found] == [event[:3:2] for event in events]


def test_ref_info() -> None:
    data = struct.pack("<QQ16sHH", 0xFFFF800000001000, 0xFFFF800000002000, b"lsass.exe\0junk", 3, 8)
    assert objecttrace.decode_ref_info(data, SEVEN) == RefInfo(
        0xFFFF800000001000, 0xFFFF800000002000, b"lsass.exe", 3, 8
    )
    with pytest.raises(ValueError, match="ends before"):
        objecttrace.decode_ref_info(data[:-1], SEVEN)


@pytest.mark.parametrize("layout", [TABLE, TABLE_X86])
def test_a_trace_lies_in_the_block_of_its_number(layout: StackTableLayout) -> None:
    blocks = tuple(0x10000 * n for n in range(1, 17))
    pointers = struct.pack(f"<16{'Q' if layout.pointer_size == 8 else 'I'}", *blocks)
    data = struct.pack("<HH", 5000, 16381).ljust(layout.blocks, b"\0") + pointers
    table = objecttrace.decode_stack_table(data, layout)
    assert table == StackTable(5000, blocks)
    assert objecttrace.locate_trace(table, 0, layout) == blocks[0]
    assert objecttrace.locate_trace(table, 1023, layout) == blocks[0] + 1023 * layout.trace_size
    assert objecttrace.locate_trace(table, 1024, layout) == blocks[1]
    assert objecttrace.locate_trace(table, 4999, layout) == blocks[4] + 903 * layout.trace_size
    assert objecttrace.locate_trace(table, 5000, layout) is None
    with pytest.raises(ValueError, match="ends before"):
        objecttrace.decode_stack_table(data[:-1], layout)


@given(U16, U16, st.lists(st.integers(0, 2), min_size=16, max_size=16))
def test_no_number_leads_out_of_the_blocks(count: int, number: int, blocks: List[int]) -> None:
    address = objecttrace.locate_trace(StackTable(count, tuple(blocks)), number, TABLE)
    if address is not None:
        assert number < min(count, 16381)
        assert 0 <= address - blocks[number // 1024] < 1024 * 0x80
        assert blocks[number // 1024]


@given(st.lists(st.integers(1, (1 << 64) - 1), max_size=16))
def test_trace_is_padded_with_zeros(frames: List[int]) -> None:
    data = struct.pack("<16Q", *frames, *(0,) * (16 - len(frames)))
    assert objecttrace.decode_trace(data, TABLE) == tuple(frames)


def test_bucket_counts_from_the_body() -> None:
    assert objecttrace.bucket_of(0xFFFF800000000000, 0x30) == 3
    assert objecttrace.bucket_of(0xFFFF800000000000 + 401 * 16, 0x30) == 3
    assert objecttrace.bucket_of(0xFFFF80000FFFFFD0, 0x30) == (0x1000000 & 0xFFFFF) % 401


def test_tag_reads_as_in_memory() -> None:
    assert objecttrace.tag_text(int.from_bytes(b"Dflt", "little")) == "Dflt"
    assert objecttrace.tag_text(int.from_bytes(b"Ob\0\0", "little")) == "Ob"


@given(st.integers(0, 401))
def test_buckets_are_pointers(count: int) -> None:
    heads = list(range(count))
    assert objecttrace.decode_buckets(struct.pack(f"<{count}Q", *heads), 8) == heads
    assert objecttrace.decode_buckets(struct.pack(f"<{count}I", *heads), 4) == heads
