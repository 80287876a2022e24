# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""When a wait began: KTHREAD.WaitTime is the tick count at that time.

Source: public symbols (KTHREAD.WaitTime, KUSER_SHARED_DATA.TickCount, KeMaximumIncrement); that WaitTime has
the low 32 bits of the tick count is described (Microsoft, "!thread"). An image is no snapshot: a thread may
have begun to wait after the page with the tick count was copied.
"""

from __future__ import annotations

from typing import Optional

from ..memory.image import Image
from ..process.thread import Thread

ACQUISITION = 3600 * 10_000_000
"""An hour, during which a running machine may go on after the page with its clock was copied."""

_LOW = (1 << 32) - 1
_MOST_INCREMENT = 10_000_000
"""A tick is at most a second, in units of 100 ns; Windows has 15.6 ms."""


class WaitClock:
    """Converts WaitTime to a time."""

    def __init__(self, image: Image) -> None:
        self._memory = image.memory(image.kernel)
        self._field = image.types.find("_ETHREAD").first_member("Tcb.WaitTime")
        shared = image.at("_KUSER_SHARED_DATA", image.machine.shared_data)
        # XP has another member behind the low half.
        ticks, size = shared.place("TickCountQuad", "TickCount.LowPart"), 8
        if ticks is None:
            ticks, size = shared.place("TickCountLow"), 4
        self._ticks = self._memory.number(ticks, size)
        self._now = self._memory.number(shared.place("SystemTime.LowPart", "SystemTime"), 8)
        self._increment = self._memory.number(image.symbol("KeMaximumIncrement"), 4)

    def since(self, thread: Thread) -> Optional[int]:
        """Returns when a thread began to wait, as a FILETIME; None if that is unknown."""
        if not self._ticks or not self._now or not self._increment or self._increment > _MOST_INCREMENT:
            return None
        began = self._memory.member(thread.ethread, self._field)
        if began is None:
            return None
        ago = self._ticks - began & _LOW
        if ago <= self._ticks:
            distance = ago * self._increment
            return self._now - distance if distance < self._now else None
        # That would be before the machine was booted.
        ahead = (began - self._ticks & _LOW) * self._increment
        return self._now + ahead if ahead <= ACQUISITION else None
