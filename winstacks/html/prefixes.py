# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A prefix tree of stacks: stacks with the same start share a box.

    tree = PrefixTree()
    names = [tree.name("nt!NtCreateFile", "nt"), tree.name("<private>", look=UNBACKED)]
    tree.add(names, 3)                      # outermost first
    for names, weight, before in tree.stacks(): ...         # stacks with the same start are adjacent

Each distinct stack is kept once, as the numbers of its names. Beyond a limit a stack becomes its kind, its
process and a box CUT, which keeps the weight, so that all sums stay right.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ..memory.decode.records import NamedTuple

CODE, UNBACKED, UNLOADED, LEVEL, REST, UNREADABLE = range(6)
"""Looks of a box: code of a module or file; code in memory without a file; code of an unloaded module; no
frame, but a kind or a process; the sum of several boxes; an unreadable address."""
GUESSED = 8
"""Added to a look: the frame is a guess, or was found through a guess."""

CUT = "…"
NO_FRAMES = "<no frames>"
"""The box of a stack without frames."""

MAX_KEPT = 1 << 22
"""Greatest number of names in all distinct stacks: each takes 4 bytes, each stack some 150 more."""
MAX_SUM = (1 << 53) - 1
"""Greatest sum of weights: the largest whole number that is exact in JSON and JavaScript."""
MAX_NAMES = 1 << 20
"""Greatest number of distinct names of a tree. Any further name becomes CUT."""
MAX_NAME = 512
"""Greatest number of characters of a name. A longer name is cut, with a digest to keep it distinct."""

LEVELS = 2
"""Names before the frames: kind and process."""

_SIZE = 4
"""Size of a name's number in bytes."""


class Box(NamedTuple):
    """A name as a box shows it.

    Attributes:
        module: module or file that decides the colour, empty without one
        style: one of the looks, with or without GUESSED
    """

    text: str
    module: str
    style: int


class PrefixTree:
    """Sums the weights of stacks. `most` is the greatest number of names of all distinct stacks together;
    boxes that stand for others are not counted.

    Attributes:
        boxes: the names, by number
        cut: the weight of stacks that were cut
        capped: the weight that was left out because the sum would be larger than MAX_SUM
    """

    def __init__(self, most: int = MAX_KEPT) -> None:
        self.boxes: List[Box] = []
        self.total = self.cut = self.capped = 0
        self._room = most
        self._numbers: Dict[Box, int] = {}
        self._own: Dict[bytes, int] = {}
        self._before: Optional[Dict[bytes, int]] = None
        self._cut = self.name(CUT, look=REST)
        self._cut_frames = array("I", [self._cut]).tobytes()
        self._none = self.name(NO_FRAMES, look=REST)

    def __len__(self) -> int:
        """Returns the number of distinct stacks."""
        return len(self._own)

    def name(self, text: str, module: str = "", look: int = CODE) -> int:
        """Returns the number of a name: a new number at its first use, the number of CUT beyond MAX_NAMES."""
        box = Box(_short(text), module, look)
        found = self._numbers.get(box)
        if found is None:
            if len(self.boxes) >= MAX_NAMES:
                return self._cut
            found = self._numbers[box] = len(self.boxes)
            self.boxes.append(box)
        return found

    def frame(
        self,
        shown: str,
        module: Optional[str],
        function: Optional[str],
        *,
        readable: bool,
        unloaded: bool,
        unbacked: bool,
        guessed: bool,
    ) -> int:
        """Returns the number of a frame's name; all calls from one function share it.

        Args:
            module, function: module and function of the code; None if unknown
            readable: whether the address is in the image
            unloaded: whether the code belongs to an unloaded module
            unbacked: whether neither an image nor a mapped file backs the code
            guessed: whether the frame is a guess, or was found through a guess
        """
        guess = GUESSED if guessed else 0
        if not readable:
            return self.name(shown, look=UNREADABLE | guess)
        look = UNLOADED if unloaded else UNBACKED if unbacked else CODE
        text = f"{module}!{function}" if module and function else shown
        return self.name(text, module or "", look | guess)

    def add(self, names: Iterable[int], weight: int) -> int:
        """Adds a stack. Returns the weight that was added.

        Args:
            names: numbers of its names, outermost first
            weight: weight of the stack, 0 or more
        """
        room = MAX_SUM - self.total
        self.capped += max(weight - room, 0)
        weight = min(weight, room)
        self.total += weight
        if self._put(self._own, names, weight):
            self.cut += weight
        return weight

    def add_stack(self, kind: str, process: str, frames: Sequence[int], weight: int) -> int:
        """Adds a stack below its kind and its process; see `add`. `frames` are numbers of the names of its
        frames, outermost first; empty for a stack without frames."""
        levels = [self.name(kind, look=LEVEL), self.name(process, look=LEVEL)]
        return self.add([*levels, *(frames or [self._none])], weight)

    def merge(self, other: PrefixTree) -> Dict[str, int]:
        """Adds the stacks of another tree, which follow the stacks of this one. Returns the weights that were
        added, by the kind of the stacks."""
        numbers = [self.name(*box) for box in other.boxes]
        added: Dict[str, int] = {}
        self.capped += other.capped
        for key, weight in other._own.items():
            names = array("I", key)
            kind = other.boxes[names[0]].text
            added[kind] = added.get(kind, 0) + self.add(map(numbers.__getitem__, names), weight)
        return added

    def compare(self, stacks: Iterable[Tuple[Sequence[str], int]]) -> None:
        """Adds the weights of a baseline. A baseline has the texts of names, but not their looks. `stacks`
        has for each the texts, outermost first, and the weight."""
        texts: Dict[str, int] = {}
        firsts = [texts.setdefault(box.text, number) for number, box in enumerate(self.boxes)]
        looked: Dict[bytes, bytes] = {}
        for key in self._own:
            first = array("I", [firsts[number] for number in array("I", key)]).tobytes()
            if first not in self._own:
                looked[first] = key
        before = self._before = self._before or {}
        total = sum(before.values())
        for names, weight in stacks:
            numbers = []
            for name in names:
                text = _short(name)
                if text not in texts:
                    texts[text] = self.name(name)
                numbers.append(texts[text])
            weight = min(weight, MAX_SUM - total)
            total += weight
            key = array("I", numbers).tobytes()
            self._put(before, array("I", looked.get(key, key)), weight)

    @property
    def compared(self) -> bool:
        return self._before is not None

    def stacks(self) -> Iterator[Tuple[List[int], int, int]]:
        """Yields each stack: its names, outermost first, its weight, and its weight in the baseline.

        Stacks with the same start follow each other, the shorter ones first.
        """
        before = self._before or {}
        keys = sorted(self._own.keys() | before.keys()) if before else sorted(self._own)
        for key in keys:
            yield array("I", key).tolist(), self._own.get(key, 0), before.get(key, 0)

    def _put(self, weights: Dict[bytes, int], names: Iterable[int], weight: int) -> bool:
        """Adds to the weight of a stack; returns whether the stack is cut."""
        key = array("I", names).tobytes()
        found = weights.get(key)
        # A stack of another tree may be cut already.
        cut = key[LEVELS * _SIZE :] == self._cut_frames
        if found is None and not cut:
            self._room -= len(key) // _SIZE
            if self._room < 0:
                self._room += len(key) // _SIZE
                key = key[: LEVELS * _SIZE] + self._cut_frames
                found, cut = weights.get(key), True
        weights[key] = weight if found is None else found + weight
        return cut


def _short(text: str) -> str:
    """Returns a name cut to MAX_NAME characters."""
    if len(text) <= MAX_NAME:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: MAX_NAME - len(digest) - 2]}{CUT} {digest}"
