# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Draws stacks into a prefix tree: names of frames, their colours, and the weight of each stack.

This is the only module of the room that knows the stacks of `stacklist`.
"""

from __future__ import annotations

from typing import Dict, List, Sequence, Set, Tuple

from ..columns.words import SCAN, THREAD_KINDS
from ..columns.words import UNLOADED as UNLOADED_BACKING
from ..memory.decode.memo import Memo
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import process_name, short_of
from ..stacklist.frames import MAX_FRAMES, NamedFrame
from ..stacklist.stack import StackRecord
from .prefixes import MAX_KEPT, PrefixTree
from .readable import undecorate

COUNT, BYTES, THREADS = "count", "bytes", "threads"
WEIGHTS: Dict[str, str] = {COUNT: "stacks", BYTES: "bytes", THREADS: "threads"}
"""Kinds of weights, and the plural of their units."""

MAX_KNOWN = 1 << 20
"""Greatest number of threads that are counted as distinct."""


class KindFigures(NamedTuple):
    """Totals of the drawn stacks of a kind. `stacks` is the number of rows of windows.traces."""

    stacks: int = 0
    frames: int = 0
    weight: int = 0


class Drawing:
    """Adds stacks to a prefix tree: kind, process, and the frames from the thread's start.

    Args:
        weight: a key of WEIGHTS
        merged: whether names leave out values that differ between images, so that images can be compared:
            PIDs, and the addresses of frames in no module and no file
    """

    def __init__(self, weight: str = COUNT, merged: bool = False, most: int = MAX_KEPT) -> None:
        self._weight = weight
        self._merged = merged
        self._most = most
        self._threads: Set[Tuple[str, object]] = set()
        self._begin()

    def _begin(self) -> None:
        self.tree = PrefixTree(self._most)
        self.kinds: Dict[str, KindFigures] = {}
        self._frames: Memo[NamedFrame, int] = Memo(self._proven, MAX_FRAMES)
        self._guesses: Memo[NamedFrame, int] = Memo(self._guess, MAX_FRAMES)

    def add(self, stack: StackRecord) -> None:
        """Draws a stack. A gap or a stack without weight is counted with weight 0."""
        weight = self._weighed(stack)
        known = self.kinds.get(stack.kind, KindFigures())
        if weight:
            space = stack.space
            process = process_name(space.known_name) if self._merged else space.label
            weight = self.tree.add_stack(stack.kind, process, self._names(stack), weight)
        self.kinds[stack.kind] = KindFigures(
            known.stacks + 1, known.frames + len(stack.frames), known.weight + weight
        )

    def take(self) -> Tuple[PrefixTree, Dict[str, KindFigures]]:
        """Returns the tree and the totals, and begins new ones."""
        taken = self.tree, self.kinds
        self._begin()
        return taken

    def merge(self, tree: PrefixTree, kinds: Dict[str, KindFigures]) -> None:
        """Adds the tree and the totals of another drawing, whose stacks follow."""
        weights = self.tree.merge(tree)
        for kind, figures in kinds.items():
            known = self.kinds.get(kind, KindFigures())
            self.kinds[kind] = KindFigures(
                known.stacks + figures.stacks,
                known.frames + figures.frames,
                known.weight + weights.get(kind, 0),
            )

    def _weighed(self, stack: StackRecord) -> int:
        if self._weight == BYTES:
            return stack.size or 0
        if self._weight == COUNT:
            return stack.counted or 0
        if stack.kind not in THREAD_KINDS or not stack.counted:
            return 0
        thread = stack.kind, stack.owner or stack.trace_id
        if thread in self._threads or len(self._threads) >= MAX_KNOWN:
            return 0
        self._threads.add(thread)
        return 1

    def _names(self, stack: StackRecord) -> Sequence[int]:
        """Returns the names of the frames, outermost first."""
        if not stack.walked:
            return list(map(self._frames.__getitem__, reversed(stack.frames)))
        names: List[int] = []
        for number in stack.shown:
            frame, walked = stack.frames[number], stack.walked[number]
            guessed = walked.how == SCAN or not walked.sure
            names.append(self._guesses[frame] if guessed else self._frames[frame])
        return names[::-1]

    def _proven(self, frame: NamedFrame) -> int:
        return self._name(frame, False)

    def _guess(self, frame: NamedFrame) -> int:
        return self._name(frame, True)

    def _name(self, frame: NamedFrame, guessed: bool) -> int:
        details = frame.details
        return self.tree.frame(
            undecorate(frame.shown if self._merged else short_of(frame.symbol())),
            details.module,
            details.function,
            readable=frame.name is not None,
            unloaded=frame.name is not None and frame.name.backing == UNLOADED_BACKING,
            unbacked=bool(frame.unbacked),
            guessed=guessed,
        )
