# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Object Manager's reference traces (`!obtrace`), Vista SP1 to build 26100.

ObpObjectTable points to 401 chains of `_OBJECT_REF_INFO`, one for each traced object, with an array of
events. An event names a trace by number; ObpStackTable points to the `_STACK_TABLE` that holds the traces.
"""

from __future__ import annotations

import struct
from typing import Iterator, List, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import INTEGER_CODES, Buffer, Structures
from ...memory.decode.text import narrow
from ...tracedb.decode.capture import without_padding

OBJECT_BUCKETS = 401
TRACES_PER_BLOCK = 1024
MAX_TRACES = 16381
"""ObpObjectBuckets, ObpStacksPerBucket and ObpMaxStacks of the kernels of 2015 and 2016. The `_STACK_TABLE`
has room for that many traces in all versions."""

REFERENCE = 0x8000
"""Bit of `_OBJECT_REF_STACK_INFO.Index`: set for a reference, clear for a dereference."""

_INFO, _EVENT = "_OBJECT_REF_INFO", "_OBJECT_REF_STACK_INFO"
_TABLE, _TRACE = "_STACK_TABLE", "_OBJECT_REF_TRACE"
FORM = (_INFO, _EVENT, _TABLE, _TRACE)
"""The structures of this form of traces."""


class RefInfo(NamedTuple):
    """A traced object: its array has room for `max_stacks` events; the first `next_pos` are used."""

    object_header: int
    next_ref: int
    image_file_name: str
    next_pos: int
    max_stacks: int


class RefEvent(NamedTuple):
    """One operation on an object's reference count, which took or dropped `num_traces` references."""

    sequence: int
    reference: bool
    trace: int
    num_traces: int
    tag: Optional[int]


class RefDecoder:
    """Decodes `_OBJECT_REF_INFO` and the `_OBJECT_REF_STACK_INFO` behind it. `types` are the kernel's
    structures; Vista's events have no Tag. `stack_info` is the offset of the first event. Raises
    MissingMemberError if the symbols do not describe them."""

    def __init__(self, types: Structures) -> None:
        info, event = types[_INFO], types[_EVENT]
        self.stack_info = info.offset("StackInfo")
        self.event_size = event.size
        self._info = info.reader("ObjectHeader", "NextRef", "NextPos", "MaxStacks")
        self._name = info.field("ImageFileName")
        self._event = event.reader("Sequence", "Index", "NumTraces")
        self._tag = event.first_member("Tag")

    def info(self, data: Buffer) -> RefInfo:
        """Decodes a traced object."""
        header, next_ref, next_pos, max_stacks = self._info(data, 0)
        name = data[self._name.offset : self._name.offset + self._name.size]
        return RefInfo(header, next_ref, narrow(bytes(name)), next_pos, max_stacks)

    def plausible(self, event: RefEvent, before: Optional[RefEvent], traces: int) -> bool:
        """Returns whether the memory behind the used events holds one more event rather than earlier
        contents. `before` is the event before it, None for the first one."""
        later = before is None or event.sequence > before.sequence
        tag = b"" if event.tag is None else event.tag.to_bytes(4, "little")
        printable = all(32 <= byte < 127 for byte in tag.rstrip(b"\0")) and (
            event.tag is None or bool(event.tag)
        )
        return later and bool(event.num_traces) and event.trace < traces and event.sequence > 0 and printable

    def events(self, data: Buffer) -> Iterator[RefEvent]:
        """Decodes the complete events in data."""
        for base in range(0, len(data) - self.event_size + 1, self.event_size):
            sequence, index, number = self._event(data, base)
            tag = self._tag.value_in(data, base) if self._tag else None
            yield RefEvent(sequence, bool(index & REFERENCE), index & ~REFERENCE, number, tag)


class StackTableDecoder:
    """Decodes `_STACK_TABLE` without its hash area, and the `_OBJECT_REF_TRACE` in its blocks. `header_size`
    counts the bytes of the table that are decoded. Raises MissingMemberError if the symbols do not describe
    them."""

    def __init__(self, types: Structures, pointer_size: int) -> None:
        table = types[_TABLE]
        blocks = table.field("StackTrace")
        code = INTEGER_CODES[pointer_size]
        self.header_size = blocks.offset + blocks.size
        self.trace_size = types[_TRACE].size
        self.max_depth = self.trace_size // pointer_size
        self._count = table.field("NumStackTraces")
        self._blocks_offset = blocks.offset
        self._blocks = struct.Struct(f"<{blocks.size // pointer_size}{code}")
        self._trace = struct.Struct(f"<{self.max_depth}{code}")

    def table(self, data: Buffer) -> Tuple[int, Tuple[int, ...]]:
        """Decodes the head of a table. Returns the number of traces, and the addresses of the blocks that
        hold 1024 each."""
        return self._count.value_in(data), self._blocks.unpack_from(data, self._blocks_offset)

    def locate(self, count: int, blocks: Tuple[int, ...], number: int) -> Optional[int]:
        """Returns the address of a trace, None if the table has no such trace."""
        block, place = divmod(number, TRACES_PER_BLOCK)
        if number >= min(count, MAX_TRACES) or block >= len(blocks) or not blocks[block]:
            return None
        return blocks[block] + place * self.trace_size

    def trace(self, data: Buffer) -> Tuple[int, ...]:
        """Returns the frames of a trace, innermost first."""
        return without_padding(self._trace.unpack_from(data))


def undescribed(types: Structures) -> List[str]:
    """Returns the structures that the kernel's symbols lack: all of them if Windows has another form."""
    return [name for name in FORM if not types.has(name)]


def tag_text(tag: int) -> str:
    """Returns a pool-style tag as text ('Dflt'), its bytes in memory order."""
    return tag.to_bytes(4, "little").rstrip(b"\0").decode("latin-1")


def bucket_of(object_header: int, body_offset: int) -> int:
    """Returns the bucket of an object on x64 (the shift that a 32-bit kernel uses is not established)."""
    return ((object_header + body_offset) >> 4 & 0xFFFFF) % OBJECT_BUCKETS
