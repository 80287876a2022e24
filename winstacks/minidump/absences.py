# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a dump of a process lacks, in lines of text: the comment of a dump names it, so that a 0 is no fact.

The comment has room for 64 KB. What comes first is what a reader of registers and memory needs to know.
"""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from .decode.system import MAX_COMMENT
from .regionrecords import Absence
from .threadrecords import ThreadRecord

_ROOM = MAX_COMMENT - 0x400
"""Bytes of lines: what stands behind them says how many lines did not fit."""


class UnknownMembers:
    """Counts the members of a stream that an image does not tell."""

    def __init__(self) -> None:
        self._counts: Dict[Tuple[str, str], int] = {}

    def add(self, stream: str, members: Iterable[str]) -> None:
        """Takes note of members that are 0 or empty, in one structure of a stream."""
        for member in members:
            key = stream, member
            self._counts[key] = self._counts.get(key, 0) + 1

    def of(self, stream: str) -> Iterator[Tuple[str, int]]:
        """Yields each member of a stream that is lost, and in how many of its structures."""
        for (name, member), count in self._counts.items():
            if name == stream:
                yield member, count

    def lines(self) -> Iterator[str]:
        """Yields a line for each member."""
        for (stream, member), count in self._counts.items():
            yield f"{stream}: {member} is not known and 0 in {count} of its structures"


def register_lines(threads: Sequence[ThreadRecord]) -> Iterator[str]:
    """Yields a line for each CONTEXT of which registers are not known."""
    for each in threads:
        state = each.states[0]
        tid = each.info.ThreadId
        if each.flags is None:
            yield f"Thread {tid}: no register is known"
        elif state.unknown:
            yield f"Thread {tid}: not known and 0 in its CONTEXT: {' '.join(state.unknown)}"
        if state.unsure:
            yield f"Thread {tid}: perhaps not saved: {' '.join(state.unsure)}"


def memory_lines(absences: Sequence[Absence]) -> Iterator[str]:
    """Yields a line for the memory that is missing, then one for each region that has not all of its own."""
    if absences:
        missing = sum(each.missing for each in absences)
        yield (
            f"{missing} bytes in {len(absences)} regions are not in the image: MemoryInfoListStream tells "
            "them as reserved, whether they were committed and paged out, or never touched:"
        )
    for each in absences:
        yield f"{each.start:#x}-{each.end:#x}: {each.missing} of {each.end - each.start} bytes"


def within_room(lines: Iterable[str]) -> str:
    """Returns lines as a text, as many as a comment has room for."""
    kept: List[str] = []
    size = more = 0
    for line in lines:
        size += len(line.encode("ascii", "backslashreplace")) + 1
        if size > _ROOM:
            more += 1
        else:
            kept.append(line)
    if more:
        kept.append(f"{more} more lines have no room here")
    return "\n".join(kept)
