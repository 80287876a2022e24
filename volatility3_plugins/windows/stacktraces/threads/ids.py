# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which thread an `_ETHREAD` is."""

from __future__ import annotations

from typing import Dict, Optional

from volatility3.framework import interfaces

from ..base import members
from ..base.peek import Peek

THREAD_OBJECT = 6
"""ThreadObject of the public enumeration _KOBJECTS."""

LOCK_BIT = 0x80
"""The dispatcher's lock, a bit of _DISPATCHER_HEADER.Type since 8."""

MAX_ID = 0xFFFFFFFF
"""Process and thread IDs have 32 bits, though a pointer holds them."""


def identifier(value: Optional[int]) -> Optional[int]:
    """Returns a process or thread ID as it is stored, None for what can be none."""
    return value if value is not None and value <= MAX_ID else None


class ThreadIds:
    """Looks thread IDs up, each thread once.

    Args:
        context: the context that holds the kernel
        kernel_module_name: the kernel's module
    """

    def __init__(self, context: interfaces.context.ContextInterface, kernel_module_name: str) -> None:
        kernel = context.modules[kernel_module_name]
        wide = context.layers[kernel.layer_name].bits_per_register == 64
        table = kernel.symbol_table_name
        self._peek = Peek(context, kernel.layer_name, 8 if wide else 4)
        self._type = members.find(context, table, "_ETHREAD", "Tcb.Header.Type")
        self._tid = members.find(context, table, "_ETHREAD", "Cid.UniqueThread")
        self._known: Dict[int, Optional[int]] = {}

    def tid(self, ethread: int) -> Optional[int]:
        """Returns the ID of the thread at a canonical address, None if no thread is there."""
        if ethread not in self._known:
            self._known[ethread] = self._read(ethread)
        return self._known[ethread]

    def _read(self, ethread: int) -> Optional[int]:
        if self._type is None or self._tid is None:
            return None
        kind = self._peek.read(ethread + self._type.offset, 1)
        data = self._peek.read(ethread + self._tid.offset, self._tid.size)
        if kind is None or data is None or kind[0] & ~LOCK_BIT != THREAD_OBJECT:
            return None
        return identifier(int.from_bytes(data, "little"))
