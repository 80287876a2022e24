# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Layouts: offsets, sizes and readers of the structures, looked up once before a database is read.

All values come from our symbol tables by the names of the members. The members that a structure has decide
how it is read, not the version of Windows. All offsets and sizes are in bytes.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, Tuple

from ...memory.decode.structure import INTEGER_CODES, Buffer, Structure, Structures

Values = Callable[[Buffer, int], Tuple[int, ...]]
"""Takes data and the offset of a structure in it; returns the values of certain members of the structure."""

_WHOLE = (1, 2, 4, 8)
_INDEX_BITS = 16
_HEADS = ("_RTL_STD_LIST_HEAD", "_RTL_STD_LIST_HEAD_KERNEL")
_READ = frozenset(
    (
        "CommitBase", "NumberOfBuckets", "LowerMemoryStart", "PreCommitted", "DumpInProgress",
        "NextFreeLowerMemory", "NextFreeUpperMemory", "EntryIndexArray", "CurrentUpperCommitLimit",
        "NumberOfEntriesLookedUp", "NumberOfEntriesAdded",
        "AcquireLockRoutine", "ReleaseLockRoutine", "OkayToLockRoutine",
    )
)  # fmt: skip
"""The members of a database that prove it, bound it, or are shown."""


class EntryLayout:
    """`_RTL_STACK_TRACE_ENTRY`, and the blocks that hold entries.

    Attributes:
        chain: the member HashChain, which holds the address of the next entry
        scan: reads (HashChain, the word that holds TraceCount and BlockDepth, Depth)
        shift: lowest bit of BlockDepth in TraceCount's word; 0 if there is none and Depth gives the size
        sizes: bytes of a block, by BlockDepth; by Depth if there is no BlockDepth
        capacities: frames that fit in a block, by the same number as `sizes`
        saturation: greatest TraceCount, which means "or more"; 0 if the count is 32 bits wide and has no
            limit
        wide: whether entries have IndexHigh, so that the stored index has 32 bits instead of 16
        overwritten: number of frames of a freed block that the free list overwrites; -1 if blocks are never
            freed
    """

    def __init__(self, entry: Structure, pointer_size: int, unit: int) -> None:
        count, back_trace = entry.field("TraceCount"), entry.field("BackTrace")
        block_depth, free_chain = entry.first_member("BlockDepth"), entry.first_member("FreeChain")
        self.pointer_size = pointer_size
        self.head_size = head = back_trace.offset
        self.max_depth = most = back_trace.size // pointer_size
        self.alignment = unit
        self.chain = entry.field("HashChain")
        self.wide = entry.has("IndexHigh")
        self.scan: Values = entry.reader("HashChain", "TraceCount", "Depth")
        index = ("IndexHigh", "Index") if self.wide else ("Index",)
        self.marks: Values = entry.reader("TraceCount", *index)
        self.shift = block_depth.shift if block_depth else 0
        self.sizes = tuple(map(self.size_for, range(1, most + 1) if self.shift else range(most + 1)))
        self.capacities = tuple((size - head) // pointer_size for size in self.sizes)
        code = INTEGER_CODES[pointer_size]
        self.frames: Dict[int, struct.Struct] = {
            depth: struct.Struct(f"<{head}x{depth}{code}") for depth in range(1, most + 1)
        }
        self.count_mask = count.mask if count.mask > 0 else (1 << 8 * count.size) - 1
        self.saturation = self.count_mask if self.shift else 0
        self.overwritten = -1
        if free_chain:
            self.overwritten = max(free_chain.offset + free_chain.size - head, 0) // pointer_size

    def size_for(self, depth: int) -> int:
        """Returns the size of the block that Windows makes for a trace of this depth."""
        return -(-(self.head_size + depth * self.pointer_size) // self.alignment) * self.alignment

    def count_word(self, head: Buffer) -> int:
        """Returns TraceCount as stored, with BlockDepth if they share a word."""
        return self.marks(head, 0)[0]

    def stored_index(self, head: Buffer) -> int:
        """Returns the index that an entry holds."""
        values = self.marks(head, 0)
        return values[1] << _INDEX_BITS | values[2] if self.wide else values[1]

    def is_index(self, stored: int, index: int) -> bool:
        """Returns whether an entry's own index, perhaps only its low 16 bits, agrees with `index`."""
        return stored == (index if self.wide else index & (1 << _INDEX_BITS) - 1)

    def fits(self, word: int, depth: int) -> bool:
        """Returns whether a block has room for `depth` frames; `word` holds its BlockDepth."""
        return not self.shift or depth <= self.capacities[word >> self.shift]


class StdLayout:
    """`_STACK_TRACE_DATABASE` of one generation and bitness. `name` is the generation in the name of our
    table: `5.1`, `5.2`, `6.0`, `6.1`.

    Attributes:
        size: size of the structure as declared, with one bucket
        rank: (number of integer and pointer members, NT version in `name` as numbers); the greatest layout is
            tried first
        values: reads the members in `names`
        bucket_strides: possible distances of two bucket heads: since 6.1, a process and the kernel have
            different ones
        has_start: whether the structure has LowerMemoryStart (6.1 and later)
    """

    def __init__(self, name: str, types: Structures, pointer_size: int) -> None:
        database = types["_STACK_TRACE_DATABASE"]
        self.name = name
        self.types = types
        self.pointer_size = pointer_size
        self.size = database.size
        self.buckets = database.offset("Buckets")
        integers = _integers(database, self.buckets)
        self.names = [item for item in integers if item in _READ]
        self.rank = (len(integers), tuple(map(int, name.split("."))))
        self.values: Values = database.reader(*self.names)
        strides = [head.size for head in map(types.first_structure, _HEADS) if head is not None]
        self.bucket_strides = tuple(strides) or (pointer_size,)
        self.has_start = database.has("LowerMemoryStart")
        # Block sizes are multiples of two pointers since 6.1 (listings of 7601.17514 and later), else of one.
        unit = 2 * pointer_size if self.has_start else pointer_size
        self.entry = EntryLayout(types["_RTL_STACK_TRACE_ENTRY"], pointer_size, unit)


class HeapLogLayout:
    """The heap's trace log: the object behind `RtlpHeapStackTraceLog` and its records.

    Attributes:
        buckets: offset of the array of buckets; a bucket holds the pointers Head and LastHit
        bucket_count: number of buckets, 401
        first, last_hit: positions of Head (the first record of the chain) and LastHit (the record that a
            lookup found last) in a bucket, counted in pointers
        head: reads (Next, Hash, Depth)
        frames: offset of Frames in a record, behind the other members
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        log, record = types["_RTLP_HEAP_STACK_TRACE_LOG"], types["_RTLP_HEAP_STACK_TRACE_RECORD"]
        self.types = types
        self.pointer_size = pointer_size
        self.size = log.size
        self.trace_count = log.field("TraceCount")
        self.buckets = log.offset("Buckets")
        bucket = types["_RTLP_HEAP_STACK_TRACE_BUCKET"]
        self.bucket_size = bucket.size
        self.first, self.last_hit = (bucket.offset(name) // pointer_size for name in ("Head", "LastHit"))
        self.bucket_count = log.field("Buckets").size // self.bucket_size
        self.next, self.hash, self.depth = map(record.field, ("Next", "Hash", "Depth"))
        self.head: Values = record.reader("Next", "Hash", "Depth")
        self.frames = record.offset("Frames")
        self.max_depth = record.field("Frames").size // pointer_size


class BacktracesLayout:
    """`_RTL_PROCESS_BACKTRACES` and `_RTL_PROCESS_BACKTRACE_INFORMATION`.

    Attributes:
        header: packs CommittedMemory, ReservedMemory, NumberOfBackTraceLookups, NumberOfBackTraces
        header_size: offset of BackTraces, the array of records
        record: packs SymbolicBackTrace, TraceCount, Index, Depth
        max_depth: number of frames in the declaration of BackTrace, 32
    """

    def __init__(self, types: Structures, pointer_size: int) -> None:
        buffer, record = types["_RTL_PROCESS_BACKTRACES"], types["_RTL_PROCESS_BACKTRACE_INFORMATION"]
        self.pointer_size = pointer_size
        self.header = buffer.packer(
            "CommittedMemory", "ReservedMemory", "NumberOfBackTraceLookups", "NumberOfBackTraces"
        )
        self.header_size = buffer.offset("BackTraces")
        self.record = record.packer("SymbolicBackTrace", "TraceCount", "Index", "Depth")
        self.record_size = record.size
        self.back_trace = record.offset("BackTrace")
        self.max_depth = record.field("BackTrace").size // pointer_size


def _integers(structure: Structure, end: int) -> List[str]:
    """Returns the names of the integers and pointers before an offset; of two that overlap, the first."""
    integers: List[str] = []
    previous_end = 0
    for field, name in sorted((structure.field(name), name) for name in structure.names):
        if previous_end <= field.offset < end and field.size in _WHOLE:
            integers.append(name)
            previous_end = field.offset + field.size
    return integers
