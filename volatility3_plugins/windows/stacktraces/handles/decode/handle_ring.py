# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Handle traces: the ring that `_HANDLE_TABLE.DebugInfo` points to.

Every open, every close and every bad reference of a process with handle tracing (`!htrace -enable`,
Application Verifier) takes the next slot of it: CurrentStackIndex, after it was incremented, modulo the size.
"""

from __future__ import annotations

import struct
from typing import Iterator, NamedTuple, Optional, Tuple, Union

from ...base.decode.extents import Extents
from ...base.decode.field import Field
from ...tracedb.decode.rawstack import without_padding

MAX_ENTRIES = 0x20000
"""The most that ProcessHandleTracing takes (documented in System Informer's phnt)."""

OPEN, CLOSE, BAD_REFERENCE = 1, 2, 3
"""PROCESS_HANDLE_TRACE_OPEN, _CLOSE and _BADREF (phnt)."""


class RingLayout(NamedTuple):
    """`_HANDLE_TRACE_DEBUG_INFO` and `_HANDLE_TRACE_DB_ENTRY`.

    XP has no TableSize: `table_size` is None and `fixed_size` the length of its TraceDb (4096). Since 2003
    TraceDb is declared with one entry. `max_depth` is the length of StackTrace (16).
    """

    pointer_size: int
    current_stack_index: Field
    table_size: Optional[Field]
    fixed_size: int
    trace_db: int
    entry_size: int
    unique_process: Field
    unique_thread: Field
    handle: Field
    type: Field
    stack_trace: int
    max_depth: int

    @property
    def header_size(self) -> int:
        return self.trace_db


class RingHeader(NamedTuple):
    """The counters. `size` is bounded; `status` says so where TableSize is not a size that Windows makes."""

    current_stack_index: int
    size: int
    status: str


class HandleTrace(NamedTuple):
    """One event, newest first.

    `sequence` counts the events of the ring from 1; it is 0 or less where the ring's counter denies an event
    that its slot holds. `frames` are innermost first.
    """

    slot: int
    sequence: int
    unique_process: int
    unique_thread: int
    handle: int
    type: int
    frames: Tuple[int, ...]


class Hole(NamedTuple):
    """Slots one after the other, in the ring's order, that cannot be read though they were used."""

    slots: int


def decode_header(data: bytes, layout: RingLayout) -> RingHeader:
    """Decodes the counters before TraceDb.

    Raises:
        ValueError: when data is too short
    """
    current = layout.current_stack_index.of(data)
    if layout.table_size is None:
        return RingHeader(current, layout.fixed_size, "")
    size = layout.table_size.of(data)
    sound = 0 < size <= MAX_ENTRIES and not size & (size - 1)
    return RingHeader(current, min(size, MAX_ENTRIES), "" if sound else "table size")


def decode_ring(
    memory: Extents, start: int, header: RingHeader, layout: RingLayout
) -> Iterator[Union[HandleTrace, Hole]]:
    """Yields the events of a ring from the newest to the oldest, and the holes between them.

    Args:
        memory: what is there of the ring
        start: address of TraceDb[0]
        header: the counters
        layout: where the members lie
    """
    frames = struct.Struct(f"<{layout.max_depth}{'Q' if layout.pointer_size == 8 else 'I'}")
    missing = 0
    for age in range(header.size):
        sequence = header.current_stack_index - age
        slot = sequence % header.size
        data = memory.read(start + slot * layout.entry_size, layout.entry_size)
        if data is None:
            missing += sequence > 0
            continue
        if missing:
            yield Hole(missing)
            missing = 0
        kind = layout.type.of(data)
        handle = layout.handle.of(data)
        if kind or handle:
            stack = frames.unpack_from(data, layout.stack_trace)
            yield HandleTrace(
                slot,
                sequence,
                layout.unique_process.of(data),
                layout.unique_thread.of(data),
                handle,
                kind,
                without_padding(stack),
            )
    if missing:
        yield Hole(missing)
