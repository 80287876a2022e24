# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""RTL_PROCESS_BACKTRACES: the buffer in which Windows returns a whole database.

`NtQuerySystemInformation(SystemStackTraceInformation)` and `RtlQueryProcessBackTraceInformation` fill such a
buffer. The layout is Geoff Chappell's description; the values were measured on the functions of XP to 11.
Pointers have the bitness of the database; all integers are little-endian.
"""

from __future__ import annotations

import itertools
from typing import Iterable, Iterator, List, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import integers
from .layout import BacktracesLayout

_BATCH = 1024


class MalformedBuffer(ValueError):
    """The bytes are not a valid RTL_PROCESS_BACKTRACES."""


class Buffer(NamedTuple):
    """The header of RTL_PROCESS_BACKTRACES. `back_traces` is NumberOfBackTraces, which is also the number of
    records that follow."""

    committed_memory: int
    reserved_memory: int
    lookups: int
    back_traces: int


class BacktraceRecord(NamedTuple):
    """RTL_PROCESS_BACKTRACE_INFORMATION without SymbolicBackTrace, which Windows leaves NULL.

    Attributes:
        trace_index: low 16 bits of the trace's number
        depth: number of return addresses, at most 32
        back_trace: the bytes of these return addresses, as they lie in memory
    """

    trace_count: int
    trace_index: int
    depth: int
    back_trace: bytes

    def frames(self) -> Tuple[int, ...]:
        """Returns the return addresses, innermost first."""
        return integers(self.back_trace, len(self.back_trace) // max(self.depth, 1) or 4)


def encode(buffer: Buffer, records: Iterable[BacktraceRecord], layout: BacktracesLayout) -> Iterator[bytes]:
    """Yields the bytes of RTL_PROCESS_BACKTRACES in pieces of about 256 KB. `records` are the records with
    the indices 1, 2, ... without gaps; an unreadable record has only its index."""
    yield layout.header.pack(*buffer).ljust(layout.header_size, b"\0")
    pack, size = layout.record.pack, layout.record_size
    remaining = iter(records)
    while True:
        batch = [
            (pack(0, count, index & 0xFFFF, depth) + back_trace).ljust(size, b"\0")
            for count, index, depth, back_trace in itertools.islice(remaining, _BATCH)
        ]
        if not batch:
            return
        yield b"".join(batch)


def decode(data: bytes, layout: BacktracesLayout) -> Tuple[Buffer, List[BacktraceRecord]]:
    """Decodes RTL_PROCESS_BACKTRACES. Raises MalformedBuffer if the data ends before the last record, or a
    record has more than 32 frames."""
    if len(data) < layout.header_size:
        raise MalformedBuffer("the header is not complete")
    buffer = Buffer(*layout.header.unpack_from(data))
    if len(data) < layout.header_size + buffer.back_traces * layout.record_size:
        raise MalformedBuffer(f"{buffer.back_traces} records do not fit in {len(data)} bytes")
    return buffer, [_record(data, number, layout) for number in range(buffer.back_traces)]


def _record(data: bytes, number: int, layout: BacktracesLayout) -> BacktraceRecord:
    offset = layout.header_size + number * layout.record_size
    _, count, index, depth = layout.record.unpack_from(data, offset)
    if depth > layout.max_depth:
        raise MalformedBuffer(f"record {number + 1} has {depth} frames, more than {layout.max_depth}")
    start = offset + layout.back_trace
    return BacktraceRecord(count, index, depth, data[start : start + depth * layout.pointer_size])
