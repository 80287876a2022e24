# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ntdll's unload events, by place and by shape."""

from __future__ import annotations

import struct
from typing import Dict, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge.unloaded import UnloadedDll, unload_trace
from tests.support import bare
from tests.support.deep import rounds
from winstacks.names.decode import unloadevents

USER_END = {8: 1 << 47, 4: 0x80000000}
KINDS = [(8, False, 0), (8, True, 1), (4, False, 0), (4, True, 1)]
"""Pointer size, layout of before Vista, position of the layout."""


def dlls(count: int) -> List[UnloadedDll]:
    return [
        UnloadedDll(f"library{number}.dll", 0x10000000 + number * 0x100000, 0x8000, 0x5F000000)
        for number in range(count)
    ]


@pytest.mark.parametrize("pointer_size, old, position", KINDS)
@pytest.mark.parametrize("count", [1, 15, 16, 17, 40])
def test_the_ring_proves_itself(pointer_size: int, old: bool, position: int, count: int) -> None:
    layout = bare.event_layouts(pointer_size)[position]
    data = unload_trace(dlls(count), 8 * pointer_size, old=old)
    assert len(data) == unloadevents.EVENTS * layout.size
    events = unloadevents.read_events(memoryview(data), layout, USER_END[pointer_size])
    assert events is not None
    assert [(event.sequence, event.name) for event in events] == [
        (number, f"library{number}.dll") for number in range(count)
    ][-16:]


@pytest.mark.parametrize("pointer_size, old, position", KINDS)
def test_the_ring_is_found_in_a_modules_data(pointer_size: int, old: bool, position: int) -> None:
    data = bytes(range(256)) * 2 + unload_trace(dlls(20), 8 * pointer_size, old=old) + b"\x11" * 512
    found = list(
        unloadevents.find_ring(memoryview(data), bare.event_layouts(pointer_size), USER_END[pointer_size])
    )
    assert found == [512]


@pytest.mark.parametrize(
    "offset, value",
    [
        (0, struct.pack("<Q", 0x10000123)),  # BaseAddress not aligned
        (0, struct.pack("<Q", 1 << 50)),  # not a user's
        (8, struct.pack("<Q", 0)),  # SizeOfImage
        (8, struct.pack("<Q", 0x8001)),
        (0x10, struct.pack("<I", 5)),  # Sequence of another slot
        (0x10, struct.pack("<I", 32)),  # a sequence that leaves a gap
        (0x1C, b"\x01\x00"),  # ImageName
        (0x68, bytes(8)),  # an event, then none, then one
    ],
)
def test_one_wrong_element_is_no_ring(offset: int, value: bytes) -> None:
    data = bytearray(unload_trace(dlls(3), 64))
    data[offset : offset + len(value)] = value
    layout = bare.event_layouts(8)[0]
    assert unloadevents.read_events(memoryview(data), layout, USER_END[8]) is None
    assert not list(unloadevents.find_ring(memoryview(data), bare.event_layouts(8), USER_END[8]))


def renamed(count: int, names: Dict[int, str], timestamp: int) -> List[UnloadedDll]:
    """So many DLLs, some of them with other names."""
    unloaded = [dll._replace(timestamp=timestamp) for dll in dlls(count)]
    return [event._replace(name=names.get(number, event.name)) for number, event in enumerate(unloaded)]


@pytest.mark.parametrize("pointer_size, old, position", KINDS)
@pytest.mark.parametrize(
    "count, names, timestamp, found",
    [
        (3, {1: "ab"}, 0, True),  # a short name among others
        (3, {0: "", 2: ""}, 0, True),  # DLLs without a name
        (2, {0: "a", 1: "b"}, 0x5F000000, True),  # none is long, all have names and time stamps
        (1, {0: "a"}, 0, False),  # this could be anything
        (1, {0: ""}, 0x5F000000, False),
    ],
)
def test_a_short_name_hides_no_ring(
    pointer_size: int,
    old: bool,
    position: int,
    count: int,
    names: Dict[int, str],
    timestamp: int,
    found: bool,
) -> None:
    unloaded = renamed(count, names, timestamp)
    data = unload_trace(unloaded, 8 * pointer_size, old=old)
    layout = bare.event_layouts(pointer_size)[position]
    events = unloadevents.read_events(memoryview(data), layout, USER_END[pointer_size])
    assert [event.name for event in events or ()] == ([member.name for member in unloaded] if found else [])
    places = unloadevents.find_ring(
        memoryview(data), bare.event_layouts(pointer_size), USER_END[pointer_size]
    )
    assert list(places) == ([0] if found else [])


def test_an_empty_ring_proves_nothing_and_a_known_one_is_salvaged() -> None:
    layout = bare.event_layouts(8)[0]
    assert unloadevents.read_events(memoryview(bytes(16 * layout.size)), layout, USER_END[8]) is None
    data = bytearray(unload_trace(dlls(5), 64))
    data[layout.size * 2 + 0x1C] = 1
    events = unloadevents.salvage_events(memoryview(data), layout, USER_END[8])
    assert [event.sequence for event in events] == [0, 1, 3, 4]


@given(st.binary(max_size=4096), st.sampled_from([4, 8]))
def test_noise_holds_no_ring(data: bytes, pointer_size: int) -> None:
    assert not list(
        unloadevents.find_ring(memoryview(data), bare.event_layouts(pointer_size), USER_END[pointer_size])
    )


EVENTS = st.lists(
    st.builds(
        UnloadedDll,
        st.text(
            st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=unloadevents.MIN_NAME, max_size=31
        ),
        st.integers(1, 0x7000).map(lambda number: number << 16),
        st.integers(1, 0x400).map(lambda number: number << 12),
        st.integers(1, 0xFFFFFFFF),
        st.just(0),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=rounds(80), deadline=None, derandomize=True)
@given(EVENTS, st.sampled_from(KINDS), st.integers(0, 64))
def test_any_unloads_come_back(events: List[UnloadedDll], kind: Tuple[int, bool, int], before: int) -> None:
    pointer_size, old, position = kind
    layout = bare.event_layouts(pointer_size)[position]
    ring = unload_trace(events, 8 * pointer_size, old=old)
    read = unloadevents.read_events(memoryview(ring), layout, USER_END[pointer_size])
    assert read is not None
    shown = [(module.sequence, module.name, module.base, module.size) for module in read]
    assert (
        shown == [(number, event.name, event.base, event.size) for number, event in enumerate(events)][-16:]
    )
    data = bytes(8 * before) + ring
    assert 8 * before in unloadevents.find_ring(
        memoryview(data), bare.event_layouts(pointer_size), USER_END[pointer_size]
    )
