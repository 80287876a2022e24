# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ring of handle traces against a model that writes it as Windows does, and with holes."""

from __future__ import annotations

import struct
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from volatility3.plugins.windows.stacktraces.base.decode.extents import Extents
from volatility3.plugins.windows.stacktraces.base.decode.field import Field
from volatility3.plugins.windows.stacktraces.handles.decode.handle_ring import (
    HandleTrace,
    Hole,
    RingHeader,
    RingLayout,
    decode_header,
    decode_ring,
)

X64 = RingLayout(
    pointer_size=8,
    current_stack_index=Field(0x48, 4),
    table_size=Field(4, 4),
    fixed_size=1,
    trace_db=0x50,
    entry_size=0xA0,
    unique_process=Field(0, 8),
    unique_thread=Field(8, 8),
    handle=Field(0x10, 8),
    type=Field(0x18, 4),
    stack_trace=0x20,
    max_depth=16,
)
XP = RingLayout(
    pointer_size=4,
    current_stack_index=Field(0, 4),
    table_size=None,
    fixed_size=4096,
    trace_db=4,
    entry_size=0x50,
    unique_process=Field(0, 4),
    unique_thread=Field(4, 4),
    handle=Field(8, 4),
    type=Field(0xC, 4),
    stack_trace=0x10,
    max_depth=16,
)

X86 = XP._replace(current_stack_index=Field(0x2C, 4), table_size=Field(4, 4), fixed_size=1, trace_db=0x30)
LAYOUTS = [X64, X86, XP]

BASE = 0x10000
Event = Tuple[int, int, Tuple[int, ...]]

EVENTS = st.lists(
    st.tuples(
        st.integers(1, 0xFFFF),
        st.integers(1, 3),
        st.lists(st.integers(1, (1 << 32) - 1), max_size=16).map(tuple),
    ),
    max_size=20,
)


def slot_bytes(event: Event, layout: RingLayout = X64) -> bytes:
    handle, kind, frames = event
    wide = layout.pointer_size == 8
    padded = [frame << 16 if wide else frame for frame in frames] + [0] * (16 - len(frames))
    form = "<QQQI4x16Q" if wide else "<IIII16I"
    return struct.pack(form, 4 * handle, 4 * handle + 1, handle, kind, *padded)


def filled(events: List[Event], size: int, layout: RingLayout = X64) -> Tuple[RingHeader, List[bytes]]:
    """The ring after the events: the counter is incremented first and names the slot."""
    slots = [bytes(layout.entry_size)] * size
    for number, event in enumerate(events, 1):
        slots[number % size] = slot_bytes(event, layout)
    return RingHeader(len(events), size, ""), slots


def trace(number: int, event: Event, size: int, layout: RingLayout = X64) -> HandleTrace:
    handle, kind, frames = event
    if layout.pointer_size == 8:
        frames = tuple(frame << 16 for frame in frames)
    return HandleTrace(number % size, number, 4 * handle, 4 * handle + 1, handle, kind, frames)


@given(EVENTS, st.sampled_from([1, 2, 8, 32]), st.sampled_from(LAYOUTS))
def test_the_ring_yields_what_it_still_holds_newest_first(
    events: List[Event], size: int, layout: RingLayout
) -> None:
    header, slots = filled(events, size, layout)
    memory = Extents([(BASE, b"".join(slots))])
    wanted = [trace(number, event, size, layout) for number, event in enumerate(events, 1)]
    assert list(decode_ring(memory, BASE, header, layout)) == wanted[::-1][:size]


@given(EVENTS, st.sets(st.integers(0, 7)), st.sampled_from(LAYOUTS))
def test_a_hole_counts_the_events_that_are_lost(events: List[Event], lost: set, layout: RingLayout) -> None:
    header, slots = filled(events, 8, layout)
    size = layout.entry_size
    memory = Extents((BASE + n * size, data) for n, data in enumerate(slots) if n not in lost)
    found = list(decode_ring(memory, BASE, header, layout))
    held = [trace(number, event, 8, layout) for number, event in enumerate(events, 1)][::-1][:8]
    assert [event for event in found if isinstance(event, HandleTrace)] == [
        event for event in held if event.slot not in lost
    ]
    holes = [hole.slots for hole in found if isinstance(hole, Hole)]
    assert sum(holes) == sum(event.slot in lost for event in held)
    assert all(holes)
    assert not any(isinstance(a, Hole) and isinstance(b, Hole) for a, b in zip(found, found[1:]))


def test_an_event_that_the_counter_denies_is_kept() -> None:
    slots = [slot_bytes((n, 1, (n,))) for n in range(1, 5)]
    found = list(decode_ring(Extents([(BASE, b"".join(slots))]), BASE, RingHeader(2, 4, ""), X64))
    assert [(event.sequence, event.slot) for event in found if isinstance(event, HandleTrace)] == [
        (2, 2),
        (1, 1),
        (0, 0),
        (-1, 3),
    ]


def test_a_recorded_zero_is_not_padding() -> None:
    data = struct.pack("<QQQI4x16Q", 4, 5, 8, 1, 0x10, 0, 0x20, *(0,) * 13)
    (event,) = decode_ring(Extents([(BASE, data)]), BASE, RingHeader(1, 1, ""), X64)
    assert isinstance(event, HandleTrace)
    assert event.frames == (0x10, 0, 0x20)


def test_xp_has_4096_slots_behind_its_only_counter() -> None:
    header = decode_header(struct.pack("<I", 4097), XP)
    assert header == (4097, 4096, "")
    slot = struct.pack("<IIII16I", 4, 8, 0xC, 2, 0x80001000, *(0,) * 15)
    memory = Extents([(BASE + 0x50, slot)])
    found = list(decode_ring(memory, BASE, header, XP))
    assert found == [HandleTrace(1, 4097, 4, 8, 0xC, 2, (0x80001000,)), Hole(4095)]


@pytest.mark.parametrize(
    ("stored", "size", "status"),
    [
        (4096, 4096, ""),
        (0x20000, 0x20000, ""),
        (0x40000, 0x20000, "table size"),
        (0xFFFFFFFF, 0x20000, "table size"),
        (3, 3, "table size"),
        (0, 0, "table size"),
    ],
)
def test_the_size_is_bounded(stored: int, size: int, status: str) -> None:
    data = bytearray(0x50)
    data[4:8] = stored.to_bytes(4, "little")
    header = decode_header(bytes(data), X64)
    assert header == (0, size, status)
    assert len(list(decode_ring(Extents([]), BASE, header, X64))) == 0


@given(st.binary(max_size=0xA0 * 4), st.integers(0, 0xFFFFFFFF))
def test_any_bytes_make_bounded_events(data: bytes, current: int) -> None:
    found = list(decode_ring(Extents([(BASE, data)]), BASE, RingHeader(current, 8, ""), X64))
    assert len(found) <= 9
