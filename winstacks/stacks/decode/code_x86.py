# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 code as it lies in memory: read page by page, each page once."""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from ...memory.decode.pagetable import PAGE_SIZE
from .frames import Read

_MASK = 0xFFFFFFFF
_LONGEST, _LEAD = 16, 24
"""Bytes of the longest instruction, and of those before it that tell something."""
_MAX_PAGES = 1 << 10
"""Pages of code that are kept."""


class CodePages:
    """The code of one address space.

    Args:
        read: reads memory
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._pages: Dict[int, bytes] = {}

    def window(self, address: int) -> Tuple[bytes, int]:
        """Returns bytes around an address, and where in them the address is.

        They hold the whole of an instruction that begins there, and end early where memory is not readable:
        perhaps at that place or before.
        """
        number, at = divmod(address, PAGE_SIZE)
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= _MAX_PAGES:
                self._pages.clear()
            page = self._pages[number] = self.ahead(number * PAGE_SIZE, PAGE_SIZE)
        if page and at <= PAGE_SIZE - _LONGEST:
            return page, at
        # At the end of a page, or of one that is not there as a whole (as in small dumps): what is around.
        before = page[max(at - _LEAD, 0) : at] or self.before(address, _LEAD)
        return before + self.ahead(address, _LONGEST), len(before)

    def ahead(self, address: int, length: int) -> bytes:
        """Returns bytes of code: as many as wanted, or those up to a page border, or none."""
        for wanted in (length, min(length, PAGE_SIZE - address % PAGE_SIZE)):
            data = self._read(address & _MASK, wanted)
            if data is not None:
                return bytes(data)
        return b""

    def before(self, address: int, length: int) -> bytes:
        """Returns bytes of code before an address: as many as wanted, or those of its page."""
        for wanted in (min(length, address), min(length, address % PAGE_SIZE)):
            data = self._read(address - wanted, wanted) if wanted else None
            if data is not None:
                return bytes(data)
        return b""

    def pointer(self, address: int) -> Optional[int]:
        """Returns what a pointer holds, None if it cannot be read."""
        data = self._read(address, 4)
        return None if data is None else int.from_bytes(data, "little")
