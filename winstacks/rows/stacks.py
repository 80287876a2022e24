# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The rows of `windows.callstacks`."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Iterator, NamedTuple, Sequence, Tuple

from ..columns.words import SCAN
from ..memory.decode.status import Status, status, text
from ..memory.decode.statuscodes import StatusCode
from ..stacklist.frames import NamedFrame
from ..stacklist.shown import left_out, shown_numbers
from ..stacks.decode.frames import Frame
from ..stacks.lister import CallStack
from ..tracedb.decode import capture
from .command import Command
from .frames import folded, unbacked
from .grid import NOT_APPLICABLE, NOT_AVAILABLE, UNREADABLE, Cells, Grid, Hex, Row, or_unreadable

GRID = Grid.for_plugin("callstacks")

_STACK = ("PID", "Process", "TID", "Arch", "Part")
_FRAME = ("Frame", "Sp", "Address", "Symbol", "Source", "Backing", "How", "Status")
_is_sure = attrgetter("sure")

_THREAD = ("State", "WaitReason", "StartAddress", "StartSymbol")


class ShownStack(NamedTuple):
    """A stack as it is shown.

    Attributes:
        numbers: numbers of the shown frames within the stack
        captured: the result that RtlCaptureStackBackTrace would have returned
        status: status of the stack, and whether `captured` is a guess
    """

    stack: CallStack
    numbers: Sequence[int]
    named: Sequence[NamedFrame]
    captured: capture.Capture
    status: Status

    @property
    def key(self) -> Tuple[object, ...]:
        """The key by which equal stacks are counted together."""
        frames = tuple(
            (frame.address, frame.shown, self.stack.frames[number].how)
            for number, frame in zip(self.numbers, self.named)
        )
        return (self.stack.part, self.stack.space.arch, self.status, frames)


class CallStackRows:
    """Makes rows.

    Args:
        command: the command that shows them; `frames_to_skip` and `frames_to_capture` are parameters of
            RtlCaptureStackBackTrace
    """

    def __init__(self, command: Command[Any, ShownStack]) -> None:
        self._fold = command.option("fold")
        self._candidates = command.option("candidates")
        self._machine = command.image.machine
        self._named = command.named
        self._printer = command.printer
        self._skip = max(command.config.get("frames_to_skip", 0) or 0, 0)
        self._count = command.config.get("frames_to_capture")
        self._stack = GRID.maker(
            *_STACK, "Depth", "BackTraceHash", "Unbacked", "Stack", "Status", *_THREAD, "Count"
        )
        self._frame = GRID.maker(*_STACK, *_FRAME)

    def shown(self, stack: CallStack) -> ShownStack:
        """Captures a stack and names its frames; an interrupted innermost address is always among them."""
        addresses = stack.return_addresses
        count = len(addresses) if self._count is None else self._count
        captured = capture.capture(addresses, self._skip, count)
        first = len(stack.frames) - len(addresses)
        begin = first + self._skip
        numbers = [*range(first), *range(begin, begin + len(captured.frames))]
        cut = left_out(len(numbers))
        numbers = [numbers[place] for place in shown_numbers(len(numbers))]
        frames = [stack.frames[number] for number in numbers]
        named = self._named.for_space(stack.space).name_walked(frames)
        # After a guess among the skipped frames the numbers of the following frames are uncertain.
        guessed = not all(map(_is_sure, stack.frames[first : begin + len(captured.frames)]))
        unsure = StatusCode.HASH_UNSURE if guessed and captured.frames else None
        return ShownStack(stack, numbers, named, captured, status(stack.status, cut, unsure))

    def stack(self, shown: ShownStack, count: int = 1) -> Iterator[Row]:
        """Yields the rows of a stack and of its frames, innermost first."""
        thread = shown.stack.thread
        start = thread.win32_start_address or thread.start_address
        # A dump of a process lacks these members of the kernel.
        absent = NOT_AVAILABLE if thread.contexts else UNREADABLE
        waits = NOT_AVAILABLE if thread.contexts and thread.state is None else NOT_APPLICABLE
        begin: Cells = (absent, absent)
        if start is not None:
            begin = self._printer[self._named.for_space(thread.space).frame(start, returns=False)][:2]
        frames = [shown.stack.frames[number] for number in shown.numbers]
        # Without frame rows only this status shows that some frames are guesses.
        guessed = self._fold and not all(map(_is_sure, frames))
        key = self._key(shown.stack)
        yield (
            0,
            self._stack(
                *key,
                len(shown.captured.frames),
                NOT_APPLICABLE if shown.captured.hash is None else Hex(shown.captured.hash),
                unbacked(shown.named),
                folded(shown.named, self._fold, self._machine.address_mask),
                text(status(shown.status, StatusCode.UNSURE if guessed else None)),
                thread.state_name or absent,
                thread.wait_reason_name or waits,
                *begin,
                count,
            ),
        )
        if not self._fold:
            yield from self._frame_rows(key, shown, frames)
        if self._candidates and not self._fold:
            yield from self._candidate_rows(key, shown.stack)

    def _frame_rows(self, key: Cells, shown: ShownStack, frames: Sequence[Frame]) -> Iterator[Row]:
        pid, process, tid, arch, part = key
        start, mask, printer = self._frame, self._machine.address_mask, self._printer
        for number, frame, named in zip(shown.numbers, frames, shown.named):
            where, symbol, source, backing, row_status = printer.walked(named, frame)
            sp, how = Hex(frame.sp & mask), frame.how
            row = start(
                pid, process, tid, arch, part, number, sp, where, symbol, source, backing, how, row_status
            )
            yield 1, row

    def _candidate_rows(self, key: Cells, stack: CallStack) -> Iterator[Row]:
        """Yields the rows of a stack's candidates, innermost first; they have no number."""
        mask, names = self._machine.address_mask, self._named.for_space(stack.space)
        size = stack.space.machine.pointer_size
        for candidate in stack.candidates:
            named = names.frame(candidate.address, True)
            absent = StatusCode.CODE_ABSENT if candidate.absent else None
            cells = self._printer.guess(named, StatusCode.CANDIDATE, absent, StatusCode.UNSURE)
            where, symbol, source, backing, remarks = cells
            sp = Hex(candidate.slot + size & mask)
            row = self._frame(*key, NOT_APPLICABLE, sp, where, symbol, source, backing, SCAN, remarks)
            yield 1, row

    def _key(self, stack: CallStack) -> Cells:
        thread = stack.thread
        return (
            or_unreadable(thread.space.pid),
            or_unreadable(thread.space.known_name),
            or_unreadable(thread.tid),
            stack.space.arch,
            stack.part,
        )
