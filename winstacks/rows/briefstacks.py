# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The column Stack of --brief: the frames that distinguish a stack from the others of the same list.

Most stacks of a list share their outermost frames (the roots in which threads begin) and their innermost ones
(allocators, waits). Frames are ranked: code in no file first, then frames of programs, then frames of
Windows and of runtimes, last the frames that all stacks share. Within a rank the frame that fewest stacks
have comes first, and of equal ones the innermost.
"""

from __future__ import annotations

import collections
import re
from typing import Counter, Iterable, List, Sequence, Set, Tuple

from ..columns.dictionary import STACK_SEPARATOR
from .brief import ELLIPSIS, symbol_lines

RUNTIMES = frozenset(
    (
        "ntdll", "kernel32", "kernelbase", "wow64", "wow64cpu", "wow64win", "win32u", "nt", "hal",
        "ucrtbase", "ucrtbased", "msvcrt", "msvcp140", "vcruntime140", "vcruntime140d", "verifier",
    )
)  # fmt: skip
"""Modules, in small letters, whose frames lead into a program's code or out of it: Windows' own and the
C runtime."""

_MOST_FRAMES = 3
"""Frames of a stack that does not fit into one line."""
_OWN, _PROGRAM, _RUNTIME, _SHARED = range(4)
"""Ranks of frames: code in no file, a program, a runtime, a frame that all stacks have."""


class Stacks:
    """The different stacks of a list, and how many of them have each frame."""

    def __init__(self) -> None:
        self._seen: Set[str] = set()
        self._counts: Counter[str] = collections.Counter()

    def add(self, stack: str) -> None:
        """Counts the frames of a stack, unless an equal one was counted."""
        if stack not in self._seen:
            self._seen.add(stack)
            self._counts.update(frozenset(stack.split(STACK_SEPARATOR)))

    def order(self, frames: Sequence[str]) -> List[int]:
        """Returns the numbers of frames, the most distinctive first."""
        return sorted(range(len(frames)), key=lambda number: (*self._rank(frames[number]), number))

    def _rank(self, frame: str) -> Tuple[int, int]:
        count = self._counts[frame]
        if frame.startswith("<"):
            return _OWN, count
        if count > 1 and count == len(self._seen):
            return _SHARED, count
        return (_RUNTIME if _module(frame).lower() in RUNTIMES else _PROGRAM), count

    def lines(self, stack: str, width: int) -> str:
        """Returns a Stack in lines of at most `width` characters.

        A stack that does not fit into one line has the most distinctive frames: as many as one line takes. If
        these are fewer than `_MOST_FRAMES`, that many have lines of their own, without frames of runtimes if
        there are others. They stand in the order of the stack, with an ellipsis for the frames between.
        """
        if len(stack) <= width:
            return stack
        frames = stack.split(STACK_SEPARATOR)
        order = self.order(frames)
        line = ""
        for count in range(1, len(frames)):
            longer = "".join(_joined(frames, order[:count]))
            if len(longer) > width:
                break
            line = longer
        else:
            count = len(frames)
        if count > min(_MOST_FRAMES, len(frames) - 1):
            return line
        first = order[:_MOST_FRAMES]
        telling = [number for number in first if self._rank(frames[number])[0] < _RUNTIME]
        parts = _joined(frames, telling or first)
        if len("".join(parts)) <= width:
            return "".join(parts)
        found: List[str] = []
        for part in parts:
            found += _broken(part.strip(), width)
        return "\n".join(found)


def _joined(frames: Sequence[str], chosen: Iterable[int]) -> List[str]:
    """Returns the chosen frames in the order of the stack, each with what stands before and behind it."""
    numbers = sorted(chosen)
    skipped = f"{ELLIPSIS}{STACK_SEPARATOR}"
    parts: List[str] = []
    for place, number in enumerate(numbers):
        before = numbers[place - 1] if place else -1
        start = skipped if number > before + 1 else ""
        last = number == len(frames) - 1
        parts.append(start + frames[number] + ("" if last else STACK_SEPARATOR))
    if numbers[-1] != len(frames) - 1:
        parts[-1] += ELLIPSIS
    return parts


def _broken(part: str, width: int) -> List[str]:
    """Returns a frame with the ellipses and separators around it in lines of at most `width` characters."""
    found = re.fullmatch(rf"(?s:({ELLIPSIS}; )?(.*?)(;(?: {ELLIPSIS})?)?)", part)
    assert found is not None
    start, frame, end = found.groups("")
    if len(part) <= width:
        return [part]
    lines = symbol_lines(frame, width).split("\n")
    if len(lines[-1]) + len(end) > width:
        lines = symbol_lines(frame, max(width - len(end), 1)).split("\n")
    lines[-1] += end
    if not start:
        return lines
    if len(start) + len(lines[0]) <= width:
        return [start + lines[0], *lines[1:]]
    return [start.strip(), *lines]


def _module(symbol: str) -> str:
    """Returns the module of a Symbol, or what names its place."""
    return re.split(r"[!+ ]", symbol, maxsplit=1)[0]
