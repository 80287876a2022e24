# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.callstacks`."""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Optional, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from ..base import bulk
from ..names.symbolizer import Name, Symbolizer
from ..stacks.decode.frames import Frame
from ..stacks.lister import UNSURE, CallStack
from ..tracedb.decode import capture
from ..traps.state import words

Cells = Tuple[object, ...]

HASH_UNSURE = "hash unsure"

COLUMNS = [
    ("PID", int),
    ("Process", str),
    ("TID", int),
    ("Stack", str),
    ("Depth", int),
    ("BackTraceHash", format_hints.Hex),
    ("Frame", int),
    ("Sp", format_hints.Hex),
    ("Address", format_hints.Hex),
    ("Symbol", str),
    ("Source", str),
    ("How", str),
    ("Status", str),
    ("State", str),
    ("WaitReason", str),
    ("StartAddress", format_hints.Hex),
    ("StartSymbol", str),
    ("Count", int),
]

_NONE = renderers.NotApplicableValue()
_UNREADABLE = renderers.UnreadableValue()


class NamedFrame(NamedTuple):
    """A frame with its number in the stack and its name."""

    number: int
    frame: Frame
    name: Name


class Shown(NamedTuple):
    """What is shown of a stack: `captured` is what RtlCaptureStackBackTrace would have returned.

    `status` is the stack's, and says if that is a guess.
    """

    stack: CallStack
    frames: List[NamedFrame]
    captured: capture.Capture
    status: str

    @property
    def key(self) -> Cells:
        """What two stacks have in common if they are the same."""
        frames = tuple((each.frame.address, each.name.symbol, each.frame.how) for each in self.frames)
        return (self.stack.part, self.stack.space.arch, self.status, frames)


class CallStackRows:
    """Makes rows.

    Args:
        layer: the layer whose form of addresses the columns have
        symbolizer: names addresses
        frames_to_skip: as RtlCaptureStackBackTrace takes it
        frames_to_capture: the same; None for all
    """

    def __init__(
        self,
        layer: interfaces.layers.DataLayerInterface,
        symbolizer: Symbolizer,
        frames_to_skip: int = 0,
        frames_to_capture: Optional[int] = None,
    ) -> None:
        self._layer = layer
        self._symbolizer = symbolizer
        self._skip = max(frames_to_skip, 0)
        self._count = frames_to_capture

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
            NamedFrame(number, frame, names.name(frame.address, frame.returns))
            for number, frame in zip(numbers, frames)
        ]
        # A guess among the frames that were skipped leaves it open where those that follow belong.
        guessed = any(not frame.sure for frame in stack.frames[first : begin + len(captured.frames)])
        status = words(stack.status, HASH_UNSURE if guessed and captured.frames else "")
        return Shown(stack, named, captured, status)

    def stack(self, shown: Shown, count: int = 1) -> Cells:
        """Returns the row of a stack."""
        stack, thread = shown.stack, shown.stack.thread
        start = thread.win32_start_address or thread.start_address
        name = None if start is None else self._symbolizer.names(thread.space).name(start, False)
        return (
            *self._key(stack),
            len(shown.captured.frames),
            _NONE if shown.captured.hash is None else format_hints.Hex(shown.captured.hash),
            *(_NONE,) * 6,
            shown.status,
            thread.state_name or _UNREADABLE,
            thread.wait_reason_name or _NONE,
            _UNREADABLE if start is None else self._hex(start),
            _UNREADABLE if name is None else name.symbol,
            count,
        )

    def frames(self, shown: Shown) -> Iterator[Cells]:
        """Yields the rows of a stack's frames, innermost first."""
        for number, frame, name in shown.frames:
            yield (
                *self._key(shown.stack),
                _NONE,
                _NONE,
                number,
                self._hex(frame.sp),
                self._hex(frame.address),
                name.symbol,
                name.source,
                frame.how,
                words(name.status, "" if frame.sure else UNSURE),
                *(_NONE,) * 5,
            )

    def _key(self, stack: CallStack) -> Cells:
        thread = stack.thread
        tid = _UNREADABLE if thread.tid is None else thread.tid
        return (thread.space.pid, thread.space.process, tid, stack.part)

    def _hex(self, address: int) -> format_hints.Hex:
        return format_hints.Hex(bulk.masked(self._layer, address))
