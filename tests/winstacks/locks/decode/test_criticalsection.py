# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Critical sections: the structures of both bitnesses, and what LockCount means."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import bare
from winstacks.locks.decode import criticalsection as cs

# Offsets of the members in public ntdll symbols (7601 x64, 17763 x64, 17763 wntdll, XP kernel).
DEBUG_OFFSETS = {4: (0, 2, 4, 8, 0xC, 0x10, 0x14, 0x1C), 8: (0, 2, 8, 0x10, 0x18, 0x20, 0x24, 0x2C)}
SECTION_OFFSETS = {4: (0, 4, 8, 0xC, 0x10, 0x14), 8: (0, 8, 0xC, 0x10, 0x18, 0x20)}

LAYOUTS = {
    size: {
        high: cs.SectionLayout(bare.image(size).process_types(bare.MACHINES[size]), high)
        for high in (False, True)
    }
    for size in (4, 8)
}

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)


def put(buffer: bytearray, offset: int, value: int, size: int) -> None:
    buffer[offset : offset + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


@pytest.mark.parametrize("size", [4, 8])
@given(kind=U16, low=U16, high=U16, pointers=st.tuples(U32, U32, U32), counts=st.tuples(U32, U32))
def test_debug_information(size: int, kind: int, low: int, high: int, pointers: tuple, counts: tuple) -> None:
    layout = LAYOUTS[size][True]
    buffer = bytearray(layout.debug_size)
    values = (kind, low, *pointers, *counts, high)
    for offset, value, width in zip(DEBUG_OFFSETS[size], values, (2, 2, size, size, size, 4, 4, 2)):
        put(buffer, offset, value, width)
    assert layout.debug(bytes(buffer)) == (kind, high << 16 | low, *pointers, *counts)
    assert LAYOUTS[size][False].debug(bytes(buffer)).creator_back_trace_index == low
    assert layout.links == DEBUG_OFFSETS[size][3]


@pytest.mark.parametrize("size", [4, 8])
@given(debug=U32, lock=I32, recursion=I32, owner=U32, semaphore=U32, spin=U32)
def test_section(
    size: int, debug: int, lock: int, recursion: int, owner: int, semaphore: int, spin: int
) -> None:
    layout = LAYOUTS[size][True]
    buffer = bytearray(layout.section_size)
    values = (debug, lock, recursion, owner, semaphore, spin)
    for offset, value, width in zip(SECTION_OFFSETS[size], values, (size, 4, 4, size, size, size)):
        put(buffer, offset, value, width)
    assert layout.section(bytes(buffer)) == values


@pytest.mark.parametrize("size", [4, 8])
def test_resource_counters_follow_the_section_they_start_with(size: int) -> None:
    layout, handle = LAYOUTS[size][True], "Q" if size == 8 else "I"
    native = struct.pack(f"@{layout.section_size}x{handle}I{handle}Ii{handle}", 11, 1, 12, 2, -1, 0x1234)
    assert len(native) == layout.resource_size
    assert layout.resource(native) == (1, 2, -1, 0x1234)


def test_debug_information_and_section_prove_each_other() -> None:
    debug = cs.DebugInfo(0, 5, 0x2000, 0, 0, 0, 0)
    section = cs.CriticalSection(0x1000, -1, 0, 0, 0, 0)
    assert cs.is_pair(0x1000, debug, section)
    assert cs.is_pair(0x1000, debug._replace(type=1), section)
    assert not cs.is_pair(0x1000, debug._replace(type=2), section)
    assert not cs.is_pair(0x1010, debug, section)
    assert not cs.is_pair(0x1000, debug._replace(critical_section=0), section)
    assert not cs.is_pair(0x1000, debug, None)


@pytest.mark.parametrize(
    ("lock_count", "recursion", "held", "waiters"),
    [
        (-1, 0, False, 0),
        (0, 1, True, 0),
        (2, 1, True, 2),
        (4, 3, True, 2),
        (-2, 1, True, 0),
        (-22, 1, True, 5),  # the value that Microsoft's documentation takes apart
        (-3, 0, False, 0),  # released, and a waiter was woken
        (-8, 1, True, 1),
    ],
)
def test_lock_count_of_either_form(lock_count: int, recursion: int, held: bool, waiters: int) -> None:
    assert cs.lock_state(lock_count, recursion) == (held, waiters)


@given(st.booleans(), st.booleans(), st.integers(0, (1 << 29) - 1))
def test_lock_count_since_2003_sp1(held: bool, woken: bool, waiters: int) -> None:
    lock_count = ~(waiters << 2 | (2 if woken else 0) | (1 if held else 0))
    assert cs.lock_state(lock_count, 1) == (held, waiters)


@given(st.integers(1, 1000), st.integers(0, 1000))
def test_lock_count_before_2003_sp1(recursion: int, waiters: int) -> None:
    assert cs.lock_state(recursion + waiters - 1, recursion) == (True, waiters)
