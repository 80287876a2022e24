# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Compares the clock of an image with the times of its processes and threads.

Nothing in an image is younger than the image. A clock that is behind was torn, set back or altered, or the
image is put together from two states of the machine. All times are FILETIMEs (100 ns since 1601, UTC).
"""

from __future__ import annotations

import logging
from typing import Iterable, Optional, Tuple

from ..memory.decode.status import NOTHING, Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import is_time, moment
from ..memory.image import AddressSpace, Image
from ..process.processlist import create_time, process_member
from ..process.thread import Thread
from ..waits.clock import ACQUISITION

vollog = logging.getLogger(__name__)

CAPTURE_TIME = "CaptureTime"
"""The column that the status names."""


class NewestTime:
    """The newest time of the processes and threads of an image.

    Attributes:
        time: the time, None if none is known
        owner: process or thread with this time, and what happened then: a phrase
    """

    def __init__(self) -> None:
        self.time: Optional[int] = None
        self.owner = ""

    def add_thread(self, thread: Thread) -> None:
        if self._is_newer(thread.create_time):
            self.time = thread.create_time
            tid = "unknown" if thread.tid is None else thread.tid
            self.owner = f"thread {tid} of process {thread.space.pid_text} was created"

    def add_processes(self, image: Image, spaces: Iterable[AddressSpace]) -> None:
        """Adds the times at which processes were created and ended."""
        for space in spaces:
            ended = process_member(image, space.eprocess, "ExitTime.QuadPart")
            for time, verb in ((create_time(image, space.eprocess), "was created"), (ended, "ended")):
                if self._is_newer(time):
                    self.time, self.owner = time, f"process {space.pid_text} ({space.process}) {verb}"

    def add(self, other: NewestTime) -> None:
        if self._is_newer(other.time):
            self.time, self.owner = other.time, other.owner

    def contradiction(self, capture_time: Optional[int], crashed: bool) -> Status:
        """Returns `contradicted: CaptureTime` if the newest time is after the clock, and logs a warning.

        Args:
            capture_time: the image's clock, None if unknown
            crashed: whether the machine had stopped when its memory was written
        """
        allowed = 0 if crashed else ACQUISITION
        if self.time is None or capture_time is None or self.time <= capture_time + allowed:
            return NOTHING
        vollog.warning(
            f"The clock of the image is contradicted: it shows {moment(capture_time)}, and {self.owner} at "
            f"{moment(self.time)}"
        )
        return contradicted(CAPTURE_TIME)

    def _is_newer(self, time: Optional[int]) -> bool:
        # A time of 0 stands for an event that has not happened.
        return time is not None and is_time(time) and (self.time is None or time > self.time)


def merged(first: Status, second: Status) -> Status:
    """Returns two statuses as one; one item `contradicted` names the contradicted members of both."""
    items = (*first, *second)
    members: Tuple[str, ...] = ()
    for item in items:
        if item.code is StatusCode.CONTRADICTED:
            members = (*members, *(name for name in item.members if name not in members))
    others = tuple(item for item in items if item.code is not StatusCode.CONTRADICTED)
    return status(contradicted(*members), others)
