# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Extended blocks (Vista and later): what an interceptor puts between a header and the caller's bytes.

The caller's bytes are preceded by a second, plain `_HEAP_ENTRY` (ExtendedBlockSignature 5) that says how many
units back the real one is. Between them lies what the interceptor keeps: a pointer to a record of the heap's
log, or (7 to 8.1) the trace itself. The pointer is tried first; if no record confirms it, the trace within
the block. The interceptor's number does not tell, for it changed in Windows 10: until 8.1 index 1 is the
trace itself and 2 the log, from Windows 10 on index 1 is the log.

Measured on blocks that ntdll of 7601.24384 and 19044.1766 (x64) made.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Optional, Tuple

from ...memory.decode.memory import Memory
from ...memory.decode.structure import Structures
from .trace import HASH, BlockTrace, Traces

SIGNATURE = 5
EXTENDED = 0x40  # in UnusedBytes: the rest is the EntryOffset
VIRTUAL = 4  # the UnusedBytes of a virtual-alloc block, whose EntryOffset is in SegmentOffset

_INLINE_FUNCTION = 1


class ExtendedTypes:
    """The second header of an extended block (Vista and later), a `_HEAP_ENTRY` again.

    Attributes:
        unit: its size
        members: reads FunctionIndex, ContextValue, UnusedBytesLength, EntryOffset, ExtendedBlockSignature
        start: offset of the first of them
        back: EntryOffset
        signature: offset of the byte ExtendedBlockSignature
    """

    def __init__(self, types: Structures) -> None:
        entry = types["_HEAP_ENTRY"]
        self.unit = entry.size
        self.members = entry.reader(
            "FunctionIndex", "ContextValue", "UnusedBytesLength", "EntryOffset", "ExtendedBlockSignature"
        )
        self.start = entry.offset("FunctionIndex")
        self.back = entry.field("EntryOffset")
        self.signature = entry.offset("ExtendedBlockSignature")


class Extension(NamedTuple):
    """An extended block.

    Attributes:
        header: address of the real _HEAP_ENTRY
        user: address of the caller's bytes
        function: FunctionIndex, the interceptor's number
        context: ContextValue, whatever the interceptor keeps there
        unused: UnusedBytesLength: bytes of the block that are not the caller's
    """

    header: int
    user: int
    function: int
    context: int
    unused: int


def units_before(unused: int, segment: int) -> int:
    """Returns a block's EntryOffset by its header's UnusedBytes and SegmentOffset, 0 if it has none."""
    if unused == VIRTUAL:
        return segment
    return unused & 0x3F if unused & EXTENDED else 0


def read_extension(memory: Memory, header: int, offset: int, types: ExtendedTypes) -> Optional[Extension]:
    """Reads what an extended block's second header says.

    Args:
        memory: the process's
        header: address of the real _HEAP_ENTRY
        offset: its EntryOffset
        types: the structure of the second header

    Returns:
        The extension, or None when it is not present or not one.
    """
    second = header + offset * types.unit
    data = memory.read(second, types.unit)
    if data is None:
        return None
    function, context, unused, back, signature = types.members(data, 0)
    if signature != SIGNATURE or back != offset:
        return None
    return Extension(header, second + types.unit, function, context, unused)


def trace_of(
    memory: Memory, extension: Extension, types: ExtendedTypes, traces: Traces
) -> Optional[BlockTrace]:
    """Returns the trace that an extended block names, or None when it names none."""
    at = extension.header + types.unit
    record = memory.pointer(at)
    trace = traces.record(record) if record else None
    if (trace is None or trace.status) and extension.function == _INLINE_FUNCTION and extension.context:
        end = extension.user - types.unit + types.start
        inline = traces.inline(at, end, extension.context)
        if inline.status != HASH:
            return inline
    return trace


def carve(
    memory: Memory, start: int, end: int, types: ExtendedTypes, traces: Traces
) -> Iterator[Tuple[Extension, BlockTrace]]:
    """Yields the extended blocks in a range whose block headers cannot be trusted.

    Each is proved by the record that it names, or by the trace that it holds: nothing else passes for one.

    Args:
        memory: the process's
        start: where the first block may begin
        end: where the last one ends at the latest
        types: the structure of the second headers
        traces: where the records are
    """
    unit = types.unit
    for low, data in memory.pages(start, end):
        first = -low % unit
        signatures = data[first + types.signature :: unit]
        found = signatures.find(SIGNATURE)
        while found >= 0:
            block = _carved(memory, low + first + found * unit, start, types, traces)
            if block is not None:
                yield block
            found = signatures.find(SIGNATURE, found + 1)


def _carved(
    memory: Memory, second: int, start: int, types: ExtendedTypes, traces: Traces
) -> Optional[Tuple[Extension, BlockTrace]]:
    offset = memory.member(second, types.back)
    header = second - (offset or 0) * types.unit
    if not offset or header < start:
        return None
    extension = read_extension(memory, header, offset, types)
    if extension is None:
        return None
    trace = trace_of(memory, extension, types, traces)
    return None if trace is None or trace.status else (extension, trace)
