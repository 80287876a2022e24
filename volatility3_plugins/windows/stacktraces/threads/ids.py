# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Thread IDs by the addresses of `_ETHREAD` structures."""

from __future__ import annotations

from typing import Dict, Optional

from ..base.image import Image

THREAD_OBJECT = 6
"""ThreadObject of the public enumeration _KOBJECTS."""

LOCK_BIT = 0x80
"""Since 8 this bit of _DISPATCHER_HEADER.Type is the dispatcher's lock."""

MAX_ID = 0xFFFFFFFF
"""Process and thread IDs have 32 bits, but are stored in pointers."""


def identifier(value: Optional[int]) -> Optional[int]:
    """Returns a stored process or thread ID, or None for a value that cannot be an ID."""
    return value if value is not None and value <= MAX_ID else None


class ThreadIds:
    """Looks up thread IDs, each once. Made as `image.part(ThreadIds)`."""

    def __init__(self, image: Image) -> None:
        thread = image.types.find("_ETHREAD")
        self._memory = image.memory(image.kernel)
        self._type = None if thread is None else thread.find("Tcb.Header.Type")
        self._tid = None if thread is None else thread.find("Cid.UniqueThread")
        self._known: Dict[int, Optional[int]] = {}

    def tid(self, ethread: int) -> Optional[int]:
        """Returns the ID of the thread at a canonical address, None if no thread is there."""
        if ethread not in self._known:
            self._known[ethread] = self._read(ethread)
        return self._known[ethread]

    def _read(self, ethread: int) -> Optional[int]:
        if self._type is None or self._tid is None:
            return None
        kind = self._memory.member(ethread, self._type)
        if kind is None or kind & ~LOCK_BIT != THREAD_OBJECT:
            return None
        return identifier(self._memory.member(ethread, self._tid))
