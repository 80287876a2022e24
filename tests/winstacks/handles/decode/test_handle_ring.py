# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The ring of handle traces against a model that writes it as Windows does, and with holes."""

from __future__ import annotations

import struct
from typing import Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.only import only
from tests.support.plainstructures import structures
from winstacks.handles.decode.handle_ring import HandleTrace, RingDecoder
from winstacks.memory.decode.ranges import Extents
from winstacks.memory.decode.status import NOTHING, text
from winstacks.memory.decode.structure import Field

INFO, EVENT = "_HANDLE_TRACE_DEBUG_INFO", "_HANDLE_TRACE_DB_ENTRY"
WIDE = {
    "ClientId.UniqueProcess": Field(0, 8),
    "ClientId.UniqueThread": Field(8, 8),
    "Handle": Field(0x10, 8),
    "Type": Field(0x18, 4),
    "StackTrace": Field(0x20, 0x80),
}
NARROW = {
    "ClientId.UniqueProcess": Field(0, 4),
    "ClientId.UniqueThread": Field(4, 4),
    "Handle": Field(8, 4),
    "Type": Field(0xC, 4),
    "StackTrace": Field(0x10, 0x40),
}


def ring(pointer_size: int, slots: int, info: Dict[str, Field]) -> RingDecoder:
    """A decoder of rings whose TraceDb is declared with so many slots."""
    size = 0xA0 if pointer_size == 8 else 0x50
    start = 0x50 if pointer_size == 8 else 0x30 if "TableSize" in info else 4
    whole = {**info, "TraceDb": Field(start, slots * size)}
    event = WIDE if pointer_size == 8 else NARROW
    types = structures({INFO: (start + slots * size, whole), EVENT: (size, event)})
    return RingDecoder(types, pointer_size)


X64 = ring(8, 1, {"CurrentStackIndex": Field(0x48, 4), "TableSize": Field(4, 4)})
X86 = ring(4, 1, {"CurrentStackIndex": Field(0x2C, 4), "TableSize": Field(4, 4)})
XP = ring(4, 4096, {"CurrentStackIndex": Field(0, 4)})
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


def slot_bytes(event: Event, layout: RingDecoder = X64) -> bytes:
    handle, kind, frames = event
    wide = layout is X64
    padded = [frame << 16 if wide else frame for frame in frames] + [0] * (16 - len(frames))
    form = "<QQQI4x16Q" if wide else "<IIII16I"
    return struct.pack(form, 4 * handle, 4 * handle + 1, handle, kind, *padded)


def filled(events: List[Event], size: int, layout: RingDecoder = X64) -> List[bytes]:
    """The ring after the events: the counter is incremented first and names the slot."""
    slots = [bytes(layout.entry_size)] * size
    for number, event in enumerate(events, 1):
        slots[number % size] = slot_bytes(event, layout)
    return slots


def trace(number: int, event: Event, size: int, layout: RingDecoder = X64) -> HandleTrace:
    handle, kind, frames = event
    if layout is X64:
        frames = tuple(frame << 16 for frame in frames)
    return HandleTrace(number % size, number, 4 * handle, 4 * handle + 1, handle, kind, frames)


@given(EVENTS, st.sampled_from([1, 2, 8, 32]), st.sampled_from(LAYOUTS))
def test_the_ring_yields_what_it_still_holds_newest_first(
    events: List[Event], size: int, layout: RingDecoder
) -> None:
    slots = filled(events, size, layout)
    memory = Extents([(BASE, b"".join(slots))])
    expected = [trace(number, event, size, layout) for number, event in enumerate(events, 1)]
    assert list(layout.events(memory, BASE, len(events), size)) == expected[::-1][:size]


@given(EVENTS, st.sets(st.integers(0, 7)), st.sampled_from(LAYOUTS))
def test_a_hole_counts_the_events_that_are_lost(events: List[Event], lost: set, layout: RingDecoder) -> None:
    slots = filled(events, 8, layout)
    size = layout.entry_size
    memory = Extents((BASE + n * size, data) for n, data in enumerate(slots) if n not in lost)
    found = list(layout.events(memory, BASE, len(events), 8))
    held = [trace(number, event, 8, layout) for number, event in enumerate(events, 1)][::-1][:8]
    assert [event for event in found if isinstance(event, HandleTrace)] == [
        event for event in held if event.slot not in lost
    ]
    holes = [hole for hole in found if isinstance(hole, int)]
    assert sum(holes) == sum(event.slot in lost for event in held)
    assert all(holes)
    assert not any(isinstance(a, int) and isinstance(b, int) for a, b in zip(found, found[1:]))


def test_an_event_that_the_counter_denies_is_kept() -> None:
    slots = [slot_bytes((n, 1, (n,))) for n in range(1, 5)]
    found = list(X64.events(Extents([(BASE, b"".join(slots))]), BASE, 2, 4))
    assert [(event.sequence, event.slot) for event in found if isinstance(event, HandleTrace)] == [
        (2, 2),
        (1, 1),
        (0, 0),
        (-1, 3),
    ]


NO_EVENT = {
    "an odd process": (5, 8, 1, 1 << 63),
    "no process": (0, 8, 1, 1 << 63),
    "a process above 32 bits": (1 << 32, 8, 1, 1 << 63),
    "an odd thread": (4, 9, 1, 1 << 63),
    "no thread": (4, 0, 1, 1 << 63),
    "a thread above 32 bits": (4, 1 << 32, 1, 1 << 63),
    "no type": (4, 8, 0, 1 << 63),
    "a type that is unknown": (4, 8, 4, 1 << 63),
    "a user's frame": (4, 8, 1, 1 << 46),
}
"""Process, thread, type and innermost frame behind the end of a ring that prove no event together."""


@pytest.mark.parametrize("slot", [*NO_EVENT, "an event"])
def test_what_proves_an_event_behind_the_end(slot: str) -> None:
    process, thread, kind, frame = NO_EVENT.get(slot, (4, 8, 1, 1 << 63))
    data = struct.pack("<QQQI4x16Q", process, thread, 0x84, kind, frame, *(0,) * 15)
    memory = Extents([(BASE + 4 * len(data), data)])
    assert X64.true_size(memory, BASE, 5, 4) == (8 if slot == "an event" else 4)  # type: ignore[arg-type]


def test_a_recorded_zero_is_not_padding() -> None:
    data = struct.pack("<QQQI4x16Q", 4, 5, 8, 1, 0x10, 0, 0x20, *(0,) * 13)
    event = only(X64.events(Extents([(BASE, data)]), BASE, 1, 1))
    assert isinstance(event, HandleTrace)
    assert event.frames == (0x10, 0, 0x20)


def test_xp_has_4096_slots_behind_its_only_counter() -> None:
    assert XP.header(struct.pack("<I", 4097)) == (4097, 4096, NOTHING)
    slot = struct.pack("<IIII16I", 4, 8, 0xC, 2, 0x80001000, *(0,) * 15)
    memory = Extents([(BASE + 0x50, slot)])
    found = list(XP.events(memory, BASE, 4097, 4096))
    assert found == [HandleTrace(1, 4097, 4, 8, 0xC, 2, (0x80001000,)), 4095]


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
    current, slots, faults = X64.header(bytes(data))
    assert (current, slots, text(faults)) == (0, size, status)
    assert len(list(X64.events(Extents([]), BASE, current, slots))) == 0


@given(st.binary(max_size=0xA0 * 4), st.integers(0, 0xFFFFFFFF))
def test_any_bytes_make_bounded_events(data: bytes, current: int) -> None:
    found = list(X64.events(Extents([(BASE, data)]), BASE, current, 8))
    assert len(found) <= 9
