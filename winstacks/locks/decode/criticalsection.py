# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decodes critical sections and their debug information, of either bitness, and builds RTL_PROCESS_LOCKS.

The members have the same offsets from XP to 11 (public symbols of ntdll and of the kernel). Only
CreatorBackTraceIndexHigh is new in Vista; XP and 2003 have a spare word in its place.

RTL_PROCESS_LOCKS is the buffer that SystemLocksInformation and the query of a process's locks return. Its
layout and meaning: Geoff Chappell, "RTL_PROCESS_LOCKS" and "RTL_PROCESS_LOCK_INFORMATION" (3.51 and later).
"""

from __future__ import annotations

import struct
from typing import List, Optional, Sequence

from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Buffer, Structures, signed

_HEADER = {4: struct.Struct("<I"), 8: struct.Struct("<I4x")}
_RECORD = {4: struct.Struct("<IHHIiIIiII"), 8: struct.Struct("<QHH4xQiIIiII")}


class LockRecord(NamedTuple):
    """RTL_PROCESS_LOCK_INFORMATION, members in the structure's order.

    `type` is 0 for a critical section, 1 for a resource; `owning_thread` is a thread ID, 0 if there is none.
    """

    address: int
    type: int
    creator_back_trace_index: int
    owning_thread: int
    lock_count: int
    contention_count: int
    entry_count: int
    recursion_count: int
    number_of_waiting_shared: int
    number_of_waiting_exclusive: int


class TruncatedError(ValueError):
    """A buffer that ends before the records that it announces."""


def encode(records: Sequence[LockRecord], pointer_size: int) -> bytes:
    """Returns the buffer for locks. A value too large for its member is truncated, as Windows does."""
    width = 8 * pointer_size
    parts = [_HEADER[pointer_size].pack(len(records))]
    for record in records:
        parts.append(
            _RECORD[pointer_size].pack(
                _unsigned(record.address, width),
                _unsigned(record.type, 16),
                _unsigned(record.creator_back_trace_index, 16),
                _unsigned(record.owning_thread, width),
                signed(record.lock_count, 32),
                _unsigned(record.contention_count, 32),
                _unsigned(record.entry_count, 32),
                signed(record.recursion_count, 32),
                _unsigned(record.number_of_waiting_shared, 32),
                _unsigned(record.number_of_waiting_exclusive, 32),
            )
        )
    return b"".join(parts)


def decode(data: Buffer, pointer_size: int) -> List[LockRecord]:
    """Decodes a buffer of locks. Raises TruncatedError if the buffer is shorter than its NumberOfLocks
    requires."""
    header, record = _HEADER[pointer_size], _RECORD[pointer_size]
    if len(data) < header.size:
        raise TruncatedError("no header")
    count = header.unpack_from(data)[0]
    if len(data) < header.size + count * record.size:
        raise TruncatedError(f"{count} locks announced")
    return [LockRecord(*record.unpack_from(data, header.size + n * record.size)) for n in range(count)]


def _unsigned(value: int, bits: int) -> int:
    return value & (1 << bits) - 1


CRITSECT_TYPE = 0
RESOURCE_TYPE = 1
"""RTL_CRITSECT_TYPE and RTL_RESOURCE_TYPE (public header ntrtl.h)."""


class DebugInfo(NamedTuple):
    """`_RTL_CRITICAL_SECTION_DEBUG`. The index includes its high part if the structure has one."""

    type: int
    creator_back_trace_index: int
    critical_section: int
    flink: int
    blink: int
    entry_count: int
    contention_count: int


class CriticalSection(NamedTuple):
    """`_RTL_CRITICAL_SECTION`. `owning_thread` is a thread ID."""

    debug_info: int
    lock_count: int
    recursion_count: int
    owning_thread: int
    lock_semaphore: int
    spin_count: int


class RtlResource(NamedTuple):
    """The counters of an RTL_RESOURCE (System Informer's phnt).

    `number_of_active` is negative while one thread owns the resource exclusively, else the number of shared
    owners.
    """

    number_of_waiting_shared: int
    number_of_waiting_exclusive: int
    number_of_active: int
    exclusive_owner_thread: int


class LockState(NamedTuple):
    """The meaning of LockCount: whether the section is held, and how many threads wait for it."""

    held: bool
    waiters: int


def may_own(value: int) -> bool:
    """Returns whether a stored owner may be the ID of a thread, or 0: IDs are multiples of 4 of 32 bits."""
    return value < 1 << 32 and value % 4 == 0


class SectionLayout:
    """The structures of critical sections of one bitness. `has_high` says whether debug information has
    CreatorBackTraceIndexHigh (Vista and later).

    Attributes:
        links: offset of ProcessLocksList in the debug information
        resource_size: bytes of an RTL_RESOURCE up to the last of its members that are read
    """

    def __init__(self, types: Structures, has_high: bool) -> None:
        debug, section = types["_RTL_CRITICAL_SECTION_DEBUG"], types["_RTL_CRITICAL_SECTION"]
        resource = types["_RTL_RESOURCE"]
        owner = resource.field("ExclusiveOwnerThread")
        self.links = debug.offset("ProcessLocksList")
        self.debug_size, self.section_size = debug.size, section.size
        self.resource_size = owner.offset + owner.size
        self._high = debug.field("CreatorBackTraceIndexHigh") if has_high else None
        self._debug = debug.reader(
            "Type", "CreatorBackTraceIndex", "CriticalSection",
            "ProcessLocksList.Flink", "ProcessLocksList.Blink", "EntryCount", "ContentionCount",
        )  # fmt: skip
        self._section = section.reader(
            "DebugInfo", "LockCount", "RecursionCount", "OwningThread", "LockSemaphore", "SpinCount",
        )  # fmt: skip
        self._resource = resource.reader(
            "NumberOfWaitingShared", "NumberOfWaitingExclusive", "NumberOfActive", "ExclusiveOwnerThread",
        )  # fmt: skip

    def debug(self, data: Buffer) -> DebugInfo:
        """Decodes `debug_size` bytes of a `_RTL_CRITICAL_SECTION_DEBUG`."""
        kind, index, *rest = self._debug(data, 0)
        if self._high is not None:
            index |= self._high.value_in(data) << 16
        return DebugInfo(kind, index, *rest)

    def section(self, data: Buffer) -> CriticalSection:
        """Decodes `section_size` bytes of a `_RTL_CRITICAL_SECTION`."""
        return CriticalSection(*self._section(data, 0))

    def resource(self, data: Buffer) -> RtlResource:
        """Decodes `resource_size` bytes of an RTL_RESOURCE."""
        return RtlResource(*self._resource(data, 0))


def is_pair(debug_address: int, debug: DebugInfo, section: Optional[CriticalSection]) -> bool:
    """Returns whether debug information and a critical section prove each other by their pointers."""
    return (
        debug.type in (CRITSECT_TYPE, RESOURCE_TYPE)
        and debug.critical_section != 0
        and section is not None
        and section.debug_info == debug_address
    )


def lock_state(lock_count: int, recursion_count: int) -> LockState:
    """Decodes LockCount. It has two forms, distinguished by its sign; -1 means free in both.

    Before Server 2003 SP1 LockCount is the number of threads that entered or wait, minus one. Since then it
    is negative: bit 0 is clear if the section is held, bit 1 is clear if a waiter was woken, and the other
    bits are the one's complement of the number of waiters (Microsoft, "Displaying a Critical Section").
    """
    if lock_count >= 0:
        return LockState(True, max(lock_count + 1 - max(recursion_count, 1), 0))
    return LockState(not lock_count & 1, ~lock_count >> 2)
