# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Layouts of the structures that the decoders take apart.

They hold numbers only; `tracedb.layouts` fills them from our symbol tables, which are their single source.
All offsets and sizes are bytes.
"""

from __future__ import annotations

import functools
import struct
from typing import Dict, NamedTuple, Optional, Tuple

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Member(NamedTuple):
    """An unsigned integer or pointer within a structure."""

    name: str
    offset: int
    size: int


class EntryLayout(NamedTuple):
    """`_RTL_STACK_TRACE_ENTRY`.

    Attributes:
        members: HashChain, TraceCount, IndexHigh (6.0 and later), Index, Depth
        count_bits: width of TraceCount within its word
        block_depth_shift: position of BlockDepth in that word; 0 before 6.0, which has none
        back_trace: offset of BackTrace
        max_depth: frames that BackTrace is declared with
        free_chain: offset of the free list's link, None where nothing is ever freed (5.x)
        free_chain_size: bytes that the link takes
    """

    members: Tuple[Member, ...]
    count_bits: int
    block_depth_shift: int
    back_trace: int
    max_depth: int
    free_chain: Optional[int]
    free_chain_size: int


class StdLayout(NamedTuple):
    """`_STACK_TRACE_DATABASE` of one generation and bitness.

    Attributes:
        name: `5.1`, `5.2`, `6.0` or `6.1`
        pointer_size: 4 or 8
        size: of the structure as declared, with one bucket
        members: the integers and pointers before Buckets
        buckets: offset of Buckets
        bucket_strides: possible distances of two bucket heads; a kernel's differ from a process's since 6.1
        entry: the layout of its entries
    """

    name: str
    pointer_size: int
    size: int
    members: Tuple[Member, ...]
    buckets: int
    bucket_strides: Tuple[int, ...]
    entry: EntryLayout

    def has(self, name: str) -> bool:
        """Tells whether the structure has a member."""
        return any(member.name == name for member in self.members)


class HeapLogLayout(NamedTuple):
    """The heap's trace log: the object behind `RtlpHeapStackTraceLog` and its records.

    Attributes:
        pointer_size: 4 or 8
        size: of the object, buckets included
        trace_count: offset of the number of records (ULONG)
        buckets: offset of the array of {first record, record found last}
        bucket_count: 401
        next, hash, depth, frames: offsets in a record
        max_depth: frames that a record can hold
    """

    pointer_size: int
    size: int
    trace_count: int
    buckets: int
    bucket_count: int
    next: int
    hash: int
    depth: int
    frames: int
    max_depth: int


class BacktracesLayout(NamedTuple):
    """`_RTL_PROCESS_BACKTRACES` and `_RTL_PROCESS_BACKTRACE_INFORMATION`.

    Attributes:
        pointer_size: 4 or 8
        header: CommittedMemory, ReservedMemory, NumberOfBackTraceLookups, NumberOfBackTraces
        header_size: offset of BackTraces
        record: SymbolicBackTrace, TraceCount, Index, Depth
        record_size: of one element
        back_trace: offset of BackTrace in an element
        max_depth: 32
    """

    pointer_size: int
    header: Tuple[Member, ...]
    header_size: int
    record: Tuple[Member, ...]
    record_size: int
    back_trace: int
    max_depth: int


@functools.lru_cache(maxsize=None)
def packer(members: Tuple[Member, ...], tail: str = "", tail_offset: int = 0) -> struct.Struct:
    """Returns the `struct.Struct` of little-endian members in order of their offsets.

    Args:
        members: in any order; they must not overlap
        tail: more format codes, which begin at tail_offset
        tail_offset: not before the end of the last member
    """
    code, end = "<", 0
    for member in sorted(members, key=_offset):
        code += f"{member.offset - end}x{_CODES[member.size]}"
        end = member.offset + member.size
    return struct.Struct(f"{code}{tail_offset - end}x{tail}" if tail else code)


def unpack(members: Tuple[Member, ...], data: bytes) -> Dict[str, int]:
    """Returns the members of a structure by name; data must reach to the end of the last one."""
    names = (member.name for member in sorted(members, key=_offset))
    return dict(zip(names, packer(members).unpack_from(data)))


def _offset(member: Member) -> int:
    return member.offset
