# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""RTL_PROCESS_LOCKS: the buffer that SystemLocksInformation and the query of a process's locks return.

Layout and meaning: Geoff Chappell, "RTL_PROCESS_LOCKS" and "RTL_PROCESS_LOCK_INFORMATION" (3.51 and later).
"""

from __future__ import annotations

import struct
from typing import List, Sequence

from ...base.decode.record import Record
from ...base.decode.structure import Buffer

_HEADER = {4: struct.Struct("<I"), 8: struct.Struct("<I4x")}
_RECORD = {4: struct.Struct("<IHHIiIIiII"), 8: struct.Struct("<QHH4xQiIIiII")}


class LockRecord(Record):
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
    """A buffer ends before the records that it announces."""


def encode(records: Sequence[LockRecord], pointer_size: int) -> bytes:
    """Returns the buffer for some locks. A value that does not fit into its member is cut, as Windows does.

    Args:
        records: the locks
        pointer_size: 4 or 8
    """
    width = 8 * pointer_size
    parts = [_HEADER[pointer_size].pack(len(records))]
    for record in records:
        parts.append(
            _RECORD[pointer_size].pack(
                _unsigned(record.address, width),
                _unsigned(record.type, 16),
                _unsigned(record.creator_back_trace_index, 16),
                _unsigned(record.owning_thread, width),
                _signed(record.lock_count),
                _unsigned(record.contention_count, 32),
                _unsigned(record.entry_count, 32),
                _signed(record.recursion_count),
                _unsigned(record.number_of_waiting_shared, 32),
                _unsigned(record.number_of_waiting_exclusive, 32),
            )
        )
    return b"".join(parts)


def decode(data: Buffer, pointer_size: int) -> List[LockRecord]:
    """Decodes such a buffer.

    Raises:
        TruncatedError: when it is shorter than its NumberOfLocks says
    """
    header, record = _HEADER[pointer_size], _RECORD[pointer_size]
    if len(data) < header.size:
        raise TruncatedError("no header")
    count = header.unpack_from(data)[0]
    if len(data) < header.size + count * record.size:
        raise TruncatedError(f"{count} locks announced")
    return [LockRecord(*record.unpack_from(data, header.size + n * record.size)) for n in range(count)]


def _unsigned(value: int, bits: int) -> int:
    return value & (1 << bits) - 1


def _signed(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
