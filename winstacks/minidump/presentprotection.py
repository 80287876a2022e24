# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The present protection of the pages of a process in an image, where it differs from the VAD's.

A VAD has the first protection of an allocation. A page table entry shows whether code can run there now.
"""

from __future__ import annotations

import itertools
from typing import Iterator, Optional, Tuple

from volatility3.framework.layers import intel

from ..memory.decode import pagetable
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.image import AddressSpace, Image
from ..memory.pagetables import PageTables
from ..process.regions import PROTECTIONS

_EXECUTABLE = {index for index, name in enumerate(PROTECTIONS) if "EXECUTE" in name}
_READWRITE, _ACCESS = 4, 7
_WIDE = 8


class PresentProtection:
    """Reads page table entries."""

    def __init__(self, image: Image, space: AddressSpace) -> None:
        layer = image.context.layers[space.layer_name]
        tables = PageTables(image.context, layer) if isinstance(layer, intel.Intel) else None
        # An entry of 4 bytes has no bit that forbids execution.
        self._tables = tables if tables is not None and tables.entry_size == _WIDE else None

    def runs(self, start: int, end: int, first: Optional[int]) -> Iterator[Tuple[int, int, int]]:
        """Yields (start, end, protection) of the parts of a range with equal protection, in order.

        Args:
            start, end: a range within one VAD, or outside all, of whole pages
            first: the first protection of the VAD, an index into PROTECTIONS; None outside all VADs. There an
                entry without a present page, and one of 4 bytes, count as PAGE_READWRITE
        """
        position = start
        for protection, pages in itertools.groupby(self._pages(start, end, first)):
            size = PAGE_SIZE * sum(1 for _ in pages)
            yield position, min(position + size, end), protection
            position += size

    def _pages(self, start: int, end: int, first: Optional[int]) -> Iterator[int]:
        tables, address = self._tables, start
        while address < end:
            high = end if tables is None else min((address // tables.span + 1) * tables.span, end)
            count = (high - address + PAGE_SIZE - 1) // PAGE_SIZE
            table = None if tables is None else tables.find_table(address)
            if not table or tables is None:
                yield from itertools.repeat(_READWRITE if first is None else first, count)
            else:
                number = address % tables.span // PAGE_SIZE
                for entry in pagetable.entries(table, _WIDE, number, count):
                    yield _now(entry, first)
            address = high


def _now(entry: int, first: Optional[int]) -> int:
    """Returns the present protection of a page, an index into PROTECTIONS.

    Args:
        entry: its page table entry; one that leads to no page shows nothing
        first: the protection of the VAD, None outside all VADs
    """
    now = pagetable.protection(entry)
    if now is None:
        return _READWRITE if first is None else first
    now &= _ACCESS
    return now if first is None or (now in _EXECUTABLE) != (first in _EXECUTABLE) else first
