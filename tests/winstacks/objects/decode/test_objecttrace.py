# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Object traces: the forms of an event, the block that holds a trace, and hostile tables."""

from __future__ import annotations

import struct
from typing import Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.plainstructures import structures
from winstacks.memory.decode.structure import Field
from winstacks.objects.decode import objecttrace
from winstacks.objects.decode.objecttrace import RefDecoder, RefEvent, RefInfo, StackTableDecoder

INFO = {
    "ObjectHeader": Field(0, 8),
    "NextRef": Field(8, 8),
    "ImageFileName": Field(0x10, 16),
    "NextPos": Field(0x20, 2),
    "MaxStacks": Field(0x22, 2),
    "StackInfo": Field(0x24, 0),
}
EVENT = {"Sequence": Field(0, 4), "Index": Field(4, 2), "NumTraces": Field(6, 2)}


def refs(size: int, event: Dict[str, Field]) -> RefDecoder:
    types = {"_OBJECT_REF_INFO": (0x28, INFO), "_OBJECT_REF_STACK_INFO": (size, event)}
    return RefDecoder(structures(types))


def stacks(pointer_size: int) -> StackTableDecoder:
    members = {"NumStackTraces": Field(0, 2), "StackTrace": Field(pointer_size, 16 * pointer_size)}
    types = {"_STACK_TABLE": (0x10000, members), "_OBJECT_REF_TRACE": (16 * pointer_size, {})}
    return StackTableDecoder(structures(types), pointer_size)


SEVEN = refs(12, {**EVENT, "Tag": Field(8, 4)})
VISTA = refs(8, EVENT)
TABLE, TABLE_X86 = stacks(8), stacks(4)

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
EVENTS = st.lists(st.tuples(U32, U16, U16, U32), max_size=6)


@given(EVENTS, st.binary(max_size=11))
def test_events_of_7(events: List[Tuple[int, int, int, int]], rest: bytes) -> None:
    data = b"".join(struct.pack("<IHHI", *event) for event in events) + rest
    assert list(SEVEN.events(data)) == [
        RefEvent(sequence, index >= 0x8000, index & 0x7FFF, number, tag)
        for sequence, index, number, tag in events
    ]


@given(EVENTS)
def test_events_of_vista_have_no_tag(events: List[Tuple[int, int, int, int]]) -> None:
    data = b"".join(struct.pack("<IHH", *event[:3]) for event in events)
    found = list(VISTA.events(data))
    assert [event.tag for event in found] == [None] * len(events)
    assert [(event.sequence, event.num_traces) for event in found] == [event[:3:2] for event in events]


def test_an_event_of_what_was_in_the_memory_before_is_none() -> None:
    before, first = RefEvent(6, True, 0, 1, 0x41), RefEvent(7, True, 2, 1, 0x42)
    assert SEVEN.plausible(first, before, traces=3)
    wrong = {
        "before the one before it": first._replace(sequence=6),
        "past the last trace": first._replace(trace=3),
        "without references": first._replace(num_traces=0),
        "without a tag": first._replace(tag=0),
        "with a tag that nobody types": first._replace(tag=0x1F),
    }
    assert [text for text, event in wrong.items() if SEVEN.plausible(event, before, traces=3)] == []
    assert not SEVEN.plausible(first._replace(sequence=0), None, traces=3)


def test_ref_info() -> None:
    data = struct.pack("<QQ16sHH", 0xFFFF800000001000, 0xFFFF800000002000, b"lsass.exe\0junk", 3, 8)
    assert SEVEN.info(data) == RefInfo(0xFFFF800000001000, 0xFFFF800000002000, "lsass.exe", 3, 8)
    with pytest.raises(struct.error, match="requires a buffer"):
        SEVEN.info(data[:-1])


@pytest.mark.parametrize("layout", [TABLE, TABLE_X86])
def test_a_trace_lies_in_the_block_of_its_number(layout: StackTableDecoder) -> None:
    blocks = tuple(0x10000 * n for n in range(1, 17))
    pointers = struct.pack(f"<16{'Q' if layout is TABLE else 'I'}", *blocks)
    data = struct.pack("<HH", 5000, 16381).ljust(8 if layout is TABLE else 4, b"\0") + pointers
    table = layout.table(data)
    assert table == (5000, blocks)
    assert layout.locate(*table, 0) == blocks[0]
    assert layout.locate(*table, 1023) == blocks[0] + 1023 * layout.trace_size
    assert layout.locate(*table, 1024) == blocks[1]
    assert layout.locate(*table, 4999) == blocks[4] + 903 * layout.trace_size
    assert layout.locate(*table, 5000) is None
    with pytest.raises(struct.error, match="requires a buffer"):
        layout.table(data[:-1])


@given(U16, U16, st.lists(st.integers(0, 2), min_size=16, max_size=16))
def test_no_number_leads_out_of_the_blocks(count: int, number: int, blocks: List[int]) -> None:
    address = TABLE.locate(count, tuple(blocks), number)
    if address is not None:
        assert number < min(count, 16381)
        assert 0 <= address - blocks[number // 1024] < 1024 * 0x80
        assert blocks[number // 1024]


@given(st.lists(st.integers(1, (1 << 64) - 1), max_size=16))
def test_trace_is_padded_with_zeros(frames: List[int]) -> None:
    data = struct.pack("<16Q", *frames, *(0,) * (16 - len(frames)))
    assert TABLE.trace(data) == tuple(frames)


def test_bucket_counts_from_the_body() -> None:
    assert objecttrace.bucket_of(0xFFFF800000000000, 0x30) == 3
    assert objecttrace.bucket_of(0xFFFF800000000000 + 401 * 16, 0x30) == 3
    assert objecttrace.bucket_of(0xFFFF80000FFFFFD0, 0x30) == (0x1000000 & 0xFFFFF) % 401


def test_tag_reads_as_in_memory() -> None:
    assert objecttrace.tag_text(int.from_bytes(b"Dflt", "little")) == "Dflt"
    assert objecttrace.tag_text(int.from_bytes(b"Ob\0\0", "little")) == "Ob"
