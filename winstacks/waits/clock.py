# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""When a wait began: KTHREAD.WaitTime is the tick count at that time.

Source: public symbols (KTHREAD.WaitTime, KUSER_SHARED_DATA.TickCount, KeMaximumIncrement); that WaitTime has
the low 32 bits of the tick count is described (Microsoft, "!thread").
"""

from __future__ import annotations

from typing import Optional

from ..memory.decode.structure import Field
from ..memory.image import Image
from ..process.thread import Thread

_LOW = (1 << 32) - 1
_MOST_INCREMENT = 10_000_000
"""A tick is at most a second, in units of 100 ns; Windows has 15.6 ms."""


class WaitClock:
    """Converts WaitTime to a time.

    Args:
        image: an image with a kernel
    """

    def __init__(self, image: Image) -> None:
        self._memory = image.memory(image.kernel)
        self._field: Optional[Field] = None
        thread = image.types.first_structure("_ETHREAD")
        shared = image.types.first_structure("_KUSER_SHARED_DATA")
        self._ticks = self._now = self._increment = None
        if thread is None or shared is None:
            return
        self._field = thread.first_member("Tcb.WaitTime")
        base = image.machine.shared_data
        ticks = shared.first_member("TickCountQuad", "TickCount.LowPart", "TickCountLow")
        now = shared.first_member("SystemTime.LowPart", "SystemTime")
        if ticks is not None:
            self._ticks = self._memory.number(base + ticks.offset, 4)
        if now is not None:
            self._now = self._memory.number(base + now.offset, 8)
        address = image.symbol("KeMaximumIncrement")
        self._increment = None if address is None else self._memory.number(address, 4)

    def since(self, thread: Thread) -> Optional[int]:
        """Returns when a thread began to wait, as a FILETIME; None if that is unknown."""
        if self._field is None or not self._ticks or not self._now or not self._increment:
            return None
        if not 0 < self._increment <= _MOST_INCREMENT:
            return None
        began = self._memory.member(thread.ethread, self._field)
        if began is None:
            return None
        distance = (self._ticks - began & _LOW) * self._increment
        return self._now - distance if distance < self._now else None
