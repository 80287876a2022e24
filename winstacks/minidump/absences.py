# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lines for the comment of a dump about missing data, so that a reader does not take a 0 for a fact.

The comment has room for 64 KB. Lines that a reader of registers and memory needs come first.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from ..memory.decode.text import counted
from .decode.system import MAX_COMMENT
from .regionrecords import Absence
from .threadrecords import ThreadRecord

_ROOM = MAX_COMMENT - 0x400
"""Room for lines in bytes; the rest is for the line that counts the lines left out."""


class UnknownMembers:
    """Counts the members of a stream whose value is not in the image."""

    def __init__(self) -> None:
        self._counts: Dict[Tuple[str, str], int] = {}

    def add(self, stream: str, members: Iterable[str]) -> None:
        """Records members that are 0 or empty in one structure of a stream."""
        for member in members:
            key = stream, member
            self._counts[key] = self._counts.get(key, 0) + 1

    def names_of(self, stream: str) -> Iterator[Tuple[str, int]]:
        """Yields each unknown member of a stream, and the number of structures in which it is unknown."""
        for (name, member), count in self._counts.items():
            if name == stream:
                yield member, count

    def lines(self) -> Iterator[str]:
        """Yields a line for each member."""
        for (stream, member), count in self._counts.items():
            yield f"{stream}: {member}: 0 stands for unknown in {count} of its structures"


def register_lines(threads: Sequence[ThreadRecord]) -> Iterator[str]:
    """Yields a line for each CONTEXT with unknown registers."""
    for thread in threads:
        state = thread.states[0]
        tid = thread.info.ThreadId
        if thread.flags is None:
            yield f"Thread {tid}: all registers are unknown"
        elif state.unknown:
            yield f"Thread {tid}: 0 stands for unknown in its CONTEXT: {' '.join(state.unknown)}"
        if state.unsure:
            yield f"Thread {tid}: perhaps not saved: {' '.join(state.unsure)}"


def memory_lines(absences: Sequence[Absence]) -> Iterator[str]:
    """Yields a line for all missing memory, then one for each region that is not wholly present."""
    if absences:
        missing = sum(absence.missing for absence in absences)
        yield (
            f"{missing} bytes in {counted(len(absences), 'region')} are not in the image: "
            "MemoryInfoListStream lists them as reserved, whether they were committed and paged out, "
            "or never touched:"
        )
    for absence in absences:
        yield f"{absence.start:#x}-{absence.end:#x}: {absence.missing} of {absence.end - absence.start} bytes"


def within_room(lines: Iterable[str]) -> str:
    """Returns as many lines as a comment has room for, as one text."""
    fitting: List[str] = []
    size = more = 0
    for line in lines:
        size += len(line.encode("ascii", "backslashreplace")) + 1
        if size > _ROOM:
            more += 1
        else:
            fitting.append(line)
    if more:
        fitting.append(f"no room here for {counted(more, 'more line')}")
    return "\n".join(fitting)
