# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The threads that wait on an address: for RtlWaitOnAddress, and since Windows 10 for critical sections.

PEB.WaitOnAddressHashTable has 128 buckets. A bucket leads to the newest wait block on the stack of a waiting
thread; the blocks of all addresses of the bucket are linked, older and newer. A block has the address and the
thread's ID. Windows takes the block of a woken thread out at once. 8.1 has such a table in ntdll's data, with
another hash. Source: measured on ntdll's own code, 9600 to 22000 (x64, x86, WoW64); the table is a member of
the PEB in public symbols since 10.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, Optional, Set

from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Structure, integers
from .processview import ProcessView, ThreadView

BUCKETS = 128
_HASH_SHIFT = 5
_LOW_BITS = 3
"""Bits of a bucket that are no part of the pointer: none was seen set."""

BLOCK_BYTES = 0x100
"""Bytes of the inner stack in which the block of a waiting thread begins. Measured: up to 58h in x64."""


PEB_BYTES = 0x1000
"""Bytes from the start of a PEB in which the table is looked for, if it is not at its known place."""


class AddressBlock(NamedTuple):
    """The block of a thread that waits on an address; `at` is the block's own address."""

    at: int
    address: int
    thread_id: int
    older: int
    newer: int
    oldest: int


class AddressTable(NamedTuple):
    """Waiters to which PEB.WaitOnAddressHashTable leads.

    Attributes:
        blocks: the block of each waiting thread by its TID
        in_use: whether any bucket leads to a block that proves itself
        wrong: number of blocks or buckets that contradict the stacks of the threads or the hash
    """

    blocks: Dict[int, AddressBlock]
    in_use: bool
    wrong: int
    readable: bool


class AddressWaits:
    """Reads the wait blocks of addresses of one half of a process."""

    def __init__(self, view: ProcessView, structure: Structure) -> None:
        self._view = view
        self._size = structure.size
        self._read = structure.reader("Address", "ThreadId", "Older", "Newer", "Oldest")

    def block(self, at: int) -> Optional[AddressBlock]:
        """Returns the block at an address, None if it is not there or lies on no stack of its thread."""
        data, owner = self._view.read(at, self._size), self._view.thread_on(at)
        if data is None or owner is None or at % self._view.pointer_size:
            return None
        block = AddressBlock(at, *self._read(data, 0))
        below = owner.sp is not None and at < owner.sp
        return None if below or block.thread_id != owner.tid or not block.address else block

    def table(self, place: int) -> AddressTable:
        """Returns what the table at an address leads to. Threads wait once: blocks are as few as they."""
        size = self._view.pointer_size
        data = self._view.read(place, BUCKETS * size)
        if data is None:
            return AddressTable({}, False, 0, False)
        blocks: Dict[int, AddressBlock] = {}
        wrong = 0
        for number, word in enumerate(integers(data, size)):
            waiting = [word & ~_LOW_BITS] if word else []
            seen: Set[int] = set()
            while waiting:
                at = waiting.pop()
                if not at or at in seen:
                    continue
                seen.add(at)
                block = self.block(at)
                if block is None or bucket_of(block.address) != number or block.thread_id in blocks:
                    wrong += 1
                    continue
                blocks[block.thread_id] = block
                waiting += (block.older, block.newer)
        return AddressTable(blocks, bool(blocks), wrong, True)

    def on_stack(self, thread: ThreadView) -> List[AddressBlock]:
        """Returns what looks like the block of a thread on the innermost part of its stack."""
        size, found = self._view.pointer_size, []
        inner = self._view.innermost(thread, BLOCK_BYTES + self._size)
        for place, (address, tid) in enumerate(zip(inner, inner[1:])):
            links = inner[place + 2 : place + 4]
            if tid == thread.tid and address > 0xFFFF and len(links) == 2 and all(map(self._is_link, links)):
                block = self.block((thread.sp or 0) + place * size)
                if block is not None:
                    found.append(block)
        return found

    def find_table(self, peb: int, blocks: Iterable[AddressBlock]) -> int:
        """Returns the address of the table if it moved within the PEB; 0 if no block leads to one.

        A bucket holds the address of the newest block of its list; the block's address decides the bucket.
        """
        size = self._view.pointer_size
        newest = {block.at: bucket_of(block.address) for block in blocks if not block.newer}
        data = self._view.read(peb, PEB_BYTES) if newest else None
        for number, word in enumerate(integers(data or b"", size)):
            bucket = newest.get(word & ~_LOW_BITS)
            if bucket is not None and bucket <= number and number - bucket + BUCKETS <= PEB_BYTES // size:
                return peb + (number - bucket) * size
        return 0

    def _is_link(self, value: int) -> bool:
        return not value or self._view.thread_on(value) is not None


def bucket_of(address: int) -> int:
    """Returns the bucket of an address in PEB.WaitOnAddressHashTable."""
    return address >> _HASH_SHIFT & BUCKETS - 1


def led_to(words: Iterable[int], blocks: Iterable[AddressBlock]) -> Set[int]:
    """Returns the addresses of the blocks to which words of ntdll's data lead, directly or through others."""
    known = {block.at: block for block in blocks}
    found: Set[int] = set()
    waiting = [word & ~_LOW_BITS for word in words if word & ~_LOW_BITS in known]
    while waiting:
        at = waiting.pop()
        block = known.get(at)
        if block is None or at in found:
            continue
        found.add(at)
        waiting += (block.older, block.newer)
    return found
