# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Constants of the stack trace databases that the forge writes.

Kept apart from the symbol tables that the plugins read, so that a wrong offset there cannot hide behind the
same wrong offset here. Sources: public symbols of ntdll (6.0 and later); code of ntdll and ntoskrnl of XP
SP3, 2003 SP2 and 7 to 11, executed or read.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, Tuple

PAGE = 0x1000
MAX_DEPTH = 32
SATURATED = 0x7FF


@dataclasses.dataclass(frozen=True)
class Layout:
    """One generation and bitness, of a process or a kernel.

    Attributes:
        name: as `windows.gflags` shows it
        pointer: size of a pointer
        fields: (offset, size) of the header's members by public name
        buckets: offset of the first bucket head
        stride: distance of two bucket heads
        declared: size of the structure as symbols declare it
        head: bytes before an entry's first frame
        unit: of which blocks are multiples; frames are aligned to it
        initial_pages: committed when a process creates its database; 0: header and buckets
        bucket_count: what Windows uses by default
    """

    name: str
    pointer: int
    kernel: bool
    fields: Dict[str, Tuple[int, int]]
    buckets: int
    stride: int
    declared: int
    head: int
    unit: int
    initial_pages: int
    bucket_count: int

    @property
    def old(self) -> bool:
        """NT 5.x: 32-bit counts, 16-bit indices, nothing is ever freed, chains grow at the tail."""
        return self.name.startswith("5")

    @property
    def lists(self) -> bool:
        """6.1 and later: a singly linked list header per size, and a marker where the entries begin."""
        return self.name == "6.1"

    def first_entry(self, bucket_count: int) -> int:
        """Offset of the first entry."""
        if not self.lists:
            return self.buckets + self.stride * bucket_count
        end = self.declared + self.stride * bucket_count
        return -(-end // self.unit) * self.unit + (-self.head) % self.unit

    def block_size(self, depth: int) -> int:
        """Bytes that a block for a trace of this depth takes."""
        return -(-(self.head + depth * self.pointer) // self.unit) * self.unit


def _common(pointer: int) -> Dict[str, Tuple[int, int]]:
    if pointer == 4:
        start, lower, numbers = 0x44, 0x48, 0x5C
    else:
        start, lower, numbers = 0x80, 0x88, 0xB0
    limits = ("CommitBase", "CurrentLowerCommitLimit", "CurrentUpperCommitLimit")
    pointers = (*limits, "NextFreeLowerMemory", "NextFreeUpperMemory")
    fields = {name: (lower + place * pointer, pointer) for place, name in enumerate(pointers)}
    fields["PreCommitted"], fields["DumpInProgress"] = (start, 1), (start + 1, 1)
    fields["NumberOfEntriesLookedUp"] = (numbers, 4)
    fields["NumberOfEntriesAdded"] = (numbers + 4, 4)
    fields["EntryIndexArray"] = (numbers + 8, pointer)
    return fields


def _old(name: str, pointer: int, kernel: bool) -> Layout:
    at = 0x68 if pointer == 4 else 0xC0
    fields = dict(_common(pointer), NumberOfBuckets=(at, 4))
    if name == "5.1":
        fields.update(AcquireLock=(0x38, 4), ReleaseLock=(0x3C, 4), OkayToLock=(0x40, 4))
    buckets = at + pointer
    pages = {"5.1": 1, "5.2": 2 if pointer == 4 else 4}[name]
    count = 137 if name == "5.1" else 1567
    head = 0xC if pointer == 4 else 0x10
    return Layout(
        name, pointer, kernel, fields, buckets, pointer, buckets + pointer, head, pointer, pages, count
    )


def _vista(pointer: int, kernel: bool) -> Layout:
    at = 0x68 if pointer == 4 else 0xC0
    fields = _common(pointer)
    names = ("NumberOfEntriesDeleted", "NumberOfEntriesAvailable", "NumberOfEntriesReused")
    for place, name in enumerate((*names, "NumberOfAllocationFailures")):
        fields[name] = (at + 4 * place, 4)
    fields["FreeLists"] = (0x78 if pointer == 4 else 0xD0, pointer)
    fields["NumberOfBuckets"] = (0xF8 if pointer == 4 else 0x1D0, 4)
    buckets, declared = (0xFC, 0x100) if pointer == 4 else (0x1D8, 0x1E0)
    head = 0xC if pointer == 4 else 0x10
    # How many buckets Vista has and how it rounds blocks is not known.
    return Layout("6.0", pointer, kernel, fields, buckets, pointer, declared, head, pointer, 0, 1567)


def _seven(pointer: int, kernel: bool) -> Layout:
    at = 0x68 if pointer == 4 else 0xC0
    fields = _common(pointer)
    fields["LowerMemoryStart"] = (0x40 if pointer == 4 else 0x78, pointer)
    names = ("NumberOfEntriesAllocated", "NumberOfEntriesAvailable", "NumberOfAllocationFailures")
    for place, name in enumerate(names):
        fields[name] = (at + 4 * place, 4)
    fields["FreeLists"] = (0x78 if pointer == 4 else 0xD0, 2 * pointer)
    fields["NumberOfBuckets"] = (0x178 if pointer == 4 else 0x2D0, 4)
    buckets, declared = (0x17C, 0x188) if pointer == 4 else (0x2D8, 0x2F0)
    head = 0xC if pointer == 4 else 0x10
    stride = pointer * (3 if kernel else 2)
    count = 5569 if kernel else 9551
    return Layout("6.1", pointer, kernel, fields, buckets, stride, declared, head, 2 * pointer, 0, count)


def layout(name: str, arch: str, kernel: bool = False) -> Layout:
    """Returns a layout: `5.1` (x86 only), `5.2`, `6.0`, `6.1`; arch `x86` or `x64`."""
    pointer = {"x86": 4, "x64": 8}[arch]
    if name in ("5.1", "5.2"):
        return _old(name, pointer, kernel)
    return _vista(pointer, kernel) if name == "6.0" else _seven(pointer, kernel)


_ARCHS = {"5.1": ("x86",), "5.2": ("x86", "x64"), "6.0": ("x86", "x64"), "6.1": ("x86", "x64")}
ALL = tuple(
    (name, arch, kernel) for name, archs in _ARCHS.items() for arch in archs for kernel in (False, True)
)
"""Arguments of `layout` for everything that there is."""
