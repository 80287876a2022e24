# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The shadow stack of a thread in a dump: its return addresses, if the dump has its memory.

Windows writes the pointer into the XSTATE area of a thread's CONTEXT (`traps/decode/xstate.py`). Dumps of
processes with shadow stacks have their memory in the list of memory (measured: a dump of 10.0.22000).
"""

from __future__ import annotations

import struct
from typing import Iterator, Sequence

from ..memory.decode.machine import Machine
from ..process.thread import SavedContext
from ..traps.decode.xstate import shadow_pointers
from .decode.dumpfile import Minidump
from .decode.memory import MemoryRange

MAX_ENTRIES = 0x1000
"""The most entries that are read of a shadow stack."""

_USER_END = 1 << 47
_LEAST_ADDRESS = 0x10000
"""Windows maps nothing below it."""


def with_shadow(dump: Minidump, ranges: Sequence[MemoryRange], saved: SavedContext) -> SavedContext:
    """Returns registers together with the return addresses of the shadow stack to which they lead.

    Args:
        dump: the file
        ranges: the memory of the dump, sorted and disjoint
        saved: an x64 CONTEXT of user mode; any other is returned as it is
    """
    if saved.machine is not Machine.AMD64:
        return saved
    for pointer in shadow_pointers(saved.data):
        for start, offset, length in ranges:
            if start <= pointer < start + length:
                size = min(start + length - pointer, 8 * MAX_ENTRIES)
                data = dump.available(offset + pointer - start, size)
                found = tuple(_returns(data, start, start + length))
                if found:
                    return saved._replace(shadow=found)
    return saved


def _returns(data: bytes, start: int, end: int) -> Iterator[int]:
    """Yields the return addresses of a shadow stack that lies between two addresses.

    Tokens and pointers to the stack itself are none; another value is the end of the stack.
    """
    for (value,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        if start <= value & -8 < end:
            continue
        if not _LEAST_ADDRESS <= value < _USER_END:
            return
        yield value
