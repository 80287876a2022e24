# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Critical sections and their debug information, as a process of either bitness keeps them.

The offsets are the same from Windows XP to 11 (public ntdll symbols, kernel symbols too); only
CreatorBackTraceIndexHigh came with Vista, where XP and 2003 have a spare word.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional

from ...base.decode.field import Buffer

CRITSECT_TYPE = 0
RESOURCE_TYPE = 1
"""RTL_CRITSECT_TYPE and RTL_RESOURCE_TYPE (public header ntrtl.h)."""

_DEBUG = {4: struct.Struct("<HHIIIIIIHH"), 8: struct.Struct("<HH4xQQQIIIHH")}
_SECTION = {4: struct.Struct("<IiiIII"), 8: struct.Struct("<QiiQQQ")}
_RESOURCE = {4: struct.Struct("<24x4xI4xIiI"), 8: struct.Struct("<40x8xI4x8xIiQ")}


class DebugInfo(NamedTuple):
    """`_RTL_CRITICAL_SECTION_DEBUG`; the index has its high part where the structure has one."""

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
    """The counters of an RTL_RESOURCE, whose first member is its critical section (System Informer's phnt).

    `number_of_active` is negative while one thread owns it exclusively, else the number of shared owners.
    """

    number_of_waiting_shared: int
    number_of_waiting_exclusive: int
    number_of_active: int
    exclusive_owner_thread: int


class LockState(NamedTuple):
    """What LockCount says: whether the section is held, by how many threads it is waited for."""

    held: bool
    waiters: int


def links_offset(pointer_size: int) -> int:
    """Returns the offset of ProcessLocksList in the debug information."""
    return 2 * pointer_size


def debug_size(pointer_size: int) -> int:
    return _DEBUG[pointer_size].size


def section_size(pointer_size: int) -> int:
    return _SECTION[pointer_size].size


def resource_size(pointer_size: int) -> int:
    """Returns the bytes of an RTL_RESOURCE that `decode_resource` reads."""
    return _RESOURCE[pointer_size].size


def decode_debug(data: Buffer, pointer_size: int, has_high: bool) -> DebugInfo:
    """Decodes `_RTL_CRITICAL_SECTION_DEBUG`.

    Args:
        data: `debug_size` bytes
        pointer_size: 4 or 8
        has_high: the structure has CreatorBackTraceIndexHigh (Vista and later)
    """
    kind, low, section, flink, blink, entries, contentions, _, high, _ = _DEBUG[pointer_size].unpack(data)
    index = high << 16 | low if has_high else low
    return DebugInfo(kind, index, section, flink, blink, entries, contentions)


def decode_section(data: Buffer, pointer_size: int) -> CriticalSection:
    """Decodes `section_size` bytes of a `_RTL_CRITICAL_SECTION`."""
    return CriticalSection(*_SECTION[pointer_size].unpack(data))


def decode_resource(data: Buffer, pointer_size: int) -> RtlResource:
    """Decodes `resource_size` bytes of an RTL_RESOURCE."""
    return RtlResource(*_RESOURCE[pointer_size].unpack(data))


def is_pair(debug_address: int, debug: DebugInfo, section: Optional[CriticalSection]) -> bool:
    """Tells whether debug information and a critical section prove each other."""
    return (
        debug.type in (CRITSECT_TYPE, RESOURCE_TYPE)
        and debug.critical_section != 0
        and section is not None
        and section.debug_info == debug_address
    )


def lock_state(lock_count: int, recursion_count: int) -> LockState:
    """Reads LockCount, whose form its value shows.

    Before Server 2003 SP1 it is the number of threads that entered or wait, less one. Since then bit 0 clear
    says held, bit 1 clear that a waiter was woken, and the rest is the one's complement of the number of
    waiters, so that it is negative; -1 is free in both forms (Microsoft, "Displaying a Critical Section").
    """
    if lock_count >= 0:
        return LockState(True, max(lock_count + 1 - max(recursion_count, 1), 0))
    return LockState(not lock_count & 1, ~lock_count >> 2)
