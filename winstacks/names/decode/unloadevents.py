# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decodes ntdll's record of the modules that a process has unloaded: RTL_UNLOAD_EVENT_TRACE.

`RtlpUnloadEventTrace` is a static array of 16 elements in ntdll's data, used as a ring: an event lies in slot
Sequence mod 16. `RtlpUnloadEventTraceEx` (Vista and later) points to a ring of 64. The documentation of
`RtlGetUnloadEventTrace` describes the structure.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence

from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Structure, integers
from .unwindinfo import Bytes

EVENTS = 16
"""Elements of RtlpUnloadEventTrace."""
EVENTS_EX = 64
"""Elements of RtlpUnloadEventTraceEx."""
BASE_ALIGNMENT = 0x10000
MAX_SIZE = 1 << 31
MIN_NAME = 3
"""Least characters of a name that no accidental bytes form: one such name proves a ring, whatever the other
names are."""


class UnloadEvent(NamedTuple):
    """A module that was unloaded. `sequence` is the number of the event; later events have higher numbers."""

    base: int
    size: int
    sequence: int
    timestamp: int
    name: str


class EventLayout:
    """The layout of an element of a ring. `image_size` is the offset of SizeOfImage in an element; the member
    has the size of a pointer."""

    def __init__(self, element: Structure) -> None:
        base, name = element.field("BaseAddress"), element.field("ImageName")
        self.size = element.size
        self.base = base.offset
        self.image_size = element.offset("SizeOfImage")
        self.pointer_size = base.size
        self._numbers = element.reader("BaseAddress", "SizeOfImage", "Sequence", "TimeDateStamp")
        self._name, self._name_end = name.offset, name.offset + name.size

    def empty(self, data: Bytes, start: int) -> bool:
        """Returns whether the element at an offset in data has no base address, like an unused element."""
        return self._numbers(data, start)[0] == 0

    def event(self, data: Bytes, start: int, user_end: int) -> Optional[UnloadEvent]:
        """Returns the event at an offset in data, or None if it is not credible."""
        base, size, sequence, timestamp = self._numbers(data, start)
        if base % BASE_ALIGNMENT or size % PAGE_SIZE or not 0 < size < MAX_SIZE or base + size > user_end:
            return None
        raw = bytes(data[start + self._name : start + self._name_end])
        name, terminated, _ = raw.decode("utf-16-le", "replace").partition("\0")
        if not (terminated or len(name) == len(raw) // 2) or not name.isprintable():
            return None
        return UnloadEvent(base, size, sequence, timestamp, name)


def read_events(data: Bytes, layout: EventLayout, user_end: int) -> Optional[List[UnloadEvent]]:
    """Returns the events of a whole ring by sequence number, None unless the content proves that it is a
    ring.

    Each element must be unused (all zeros) or a credible event in the slot of its sequence number. The
    sequence numbers must be consecutive, and the slots must be used from the first one on. A process chooses
    the names of its DLLs, so a short or empty name must not hide the ring: it is enough that one name has
    MIN_NAME characters, or that every event has a name and a time stamp. `data` has the bytes of the ring:
    `EVENTS` or `EVENTS_EX` elements.
    """
    count = len(data) // layout.size
    events: List[UnloadEvent] = []
    for slot in range(count):
        start = slot * layout.size
        if layout.empty(data, start):
            if any(data[start:]):
                return None
            break
        event = layout.event(data, start, user_end)
        if event is None or event.sequence % count != slot:
            return None
        events.append(event)
    events.sort(key=lambda event: event.sequence)
    if not any(len(event.name) >= MIN_NAME for event in events):
        if not all(event.name and event.timestamp for event in events):
            return None
    if not events or events[-1].sequence - events[0].sequence != len(events) - 1:
        return None
    return events if len(events) == count or events[0].sequence == 0 else None


def salvage_events(data: Bytes, layout: EventLayout, user_end: int) -> List[UnloadEvent]:
    """Returns the credible events of a ring whose address is certain, by sequence number."""
    starts = range(0, len(data) - layout.size + 1, layout.size)
    events = (layout.event(data, start, user_end) for start in starts if not layout.empty(data, start))
    return sorted((event for event in events if event), key=lambda event: event.sequence)


def find_ring(data: memoryview, layouts: Sequence[EventLayout], user_end: int) -> Iterator[int]:
    """Yields the offsets in a module's data at which the content proves the ring `RtlpUnloadEventTrace`.
    `data` has the bytes of the module; their address is a multiple of the pointer size."""
    for layout in layouts:
        width = layout.pointer_size
        count = len(data) // width
        words = integers(data, width)
        last = (count * width - EVENTS * layout.size) // width
        to_base, to_size = layout.base // width, layout.image_size // width
        bases = words[to_base : to_base + last + 1]
        aligned = [index for index, base in enumerate(bases) if base and not base % BASE_ALIGNMENT]
        for index in aligned:
            size = words[index + to_size]
            if bases[index] < user_end and size and not size % PAGE_SIZE:
                start = index * width
                if read_events(data[start : start + EVENTS * layout.size], layout, user_end):
                    yield start
