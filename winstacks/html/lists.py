# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The lists of a report as plain data: findings, threads and heaps.

    lists = PageLists()
    frames = lists.frames([("ntdll!NtWaitForSingleObject+0x14", False, False)])
    lists.heap(4096, 2, "explorer.exe (4312)", frames, "")
    data = lists.data()

They are filled from an opened image, or from its tables. This module does not need Volatility.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..memory.decode.text import process_label
from .readable import undecorate

MAX_THREADS = 1 << 15
MAX_HEAPS = 1 << 14
MAX_FINDINGS = 1 << 12
"""Greatest number of entries of each list in a page; the page states how many more exist."""

_MARKS = {"guess": "? ", "unbacked": "! "}
"""Marks before guessed frames, and before frames without a backing file."""

Frames = Tuple[int, ...]
"""Numbers of the texts of a stack's frames, innermost first."""


class Texts:
    """Distinct texts, each with a number, because frames repeat."""

    def __init__(self) -> None:
        self.all: List[str] = []
        self._numbers: Dict[str, int] = {}

    def number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.all)
            self.all.append(text)
        return found


class PageLists:
    """Bounded lists of findings, threads, and the largest traces of heaps. `cut` is the number of threads and
    traces of heaps that are left out."""

    def __init__(self) -> None:
        self.cut = 0
        self._texts = Texts()
        self._threads: List[Dict[str, Any]] = []
        self._heaps: List[Tuple[int, int, str, Frames, str]] = []
        self._cards: List[Dict[str, Any]] = []
        self._checks: Dict[str, Dict[str, str]] = {}
        self._unchecked: List[List[str]] = []
        self._findings = 0

    def frames(self, frames: Iterable[Tuple[str, bool, bool]]) -> Frames:
        """Returns the numbers of frames. `frames` are (text, whether it is a guess, whether the address is
        outside all files), innermost first."""
        numbers = []
        for text, guess, unbacked in frames:
            mark = (_MARKS["guess"] if guess else "") + (_MARKS["unbacked"] if unbacked else "")
            numbers.append(self._texts.number(mark + undecorate(text)))
        return tuple(numbers)

    def texts(self, frames: Frames) -> List[str]:
        """Returns the texts of frames, with their marks."""
        return [self._texts.all[number] for number in frames]

    def room_for_thread(self) -> bool:
        """Returns whether there is room for a thread; a thread without room is counted."""
        if len(self._threads) < MAX_THREADS:
            return True
        self.cut += 1
        return False

    def room_for_finding(self) -> bool:
        """Counts a finding, and returns whether there is room for it."""
        self._findings += 1
        return len(self._cards) < MAX_FINDINGS

    def thread(self, pid: Optional[int], process: Optional[str], tid: Optional[int], **facts: Any) -> None:
        """Adds a thread; see `room_for_thread`.

        Args:
            pid, process: its process; None if unknown
            tid: its ID; None if unknown
            facts: kind, state, unbacked (number of frames without a backing file, None if
                unknown), frames, status
        """
        owner = {"process": process_label(process, pid), "tid": -1 if tid is None else tid}
        self._threads.append({**owner, **facts})

    def heap(self, size: int, blocks: int, process: str, frames: Frames, status: str) -> None:
        self._heaps.append((size, blocks, process, frames, status))
        if len(self._heaps) > 2 * MAX_HEAPS:
            self._cut_heaps()

    def merge(self, other: PageLists) -> None:
        """Adds the threads and heaps of other lists, whose stacks follow."""
        self.cut += other.cut
        texts, number = other._texts.all, self._texts.number
        for thread in other._threads:
            if self.room_for_thread():
                frames = tuple(number(texts[place]) for place in thread["frames"])
                self._threads.append({**thread, "frames": frames})
        if other._heaps:
            # Their texts were numbered in another order than these heaps may have now.
            numbers = list(map(number, texts))
            for size, blocks, process, frames, status in other._heaps:
                self.heap(size, blocks, process, tuple(map(numbers.__getitem__, frames)), status)

    def finding(self, card: Dict[str, Any], check: Optional[Dict[str, str]]) -> None:
        """Adds a finding; see `room_for_finding`.

        Args:
            card: text of its card; see `Card` in report.js
            check: meaning, innocent and next of its check; None if unknown
        """
        self._cards.append(card)
        if check is not None:
            self._checks[card["check"]] = check

    def unchecked(self, check: str, reason: str) -> None:
        """Adds the reason why a check, or a part of one, could not run."""
        self._unchecked.append([check, reason])

    def findings(self, total: Optional[int] = None) -> Dict[str, Any]:
        """Returns the part with the findings. `total` is the number of findings, if not all were added."""
        return {
            "cards": self._cards,
            "total": self._findings if total is None else total,
            "unchecked": self._unchecked,
            "checks": self._checks,
        }

    def data(self) -> Dict[str, Any]:
        """Returns the parts with threads and heaps, and the texts of all frames."""
        self._cut_heaps()
        return {
            "threads": self._threads,
            "heaps": [list(heap) for heap in self._heaps],
            "cut": self.cut,
            "texts": self._texts.all,
        }

    def _cut_heaps(self) -> None:
        self._heaps.sort(key=lambda heap: (-heap[0], -heap[1]))
        self.cut += len(self._heaps[MAX_HEAPS:])
        del self._heaps[MAX_HEAPS:]
