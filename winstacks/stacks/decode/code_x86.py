# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""x86 code in memory: read page by page, each page once."""

from __future__ import annotations

from typing import Optional, Tuple

from ...memory.decode.memo import Memo
from ...memory.decode.memory import ReadMemory
from ...memory.decode.pagetable import PAGE_SIZE
from ...memory.decode.structure import unsigned

_MASK = 0xFFFFFFFF
_LONGEST, _LEAD = 16, 24
"""Length of the longest instruction, and of the code before it that its decoding needs, in bytes."""
_MAX_PAGES = 1 << 10
"""Number of code pages that are kept."""


class CodePages:
    """The code of one address space."""

    def __init__(self, read: ReadMemory) -> None:
        self._read = read
        self._pages: Memo[int, bytes] = Memo(self._page, _MAX_PAGES)

    def window(self, address: int) -> Tuple[bytes, int]:
        """Returns bytes around an address, and the position of the address in them.

        The bytes hold the whole instruction that begins at the address. They end early if memory is
        unreadable: perhaps at the address or before it.
        """
        number, offset = divmod(address, PAGE_SIZE)
        page = self._pages[number]
        if page and offset <= PAGE_SIZE - _LONGEST:
            return page, offset
        # At the end of a page, or on a page that is only partly present (as in small dumps): the bytes around
        # the address.
        before = page[max(offset - _LEAD, 0) : offset] or self.before(address, _LEAD)
        return before + self.ahead(address, _LONGEST), len(before)

    def ahead(self, address: int, length: int) -> bytes:
        """Returns `length` bytes of code; those up to the page border if not all can be read, or none."""
        for size in (length, min(length, PAGE_SIZE - address % PAGE_SIZE)):
            data = self._read(address & _MASK, size)
            if data is not None:
                return bytes(data)
        return b""

    def before(self, address: int, length: int) -> bytes:
        """Returns `length` bytes of code before an address; if not all are readable, its page's, or none."""
        for size in (min(length, address), min(length, address % PAGE_SIZE)):
            data = self._read(address - size, size) if size else None
            if data is not None:
                return bytes(data)
        return b""

    def pointer(self, address: int) -> Optional[int]:
        """Returns the 32-bit value of a pointer, None if it cannot be read."""
        return unsigned(self._read(address, 4))

    def _page(self, number: int) -> bytes:
        return self.ahead(number * PAGE_SIZE, PAGE_SIZE)
