# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Session space: kernel memory that only the processes of one session see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .space import Space

if TYPE_CHECKING:
    from .kernel import Kernel


class _SessionMemory(Space):
    def _owner(self, address: int) -> Space:
        return self


class Session:
    """A session; `space` is written with kernel addresses of the session's range."""

    def __init__(self, kernel: Kernel, number: int) -> None:
        self.number = number
        start = 0xFFFFF90000000000 if kernel.bits == 64 else 0xBD000000
        self.space = _SessionMemory(kernel.phys, kernel.bits, start + 0x1000000, start, kernel.space)
        self.block = kernel.obj("_MM_SESSION_SPACE", tag=b"MmSs")
        self.block["SessionId"] = number

    def reserve(self, size: int) -> int:
        """A free range of the session's addresses."""
        return self.space.reserve(size)
