# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.callstacks`."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from ..base import bulk
from ..base.decode.record import Record
from ..base.decode.status import Status, Word, status, text
from ..names.symbolizer import Name, Symbolizer
from ..stacks.decode.frames import Frame
from ..stacks.lister import CallStack
from ..tracedb.decode import capture
from .frames import Selection
from .grid import NOT_APPLICABLE, UNREADABLE, Cells, Grid, Hex, Row, known

GRID = Grid(
    ("PID", int),
    ("Process", str),
    ("TID", int),
    ("Stack", str),
    ("Depth", int),
    ("BackTraceHash", Hex),
    ("Frame", int),
    ("Sp", Hex),
    ("Address", Hex),
    ("Symbol", str),
    ("Source", str),
    ("How", str),
    ("Status", str),
    ("State", str),
    ("WaitReason", str),
    ("StartAddress", Hex),
    ("StartSymbol", str),
    ("Count", int),
)

_STACK = ("PID", "Process", "TID", "Stack")
_THREAD = ("State", "WaitReason", "StartAddress", "StartSymbol")


class Shown(Record):
    """What is shown of a stack.

    Attributes:
        stack: the stack
        frames: number in the stack, frame and name of each that is shown
        captured: what RtlCaptureStackBackTrace would have returned
        status: the stack's, and whether `captured` is a guess
    """

    stack: CallStack
    frames: List[Tuple[int, Frame, Name]]
    captured: capture.Capture
    status: Status

    @property
    def key(self) -> Tuple[object, ...]:
        """What two stacks have in common if they are the same."""
        frames = tuple((frame.address, name.symbol, frame.how) for _, frame, name in self.frames)
        return (self.stack.part, self.stack.space.arch, self.status, frames)


class CallStackRows:
    """Makes rows.

    Args:
        symbolizer: names addresses
        frames_to_skip: as RtlCaptureStackBackTrace takes it
        frames_to_capture: the same; None for all
    """

    def __init__(
        self, symbolizer: Symbolizer, frames_to_skip: int = 0, frames_to_capture: Optional[int] = None
    ) -> None:
        self._layer = symbolizer.image.layer
        self._symbolizer = symbolizer
        self._skip = max(frames_to_skip, 0)
        self._count = frames_to_capture
        self._stack = GRID.maker(*_STACK, "Depth", "BackTraceHash", "Status", *_THREAD, "Count")
        self._frame = GRID.maker(*_STACK, "Frame", "Sp", "Address", "Symbol", "Source", "How", "Status")

    def shown(self, stack: CallStack) -> Shown:
        """Captures a stack and names its frames; an interrupted innermost address is always among them."""
        addresses = stack.return_addresses
        wanted = len(addresses) if self._count is None else self._count
        captured = capture.capture(addresses, self._skip, wanted)
        first = len(stack.frames) - len(addresses)
        begin = first + self._skip
        numbers = [*range(first), *range(begin, begin + len(captured.frames))]
        names = self._symbolizer.names(stack.space)
        frames = [stack.frames[number] for number in numbers]
        named = [
            (number, frame, names.name(frame.address, frame.returns))
            for number, frame in zip(numbers, frames)
        ]
        # A guess among the frames that were skipped leaves it open where those that follow belong.
        guessed = any(not frame.sure for frame in stack.frames[first : begin + len(captured.frames)])
        unsure = Word.HASH_UNSURE if guessed and captured.frames else None
        return Shown(stack, named, captured, status(stack.status, unsure))

    def stack(self, shown: Shown, count: int = 1) -> Cells:
        """Returns the row of a stack."""
        thread = shown.stack.thread
        start = thread.win32_start_address or thread.start_address
        name = None if start is None else self._symbolizer.names(thread.space).name(start, False)
        return self._stack(
            *self._key(shown.stack),
            len(shown.captured.frames),
            NOT_APPLICABLE if shown.captured.hash is None else Hex(shown.captured.hash),
            text(shown.status),
            thread.state_name or UNREADABLE,
            thread.wait_reason_name or NOT_APPLICABLE,
            UNREADABLE if start is None else self._hex(start),
            UNREADABLE if name is None else name.symbol,
            count,
        )

    def frame_rows(self, shown: Shown) -> Iterator[Row]:
        """Yields the rows of a stack's frames, innermost first."""
        key = self._key(shown.stack)
        for number, frame, name in shown.frames:
            said = status(name.status, None if frame.sure else Word.UNSURE)
            where = (self._hex(frame.sp), self._hex(frame.address))
            yield 1, self._frame(*key, number, *where, name.symbol, name.source, frame.how, text(said))

    def _key(self, stack: CallStack) -> Cells:
        thread = stack.thread
        return (thread.space.pid, thread.space.process, known(thread.tid), stack.part)

    def _hex(self, address: int) -> Hex:
        return Hex(bulk.masked(self._layer, address))


def selected(listed: Iterable[Shown], selection: Selection) -> Iterator[Shown]:
    """Returns the stacks that a selection takes."""
    everything = selection.everything
    return (each for each in listed if everything or selection.takes(name for _, _, name in each.frames))


def counted(listed: Iterable[Shown]) -> List[Tuple[Shown, int]]:
    """Returns stacks of which no two are equal, the first of each kind, and how many there are."""
    first: Dict[Tuple[object, ...], Shown] = {}
    counts: Dict[Tuple[object, ...], int] = {}
    for shown in listed:
        key = shown.key
        first.setdefault(key, shown)
        counts[key] = counts.get(key, 0) + 1
    return [(shown, counts[key]) for key, shown in first.items()]
