# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ntdll's record of the modules that a process has unloaded: RTL_UNLOAD_EVENT_TRACE.

`RtlpUnloadEventTrace` is a static array of 16 in ntdll's data, used as a ring: an event lies in slot
Sequence mod 16. `RtlpUnloadEventTraceEx` (Vista and later) points to a ring of 64. The structure is
documented for `RtlGetUnloadEventTrace`; Version was added in Vista, which on x86 makes an element longer.
"""

from __future__ import annotations

import struct
from typing import Iterator, List, NamedTuple, Optional

from .unwindinfo import Bytes

EVENTS = 16
EVENTS_EX = 64
PAGE = 0x1000
BASE_ALIGNMENT = 0x10000
MAX_SIZE = 1 << 31
MIN_NAME = 3

_X64 = struct.Struct("<QQIII64s8x4x")
_X86 = struct.Struct("<IIIII64s8x")
_X86_BEFORE_VISTA = struct.Struct("<IIIII64s")
LAYOUTS = {8: (_X64,), 4: (_X86, _X86_BEFORE_VISTA)}
"""Pointer size -> the elements there are: 0x68; 0x5C and, before Vista, 0x54 bytes."""


class UnloadEvent(NamedTuple):
    """A module that was at `base` until it was unloaded; the higher `sequence` is the later."""

    base: int
    size: int
    sequence: int
    timestamp: int
    name: str


def read_events(data: Bytes, layout: struct.Struct, user_end: int) -> Optional[List[UnloadEvent]]:
    """Decodes a whole ring, or returns None unless every element proves itself.

    An element is all zero or is a credible event in the slot of its sequence number; the numbers of the
    ring are successive, and slots are filled from the first one on.

    Args:
        data: the ring: `EVENTS` or `EVENTS_EX` elements
        layout: one of `LAYOUTS`
        user_end: the first address above the user's half
    """
    count = len(data) // layout.size
    events: List[UnloadEvent] = []
    for slot in range(count):
        fields = layout.unpack_from(data, slot * layout.size)
        if fields[0] == 0:
            if any(data[slot * layout.size :]):
                return None
            break
        event = _event(fields, user_end)
        if event is None or event.sequence % count != slot:
            return None
        events.append(event)
    events.sort(key=lambda event: event.sequence)
    if not events or events[-1].sequence - events[0].sequence != len(events) - 1:
        return None
    return events if len(events) == count or events[0].sequence == 0 else None


def salvage_events(data: Bytes, layout: struct.Struct, user_end: int) -> List[UnloadEvent]:
    """Decodes what is credible of a ring whose place is certain, in the order of the events."""
    fields = (layout.unpack_from(data, start) for start in range(0, len(data) - layout.size + 1, layout.size))
    events = (_event(each, user_end) for each in fields if each[0])
    return sorted((event for event in events if event), key=lambda event: event.sequence)


def find_ring(data: memoryview, pointer_size: int, user_end: int) -> Iterator[int]:
    """Yields the offsets in a module's data at which `RtlpUnloadEventTrace` proves itself.

    Args:
        data: readable data that starts at an address aligned to a pointer
        pointer_size: 4 or 8
        user_end: the first address above the user's half
    """
    for layout in LAYOUTS[pointer_size]:
        whole = len(data) // pointer_size * pointer_size
        words = struct.unpack(f"<{whole // pointer_size}{'Q' if pointer_size == 8 else 'I'}", data[:whole])
        last = (whole - EVENTS * layout.size) // pointer_size
        for index in range(last + 1):
            base, size = words[index], words[index + 1]
            if base and not base % BASE_ALIGNMENT and base < user_end and size and not size % PAGE:
                start = index * pointer_size
                if read_events(data[start : start + EVENTS * layout.size], layout, user_end):
                    yield start


def _event(fields: "tuple[int, int, int, int, int, bytes]", user_end: int) -> Optional[UnloadEvent]:
    base, size, sequence, timestamp, _, raw = fields
    if base % BASE_ALIGNMENT or size % PAGE or not 0 < size < MAX_SIZE or base + size > user_end:
        return None
    name, terminated, _ = raw.decode("utf-16-le", "replace").partition("\0")
    if len(name) < (MIN_NAME if terminated else EVENTS * 2) or not name.isprintable():
        return None
    return UnloadEvent(base, size, sequence, timestamp, name)
