# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The sums of the traces of a process's heaps."""

from __future__ import annotations

from typing import Optional

from ...memory.decode.status import NOTHING, Status, status
from .block import TraceGroup
from .umdh import Change, Total


class ProcessTotal:
    """The sums of the traces of an address space.

    Attributes:
        count, size: number of blocks in use, and of their bytes as far as these are known
        growth: sum of the known growth of stacks; None if no growth is known
    """

    def __init__(self) -> None:
        self.count = self.size = self.unsized = 0
        self.growth: Optional[Total] = None
        self.growth_unknown = False
        self.status: Status = NOTHING

    def add(self, group: TraceGroup, change: Optional[Change]) -> None:
        """Adds the blocks of a trace; freed blocks do not count."""
        if group.freed:
            return
        self.count += group.allocations
        self.size += group.size
        self.unsized += group.unsized
        self.status = status(self.status, group.joined_status)
        if change is not None:
            self._grow(change.allocations, change.size)

    def add_gone(self, before: Total) -> None:
        """Adds a stack of the baseline that no longer has a busy block."""
        self._grow(-before.allocations, -before.size)

    def _grow(self, allocations: Optional[int], size: Optional[int]) -> None:
        if allocations is None or size is None:
            self.growth_unknown = True
            return
        before = self.growth or Total(0, 0)
        self.growth = Total(before.allocations + allocations, before.size + size)
