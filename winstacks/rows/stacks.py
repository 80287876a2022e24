# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.callstacks`."""

from __future__ import annotations

from operator import attrgetter
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from ..memory.decode.status import Status, Word, status, text
from ..names.symbolizer import Symbolizer
from ..stacks.decode.frames import Frame
from ..stacks.lister import CallStack
from ..tracedb.decode import capture
from .columns import BRIEF, PLUGINS, Hex
from .frames import FrameCells, Selection, SpaceStacks, folded, unbacked
from .grid import NOT_APPLICABLE, UNREADABLE, Cells, Grid, Row, known

GRID = Grid(*PLUGINS["callstacks"], brief=BRIEF["callstacks"])

_STACK = ("PID", "Process", "TID", "Arch", "Part")
_FRAME = ("Frame", "Sp", "Address", "Symbol", "Source", "Backing", "How", "Status")
_is_sure = attrgetter("sure")

_THREAD = ("State", "WaitReason", "StartAddress", "StartSymbol")


class Shown(NamedTuple):
    """What is shown of a stack.

    Attributes:
        stack: the stack
        frames: number in the stack, frame and cells of each that is shown
        captured: what RtlCaptureStackBackTrace would have returned
        status: the stack's, and whether `captured` is a guess
    """

    stack: CallStack
    frames: List[Tuple[int, Frame, FrameCells]]
    captured: capture.Capture
    status: Status

    @property
    def key(self) -> Tuple[object, ...]:
        """What two stacks have in common if they are the same."""
        frames = tuple((frame.address, cells.cells[1], frame.how) for _, frame, cells in self.frames)
        return (self.stack.part, self.stack.space.arch, self.status, frames)


class CallStackRows:
    """Makes rows.

    Args:
        symbolizer: names addresses
        frames_to_skip: as RtlCaptureStackBackTrace takes it
        frames_to_capture: the same; None for all
        fold: whether the row of a stack holds it, in the place of frame rows
    """

    def __init__(
        self,
        symbolizer: Symbolizer,
        frames_to_skip: int = 0,
        frames_to_capture: Optional[int] = None,
        fold: bool = False,
    ) -> None:
        self._fold = fold
        self._machine = symbolizer.image.machine
        self._stacks = SpaceStacks(symbolizer)
        self._skip = max(frames_to_skip, 0)
        self._count = frames_to_capture
        self._stack = GRID.maker(
            *_STACK, "Depth", "BackTraceHash", "Unbacked", "Stack", "Status", *_THREAD, "Count"
        )
        self._frame = GRID.maker(*_STACK, *_FRAME)

    def shown(self, stack: CallStack) -> Shown:
        """Captures a stack and names its frames; an interrupted innermost address is always among them."""
        addresses = stack.return_addresses
        wanted = len(addresses) if self._count is None else self._count
        captured = capture.capture(addresses, self._skip, wanted)
        first = len(stack.frames) - len(addresses)
        begin = first + self._skip
        numbers = [*range(first), *range(begin, begin + len(captured.frames))]
        stacks = self._stacks.of(stack.space)
        frames = [stack.frames[number] for number in numbers]
        shown = [
            (number, frame, stacks.frame(frame.address, frame.returns))
            for number, frame in zip(numbers, frames)
        ]
        # A guess among the frames that were skipped leaves it open where those that follow belong.
        guessed = not all(map(_is_sure, stack.frames[first : begin + len(captured.frames)]))
        unsure = Word.HASH_UNSURE if guessed and captured.frames else None
        return Shown(stack, shown, captured, status(stack.status, unsure))

    def stack(self, shown: Shown, count: int = 1) -> Cells:
        """Returns the row of a stack."""
        thread = shown.stack.thread
        start = thread.win32_start_address or thread.start_address
        begin = None if start is None else self._stacks.of(thread.space).frame(start, return_address=False)
        frames = [cells for _, _, cells in shown.frames]
        # Without frame rows nothing else would say that some of the frames are a guess.
        guessed = self._fold and any(not frame.sure for _, frame, _ in shown.frames)
        return self._stack(
            *self._key(shown.stack),
            len(shown.captured.frames),
            NOT_APPLICABLE if shown.captured.hash is None else Hex(shown.captured.hash),
            unbacked(frames),
            folded(frames, self._fold),
            text(status(shown.status, Word.UNSURE if guessed else None)),
            thread.state_name or UNREADABLE,
            thread.wait_reason_name or NOT_APPLICABLE,
            *((UNREADABLE, UNREADABLE) if begin is None else begin.cells[:2]),
            count,
        )

    def frame_rows(self, shown: Shown) -> Iterator[Row]:
        """Yields the rows of a stack's frames, innermost first."""
        pid, process, tid, arch, part = self._key(shown.stack)
        made, mask = self._frame, self._machine.address_mask
        for number, frame, cells in () if self._fold else shown.frames:
            where, symbol, source, backing, said = cells.cells
            if not frame.sure and cells.name is not None:
                said = text(status(cells.name.status, Word.UNSURE))
            sp, how = Hex(frame.sp & mask), frame.how
            row = made(pid, process, tid, arch, part, number, sp, where, symbol, source, backing, how, said)
            yield 1, row

    def _key(self, stack: CallStack) -> Cells:
        thread = stack.thread
        return (thread.space.pid, thread.space.process, known(thread.tid), stack.space.arch, stack.part)


def selected(listed: Iterable[Shown], selection: Selection) -> Iterator[Shown]:
    """Returns the stacks that a selection takes."""
    if selection.everything:
        return iter(listed)
    return (each for each in listed if selection.takes(cells for _, _, cells in each.frames))


def counted(listed: Iterable[Shown]) -> List[Tuple[Shown, int]]:
    """Returns stacks of which no two are equal, the first of each kind, and how many there are."""
    first: Dict[Tuple[object, ...], Shown] = {}
    counts: Dict[Tuple[object, ...], int] = {}
    for shown in listed:
        key = shown.key
        first.setdefault(key, shown)
        counts[key] = counts.get(key, 0) + 1
    return [(shown, counts[key]) for key, shown in first.items()]
