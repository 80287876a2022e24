# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A prefix tree of stacks: equal beginnings are one box.

    tree = Prefixes()
    names = [tree.name("nt!NtCreateFile", "nt"), tree.name("<private>", look=UNBACKED)]
    tree.add(names, 3)                      # outermost first
    for names, weight, before in tree.stacks(): ...         # those with the same beginning together

Each distinct stack is kept once, as the numbers of its names. Beyond a limit a stack is its kind, its process
and a box CUT, which keeps the weight: nothing is lost of the sums.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

CODE, UNBACKED, UNLOADED, LEVEL, REST, UNREADABLE = range(6)
"""How a box looks: code of a module or file; in memory that none backs; of a module that is gone; no frame
but a kind or a process; what stands for several; an address that cannot be read."""
GUESSED = 8
"""Is added to these: the frame is a guess, or was found by way of one."""

CUT = "…"
NO_FRAMES = "<no frames>"
"""The box of a stack without frames."""

MAX_KEPT = 1 << 22
"""The most names in all distinct stacks: each takes 4 bytes, each stack some 150 more."""
MAX_SUM = (1 << 53) - 1
"""The largest sum of weights: the largest whole number that is exact in JSON and JavaScript."""
MAX_NAMES = 1 << 20
"""Distinct names of a tree. What would be one more is CUT."""
MAX_NAME = 512
"""Characters of a name. A longer name is cut, and a digest distinguishes it from others."""

LEVELS = 2
"""Names before the frames: kind and process."""

_SIZE = 4
"""Bytes of a name's number."""


class Box(NamedTuple):
    """A name as it is drawn.

    Attributes:
        text: the text
        module: the module or file whose colour it has, empty for none
        look: one of the looks, with GUESSED or without
    """

    text: str
    module: str
    look: int


class Prefixes:
    """Sums the weights of stacks.

    Args:
        most: how many names the distinct stacks may have in all; what stands for others is not counted

    Attributes:
        boxes: the names, by number
        total: the sum of all weights
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
        self._none = self.name(NO_FRAMES, look=REST)

    def __len__(self) -> int:
        """Returns how many distinct stacks there are."""
        return len(self._own)

    def name(self, text: str, module: str = "", look: int = CODE) -> int:
        """Returns the number of a name; a new one at its first use, the number of CUT beyond MAX_NAMES."""
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
        """Returns the number of the name of a frame: all calls from one function have the same.

        Args:
            shown: the frame in words
            module, function: where the code is; None where that is not known
            readable: whether the address is in the image
            unloaded: whether a module lay there that is gone
            unbacked: whether no image and no mapped file backs it
            guessed: whether it is a guess, or was found by way of one
        """
        guess = GUESSED if guessed else 0
        if not readable:
            return self.name(shown, look=UNREADABLE | guess)
        look = UNLOADED if unloaded else UNBACKED if unbacked else CODE
        text = f"{module}!{function}" if module and function else shown
        return self.name(text, module or "", look | guess)

    def add(self, names: Iterable[int], weight: int) -> int:
        """Adds a stack.

        Args:
            names: numbers of its names, outermost first
            weight: how much it counts, 0 or more

        Returns:
            how much was added
        """
        room = MAX_SUM - self.total
        self.capped += max(weight - room, 0)
        weight = min(weight, room)
        self.total += weight
        if self._put(self._own, names, weight):
            self.cut += weight
        return weight

    def add_stack(self, kind: str, process: str, frames: Sequence[int], weight: int) -> int:
        """Adds a stack below its kind and its process; see `add`.

        Args:
            kind: what the stack is
            process: in words
            frames: numbers of the names of its frames, outermost first; none for a stack without frames
            weight: how much it counts
        """
        levels = [self.name(kind, look=LEVEL), self.name(process, look=LEVEL)]
        return self.add([*levels, *(frames or [self._none])], weight)

    def compare(self, stacks: Iterable[Tuple[Sequence[str], int]]) -> None:
        """Adds the weights of a baseline.

        Args:
            stacks: texts, outermost first, and weight
        """
        texts: Dict[str, int] = {}
        for number, box in enumerate(self.boxes):
            texts.setdefault(box.text, number)
        before = self._before = self._before or {}
        total = sum(before.values())
        for names, weight in stacks:
            numbers = []
            for each in names:
                text = _short(each)
                if text not in texts:
                    texts[text] = self.name(each)
                numbers.append(texts[text])
            weight = min(weight, MAX_SUM - total)
            total += weight
            self._put(before, numbers, weight)

    @property
    def compared(self) -> bool:
        """Whether there is a baseline."""
        return self._before is not None

    def stacks(self) -> Iterator[Tuple[List[int], int, int]]:
        """Yields each stack: its names, outermost first, its weight, and that in the baseline.

        Those with the same beginning follow each other, the shorter ones first.
        """
        before = self._before or {}
        keys = sorted(self._own.keys() | before.keys()) if before else sorted(self._own)
        for key in keys:
            yield array("I", key).tolist(), self._own.get(key, 0), before.get(key, 0)

    def _put(self, weights: Dict[bytes, int], names: Iterable[int], weight: int) -> bool:
        """Adds to the weight of a stack; returns whether the stack is cut."""
        key = array("I", names).tobytes()
        found = weights.get(key)
        cut = False
        if found is None:
            self._room -= len(key) // _SIZE
            if self._room < 0:
                self._room += len(key) // _SIZE
                key = key[: LEVELS * _SIZE] + array("I", [self._cut]).tobytes()
                found, cut = weights.get(key), True
        weights[key] = weight if found is None else found + weight
        return cut


def _short(text: str) -> str:
    """Returns a name of at most MAX_NAME characters."""
    if len(text) <= MAX_NAME:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: MAX_NAME - len(digest) - 2]}{CUT} {digest}"
