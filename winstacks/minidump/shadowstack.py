# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The shadow stack of a thread in a dump: its return addresses, if the dump has its memory.

Windows writes the pointer into the XSTATE area of a thread's CONTEXT (`traps/decode/xstate.py`). Dumps of
processes with shadow stacks have their memory in the list of memory (measured: a dump of 10.0.22000).
"""

from __future__ import annotations

import struct
from typing import Iterator, Sequence, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.status import status
from ..memory.decode.statuscodes import StatusCode
from ..process.thread import SavedContext
from ..traps.decode.xstate import shadow_pointers
from .decode.dumpfile import Minidump
from .decode.memory import MemoryRange, range_at

MAX_ENTRIES = 0x1000
"""The most entries that are read of a shadow stack."""

MAX_BYTES = 1 << 24
"""The most bytes that are read of all shadow stacks, if the file is not smaller: no two share any."""

_USER_END = 1 << 47
_LEAST_ADDRESS = 0x10000
"""Windows maps nothing below it."""


class ShadowStacks:
    """The shadow stacks in the memory of a dump."""

    def __init__(self, dump: Minidump, ranges: Sequence[MemoryRange]) -> None:
        self._dump = dump
        self._ranges = ranges
        self._left = min(dump.size, MAX_BYTES)
        self._read: Memo[int, Tuple[int, ...]] = Memo(self._read_stack)

    def with_shadow(self, saved: SavedContext) -> SavedContext:
        """Returns registers together with the return addresses of the shadow stack to which they lead.

        All shadow stacks together have at most the bytes of the file; the registers of a further one have the
        status `limit`. `saved` is an x64 CONTEXT of user mode; any other is returned as it is.
        """
        if saved.machine is not Machine.AMD64:
            return saved
        for pointer in shadow_pointers(saved.data):
            if self._left < 0 and pointer not in self._read:
                return saved._replace(status=status(saved.status, StatusCode.LIMIT))
            if self._read[pointer]:
                return saved._replace(shadow=self._read[pointer])
        return saved

    def _read_stack(self, pointer: int) -> Tuple[int, ...]:
        """Returns the return addresses from a pointer on, none if the dump lacks its memory."""
        around = range_at(self._ranges, pointer)
        if around is None:
            return ()
        start, offset, length = around
        size = min(start + length - pointer, 8 * MAX_ENTRIES)
        data = self._dump.available(offset + pointer - start, size)
        self._left -= len(data)
        return tuple(_returns(data, start, start + length))


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
