# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A Stack Trace Database written as Windows writes it: log traces, ask for numbers, release them.

It imitates the allocator of each generation (order of hash chains, index array, block sizes, free lists and
their reuse, lazy numbers, saturated counts, commitment of pages), and is checked by itself, byte by byte,
against databases that Windows code wrote.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from . import std_bytes
from .std_layouts import MAX_DEPTH, PAGE, SATURATED, Layout, layout


@dataclasses.dataclass(frozen=True)
class Entry:
    """A trace that is in the database; `frames` innermost first, index 0: none."""

    index: int
    va: int
    count: int
    depth: int
    hash: int
    bucket: int
    frames: Tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Freed:
    """A released trace that still has its block."""

    index: int
    va: int
    depth: int
    frames: Tuple[int, ...]


@dataclasses.dataclass
class Block:
    """Memory of an entry. `following`: the link that stays in a released one."""

    va: int
    capacity: int
    frames: Tuple[int, ...] = ()
    count: int = 0
    index: int = 0
    following: int = 0


class Std:
    """A database that can be logged into.

    Args:
        name: generation: `5.1`, `5.2`, `6.0`, `6.1`
        arch: `x86` or `x64`
        base: its address, a multiple of 64 KB
        kernel: the kernel's variant: one committed block, its rest old pool data
        reserve: bytes; default 24 MB (16 MB before 6.1 on x86), in a kernel 2 MB
        bucket_count: default that of Windows
        seven: as in Windows 7: a trace whose count is saturated gets another entry, list headers are marked
        unit: of which blocks are multiples, where that is not known (6.0)
        lock: what the Lock member holds (5.x)
    """

    def __init__(
        self,
        name: str = "6.1",
        arch: str = "x64",
        base: int = 0x20000000,
        *,
        kernel: bool = False,
        reserve: Optional[int] = None,
        bucket_count: Optional[int] = None,
        seven: bool = False,
        unit: Optional[int] = None,
        lock: int = 0,
    ) -> None:
        new_layout = layout(name, arch, kernel)
        self.layout: Layout = dataclasses.replace(new_layout, unit=unit) if unit else new_layout
        self.base = base
        self.arch = arch
        self.reserve = reserve or (0x200000 if kernel else 0x1000000 if name == "5.1" else 0x1800000)
        self.bucket_count = bucket_count or self.layout.bucket_count
        self.end = base + self.reserve
        self.seven = seven
        self.lock = lock
        self.first_entry = base + self.layout.first_entry(self.bucket_count)
        self.lower = self.first_entry
        self.upper = self.end
        self.blocks: List[Block] = []
        self._known: Dict[Tuple[int, ...], Block] = {}
        self.chains: Dict[int, List[Block]] = {}
        self.slots: List[Block] = []
        self.free: List[List[Block]] = [[] for _ in range(MAX_DEPTH)]
        self.pushes = [0] * MAX_DEPTH
        self._deleted = self._reused = self._failures = 0
        self.lookups = 0
        pages = self.layout.initial_pages * PAGE
        self.lower_limit = base + (pages or -(-(self.first_entry - base) // PAGE) * PAGE)
        self.upper_limit = self.end

    def log(self, frames: Sequence[int], number: bool = True) -> int:
        """Logs a trace, as RtlLogStackBackTrace does.

        Args:
            frames: innermost first; only 32 are recorded
            number: false: as callers do who want no number (6.1); the trace then has none as yet

        Returns:
            The trace's number; 0 when there is none or no room.
        """
        self.lookups += 1
        trace = tuple(frames[:MAX_DEPTH])
        block = self._known.get(trace)
        if block is None or (self.seven and block.count == SATURATED):
            block = self._add(trace)
            if block is None:
                self._failures += 1
                return 0
        elif self.layout.old or block.count < SATURATED:
            block.count += 1
        if (number or not self.layout.lists) and not block.index:
            self._give_number(block)
        return block.index & (0xFFFF if self.layout.old else 0xFFFFFFFF)

    def number(self, frames: Sequence[int]) -> int:
        """Asks for a logged trace's number, and gives it one if it has none (6.1)."""
        block = self._known[tuple(frames[:MAX_DEPTH])]
        if not block.index:
            self._give_number(block)
        return block.index

    def address_of(self, frames: Sequence[int]) -> int:
        """Returns the address of a logged trace's entry."""
        return self._known[tuple(frames[:MAX_DEPTH])].va

    def release(self, frames: Sequence[int]) -> None:
        """Releases a trace once (6.0 and later); a saturated count stays."""
        trace = tuple(frames[:MAX_DEPTH])
        block = self._known[trace]
        if self.layout.old or block.count == SATURATED:
            return
        block.count -= 1
        if block.count:
            return
        chain = self.chains[self.bucket(trace)]
        place = chain.index(block)
        block.following = chain[place + 1].va if place + 1 < len(chain) else 0
        del chain[place]
        del self._known[trace]
        at = min(block.capacity, MAX_DEPTH) - 1
        self.free[at].append(block)
        self.pushes[at] += 1
        self._deleted += 1

    def bucket(self, frames: Iterable[int]) -> int:
        """The bucket in which a trace belongs."""
        return hash_of(frames) % self.bucket_count

    def _add(self, trace: Tuple[int, ...]) -> Optional[Block]:
        block = self._reuse(len(trace)) or self._carve(len(trace))
        if block is None:
            return None
        block.frames, block.count = trace, 1
        chain = self.chains.setdefault(self.bucket(trace), [])
        chain.insert(len(chain) if self.layout.old else 0, block)
        self._known[trace] = block
        return block

    def _reuse(self, depth: int) -> Optional[Block]:
        for blocks in self.free[depth - 1 :]:
            if blocks:
                self._reused += 1
                return blocks.pop()
        return None

    def _carve(self, depth: int) -> Optional[Block]:
        size = self.layout.block_size(depth)
        if self.lower + size > self.upper - self.layout.pointer:
            return None
        block = Block(self.lower, (size - self.layout.head) // self.layout.pointer)
        self.blocks.append(block)
        self.lower += size
        while not self.layout.kernel and self.lower > self.lower_limit:
            self.lower_limit += PAGE
        return block

    def _give_number(self, block: Block) -> None:
        self.slots.append(block)
        block.index = len(self.slots)
        self.upper -= self.layout.pointer
        while not self.layout.kernel and self.upper < self.upper_limit:
            self.upper_limit -= PAGE

    def header(self) -> Dict[str, int]:
        """The header's members by name, as Windows would have them."""
        kernel = self.layout.kernel
        available = sum(map(len, self.free))
        values = {
            "PreCommitted": int(kernel),
            "DumpInProgress": 0,
            "CommitBase": self.base,
            "CurrentLowerCommitLimit": 0 if kernel else self.lower_limit,
            "CurrentUpperCommitLimit": 0 if kernel else self.upper_limit,
            "NextFreeLowerMemory": self.lower,
            "NextFreeUpperMemory": self.upper,
            "NumberOfEntriesLookedUp": self.lookups,
            "NumberOfEntriesAdded": len(self.slots),
            "EntryIndexArray": self.end,
            "NumberOfBuckets": self.bucket_count,
            "LowerMemoryStart": self.first_entry,
            "NumberOfEntriesAllocated": len(self.blocks),
            "NumberOfEntriesAvailable": available,
            "NumberOfEntriesDeleted": self._deleted,
            "NumberOfEntriesReused": self._reused,
            "NumberOfAllocationFailures": self._failures,
            "AcquireLock": 0x7C901000,
            "ReleaseLock": 0x7C9010E0,
            "OkayToLock": 0x7C962000,
        }
        return {name: values[name] for name in self.layout.fields if name in values}

    def entries(self) -> List[Entry]:
        """The live traces, by number, those without one last, by address."""
        live = [self._entry(block) for blocks in self.chains.values() for block in blocks]
        return sorted(live, key=lambda entry: (not entry.index, entry.index, entry.va))

    def freed(self) -> List[Freed]:
        """The released traces, by address."""
        blocks = sorted((block for blocks in self.free for block in blocks), key=lambda block: block.va)
        return [Freed(block.index, block.va, len(block.frames), block.frames) for block in blocks]

    def _entry(self, block: Block) -> Entry:
        total = hash_of(block.frames)
        depth = len(block.frames)
        return Entry(
            block.index, block.va, block.count, depth, total, total % self.bucket_count, block.frames
        )

    def regions(self) -> Dict[int, bytes]:
        """The committed memory, by address: two parts in a process, one in a kernel."""
        return std_bytes.regions(self)


def hash_of(frames: Iterable[int]) -> int:
    """The sum of the low halves of return addresses."""
    return sum(frame & 0xFFFFFFFF for frame in frames) & 0xFFFFFFFF
