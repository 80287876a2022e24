# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A prefix tree of stacks: equal beginnings are one node, so memory goes by distinct prefixes.

    tree = Prefixes()
    names = [tree.name("nt!NtCreateFile", "nt"), tree.name("<private>", look=UNBACKED)]
    tree.add(names, 3)                      # outermost first
    for depth, name, own, before in tree.preorder(): ...

Beyond the limit of nodes the rest of a stack is one box, CUT, which keeps the weight: nothing is lost of the
sums.
"""

from __future__ import annotations

import hashlib
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ...base.decode.record import Record

CODE, UNBACKED, UNLOADED, LEVEL, REST, UNREADABLE = range(6)
"""How a box looks: code of a module or file; in memory that none backs; of a module that is gone; no frame
but a kind or a process; what stands for several; an address that cannot be read."""
GUESSED = 8
"""Is added to these: the frame is a guess, or was found by way of one."""

CUT = "…"
NO_FRAMES = "<no frames>"
"""The box of a stack without frames."""

MAX_NODES = 1 << 19
"""Nodes of a tree: each takes some 200 bytes, and some 15 in a page."""
MAX_SUM = (1 << 53) - 1
"""The largest sum of weights: the largest whole number that is exact in JSON and JavaScript."""
MAX_NAME = 512
"""Characters of a name. A longer one is cut, and a digest tells it from others."""

ROOT = 0


class Box(Record):
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
    """Sums the weights of stacks by their prefixes.

    Args:
        most: how many nodes are made; those that stand for what is cut may double them

    Attributes:
        boxes: the names, by number
        total: the sum of all weights
        cut: the weight of stacks that were cut
        capped: the weight that was left out because the sum would be larger than MAX_SUM
    """

    def __init__(self, most: int = MAX_NODES) -> None:
        self.boxes: List[Box] = []
        self.total = self.cut = self.capped = 0
        self._most = most
        self._numbers: Dict[Box, int] = {}
        self._children: Dict[int, int] = {}
        self._names: List[int] = [-1]
        self._parents: List[int] = [-1]
        self._own: List[int] = [0]
        self._before: Optional[List[int]] = None
        self._cut = self.name(CUT, look=REST)

    def __len__(self) -> int:
        """Returns how many nodes there are, the root among them."""
        return len(self._names)

    def name(self, text: str, module: str = "", look: int = CODE) -> int:
        """Returns the number of a name, which is made at its first use."""
        box = Box(_short(text), module, look)
        found = self._numbers.get(box)
        if found is None:
            found = self._numbers[box] = len(self.boxes)
            self.boxes.append(box)
        return found

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
        node, whole = self._node(names)
        self._own[node] += weight
        self.total += weight
        if not whole:
            self.cut += weight
        return weight

    def compare(self, stacks: Iterable[Tuple[Sequence[str], int]]) -> None:
        """Adds the weights of a baseline.

        Args:
            stacks: texts, outermost first, and weight
        """
        texts: Dict[str, int] = {}
        for number, box in enumerate(self.boxes):
            texts.setdefault(box.text, number)
        self._before = self._before or []
        total = 0
        for names, weight in stacks:
            numbers = []
            for each in names:
                text = _short(each)
                if text not in texts:
                    texts[text] = self.name(each)
                numbers.append(texts[text])
            node, _ = self._node(numbers)
            self._before += [0] * (len(self._names) - len(self._before))
            weight = min(weight, MAX_SUM - total)
            self._before[node] += weight
            total += weight

    def preorder(self) -> Iterator[Tuple[int, int, int, int]]:
        """Yields (depth, name, own weight, own weight in the baseline), parents first, the heaviest first.

        The root comes first, its name is -1.
        """
        before = [0] * len(self._names)
        before[: len(self._before or ())] = self._before or ()
        sums = [max(now, then) for now, then in zip(self._own, before)]
        below: Dict[int, List[int]] = {}
        # A child has a higher number than its parent.
        for node in range(len(sums) - 1, ROOT, -1):
            sums[self._parents[node]] += sums[node]
            below.setdefault(self._parents[node], []).append(node)
        waiting = [(ROOT, 0)]
        while waiting:
            node, depth = waiting.pop()
            yield depth, self._names[node], self._own[node], before[node]
            children = below.get(node)
            if children:
                children.sort(key=sums.__getitem__)
                waiting += [(child, depth + 1) for child in children]

    @property
    def compared(self) -> bool:
        """Whether there is a baseline."""
        return self._before is not None

    def stacks(self) -> Iterator[Tuple[List[int], int]]:
        """Yields each stack that has a weight: its names, outermost first, and the weight."""
        path: List[int] = []
        for depth, name, own, _ in self.preorder():
            if depth:
                del path[depth - 1 :]
                path.append(name)
            if own:
                yield list(path), own

    def _node(self, names: Iterable[int]) -> Tuple[int, bool]:
        """Returns the node of a stack, and whether it is that of the whole stack."""
        node, children = ROOT, self._children
        for name in names:
            key = node << 32 | name
            child = children.get(key)
            if child is None:
                if len(self._names) >= self._most:
                    return self._child(node, self._cut), False
                child = self._child(node, name)
            node = child
        return node, True

    def _child(self, node: int, name: int) -> int:
        """Returns the child of a node that has a name; it is made if it is not there."""
        key = node << 32 | name
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = len(self._names)
            self._names.append(name)
            self._parents.append(node)
            self._own.append(0)
        return found


def _short(text: str) -> str:
    """Returns a name of at most MAX_NAME characters."""
    if len(text) <= MAX_NAME:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{text[: MAX_NAME - len(digest) - 2]}{CUT} {digest}"
