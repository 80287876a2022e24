# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds kernel addresses that are mapped to a ROM of the machine.

Option ROMs and the BIOS of a PC lie at physical C0000h-FFFFFh. They belong to no module, but their code may
run in the kernel: QEMU's kvmvapic patches instructions of the kernel to call its option ROM
(pc-bios/optionrom/ kvmvapic.S and hw/i386/kvmvapic.c in QEMU's source; measured on XP SP3, where it runs at
800CA21Dh).
"""

from __future__ import annotations

from volatility3.framework.layers import intel

from ..memory import bulk
from ..memory.decode.memo import Memo
from ..memory.decode.pagetable import PAGE_SIZE
from ..memory.image import Image

START, END = 0xC0000, 0x100000
"""The physical addresses of the area, END exclusive."""

_MAX_KEPT = 1 << 12
"""Pages whose result is kept."""


class RomArea:
    """Finds the kernel addresses that are mapped to the area."""

    def __init__(self, image: Image) -> None:
        layer = image.layer_of(image.kernel)
        self._layer = layer if isinstance(layer, intel.Intel) else None
        self._tables = None if self._layer is None else image.page_tables(self._layer)
        self._pages: Memo[int, bool] = Memo(self._is_rom, _MAX_KEPT)

    def holds(self, address: int) -> bool:
        """Returns whether a canonical kernel address is mapped to the area."""
        return self._pages[address // PAGE_SIZE]

    def _is_rom(self, page: int) -> bool:
        """Returns whether a page, numbered from address 0, is mapped to the area."""
        if self._layer is None or self._tables is None:
            return False
        address = self._tables.physical(bulk.masked(self._layer, page * PAGE_SIZE))
        return address is not None and START <= address < END
