# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `minidump.info --brief`: what happened, in at most ten lines.

One line each: the exception or bug check, the place, process and thread, the next frames, the driver,
Windows, and what the file lacks.
"""

from __future__ import annotations

from typing import Iterator, List, Optional

from ..memory.decode.status import NOTHING, Status, has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.text import cell, counted, moment
from ..memory.image import AddressSpace, Image
from ..stacklist.crash import Crash
from ..stacklist.machine import machine_facts
from ..stacklist.stack import StackRecord
from .dumprows import DumpEntry

MOST = 10
"""The most rows."""

NO_CRASH = "none: the file has no exception and no bug check"
"""Of a file that is of no crash."""

_OF_PROCESS = (
    StatusCode.OFFSET_UNKNOWN, StatusCode.NOT_IN_THE_DUMP, StatusCode.ATTACHED, StatusCode.CONTRADICTED,
    StatusCode.HEADER_ONLY,
)  # fmt: skip
"""Status words of a stack that belong to its process or thread."""

_DOUBTFUL = (
    StatusCode.MODULE_LIST_INCOMPLETE, StatusCode.MODULE_LIST_NOT_IN_THE_FILE,
    StatusCode.VADS_INCOMPLETE,
)  # fmt: skip
"""Status words of a name that may be wrong."""

_ENDS = words_that(Means.FRAMES_MISSING)


def _end(stack: StackRecord, count: int) -> Status:
    """Returns why a stack ends behind its frame `count`, a sure one; NOTHING if it goes on or lacks nothing.

    Behind a guessed frame each row is `unsure`, and the last one may be the outermost.
    """
    if len(stack.frames) != count or not stack.walked[-1].sure:
        return NOTHING
    return tuple(item for item in stack.status if item.code in _ENDS)


class WhatHappened:
    """Makes the entries.

    Args:
        crash: the crash, None if the dump is of none
        lacks: what the file lacks, in words
        blamed: the driver that the kernel itself blames, empty without one
        without: what to say where no crash is known
    """

    def __init__(
        self,
        image: Image,
        space: AddressSpace,
        crash: Optional[Crash],
        lacks: List[str],
        blamed: str = "",
        without: str = NO_CRASH,
    ) -> None:
        self._image = image
        self._space = space
        self._crash = crash
        self._lacks = lacks
        self._blamed = blamed
        self._without = without

    def entries(self) -> Iterator[DumpEntry]:
        """Yields the entries, at most MOST."""
        before, after = [*self._what()], [*self._driver(), *self._windows()]
        yield from before
        yield from self._frames(MOST - len(before) - len(after))
        yield from after

    def _what(self) -> Iterator[DumpEntry]:
        """Yields the rows about the crash, its place, and its process and thread."""
        crash = self._crash
        if crash is None:
            yield DumpEntry(0, "Crash", self._without)
        else:
            yield DumpEntry(0, "Crash", crash.words)
            if crash.bug_check:
                yield DumpEntry(0, "Parameters", " ".join(f"{value:#x}" for value in crash.parameters))
            place = crash.place
            if place is None:
                yield DumpEntry(0, "At", "", status(StatusCode.NO_SAVED_REGISTERS))
            elif crash.stack is not None and has_status(crash.stack.status, StatusCode.HEADER_ONLY):
                # The file has no modules at all: `no module` would say that the place is in none.
                yield DumpEntry(0, "At", f"{place.address:#x}", status(StatusCode.HEADER_ONLY))
            else:
                faults = NOTHING if place.name is None else place.name.status
                uncertain = StatusCode.UNSURE if has_status(faults, *_DOUBTFUL) else None
                ends = NOTHING if crash.stack is None else _end(crash.stack, 1)
                shown = f"{place.shown} ({place.address:#x})"
                yield DumpEntry(0, "At", shown, status(uncertain, ends))
        yield self._process()

    def _process(self) -> DumpEntry:
        stack = None if self._crash is None else self._crash.stack
        space = self._space if stack is None else stack.space
        name = space.known_name or "unknown"
        shown = name if space.pid is None else f"{name} ({space.pid})"
        if stack is not None and stack.tid is not None:
            shown += f", thread {stack.tid}"
        known = space.remark if stack is None else stack.status
        said = tuple(item for item in known if item.code in _OF_PROCESS)
        if has_status(said, StatusCode.HEADER_ONLY):
            said = status(StatusCode.HEADER_ONLY)
        return DumpEntry(0, "Process", shown, said)

    def _frames(self, room: int) -> Iterator[DumpEntry]:
        """Yields the frames behind the first one, as many as there is room for."""
        stack = None if self._crash is None else self._crash.stack
        if stack is None:
            return
        frames = list(zip(stack.frames, stack.walked))[1 : room + 1]
        for number, (frame, walked) in enumerate(frames, 1):
            guessed = None if walked.sure else StatusCode.UNSURE
            faults = status(guessed, _end(stack, number + 1))
            yield DumpEntry(0, f"Frame {number}", frame.shown, faults)

    def _driver(self) -> Iterator[DumpEntry]:
        driver = None if self._crash is None else self._crash.driver
        words = [] if driver is None else [driver.words]
        words += [f"blamed by the kernel: {cell(self._blamed)}"] if self._blamed else []
        if words:
            guessed = driver is not None and not driver.walked.sure
            yield DumpEntry(0, "Driver", ", ".join(words), status(StatusCode.UNSURE if guessed else None))

    def _windows(self) -> Iterator[DumpEntry]:
        facts = self._image.service(machine_facts)
        kernel, clock = facts.kernel(), facts.clock()
        words = [f"build {kernel.build}"] if kernel.build else []
        words += [self._image.arch]
        words += [counted(kernel.processors, "processor")] if kernel.processors else []
        time = moment(clock.capture_time)
        words += [] if time is None else [f"{time:%Y-%m-%d %H:%M:%S} UTC"]
        yield DumpEntry(0, "Windows", ", ".join(words), clock.status)
        yield DumpEntry(0, "Lacks", ", ".join(self._lacks) or "nothing")
