# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.callstacks`."""

from __future__ import annotations

import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

from volatility3.framework import interfaces
from volatility3.plugins import timeliner

from ..columns.words import SCAN
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import moment
from ..memory.image import AddressSpace
from ..names.places import VADS_INCOMPLETE
from ..process.thread import Thread
from ..process.threads import Threads
from ..rows.command import Command
from ..rows.entries import SPACE, ShownEntry
from ..rows.grid import NOT_APPLICABLE, NOT_AVAILABLE, UNREADABLE, Cells, Grid, Hex, Row
from ..stacklist.frames import NamedFrame
from ..stacklist.shown import left_out, shown_numbers
from ..stacklist.traces import started
from ..stacks.decode.frames import Frame
from ..stacks.lister import CallStack, StackLister
from ..tracedb.decode import capture

Event = Tuple[str, timeliner.TimeLinerType, Union[datetime.datetime, interfaces.renderers.BaseAbsentValue]]


GRID = Grid.for_plugin("callstacks")

_STACK = ("TID", "Part")
_FRAME = GRID.maker(
    *(*SPACE, *_STACK, "Frame", "Sp", "Address", "Symbol", "Source", "Backing", "How", "Status")
)
_is_sure = attrgetter("sure")


class ShownStack(NamedTuple):
    """A stack as it is shown.

    Attributes:
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


class CallStacks(Command[Thread, ShownStack]):
    """The work of `windows.callstacks`."""

    grid = GRID
    key = _STACK
    unreadable = ("PID", "Process", "TID")
    things = "stacks"
    nothing = "No stack: the selected processes have no thread"
    kernel = False

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        self._unique: Dict[Tuple[object, ...], Tuple[ShownStack, int]] = {}

    @cached_property
    def _lister(self) -> StackLister:
        return StackLister(self.image, self.symbolizer)

    def _wanted_threads(self) -> List[Any]:
        """Returns the selected processes, and the values of --offset and --tid."""
        return [self.pids, self.config.get("offset"), self.config.get("tid") or None]

    def steps(self) -> List[Thread]:
        return list(Threads.list_threads(self.image, *self._wanted_threads()))

    def divides(self) -> bool:
        # --unique counts equal stacks of all processes.
        return not self.option("unique")

    def space(self, step: Thread) -> AddressSpace:
        return step.space

    def describe(self, step: Thread) -> str:
        return f"Walking the stacks of process {step.space.pid_text}"

    def items(self, step: Thread) -> Iterator[ShownStack]:
        self.requested.mark_seen("tid", step.tid)
        return map(self._shown_stack, self._lister.thread_stacks(step))

    def _shown_stack(self, stack: CallStack) -> ShownStack:
        """Captures a stack and names its frames; an interrupted innermost address is always among them."""
        addresses, count = stack.return_addresses, self.config.get("frames_to_capture")
        skip = max(self.config.get("frames_to_skip", 0) or 0, 0)
        captured = capture.capture(addresses, skip, len(addresses) if count is None else count)
        first = len(stack.frames) - len(addresses)
        begin = first + skip
        numbers = [*range(first), *range(begin, begin + len(captured.frames))]
        cut = left_out(len(numbers))
        numbers = [numbers[place] for place in shown_numbers(len(numbers))]
        named = self.frames_of(stack.space).name_walked([stack.frames[number] for number in numbers])
        # After a guess among the skipped frames the numbers of the following frames are uncertain.
        guessed = not all(map(_is_sure, stack.frames[first : begin + len(captured.frames)]))
        unsure = StatusCode.HASH_UNSURE if guessed and captured.frames else None
        return ShownStack(stack, numbers, named, captured, status(stack.status, cut, unsure))

    def frames(self, item: ShownStack) -> Sequence[NamedFrame]:
        return item.named

    def rows(self, item: ShownStack, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        if not self.option("unique"):
            return self._stack(item)
        first, count = self._unique.get(item.key, (item, 0))
        self._unique[item.key] = first, count + 1
        return iter(())

    def finish(self) -> Iterator[Row]:
        if self.option("candidates") and self.option("fold"):
            self.log.warning("--fold leaves out the rows of --candidates")
        for shown, count in self._unique.values():
            yield from self._stack(shown, count)

    def _stack(self, shown: ShownStack, count: int = 1) -> Iterator[Row]:
        """Yields the rows of a stack and of its frames, innermost first."""
        stack, thread, fold = shown.stack, shown.stack.thread, self.option("fold")
        start = thread.win32_start_address or thread.start_address
        # A dump of a process lacks these members of the kernel.
        absent = NOT_AVAILABLE if thread.contexts else UNREADABLE
        waits = NOT_AVAILABLE if thread.contexts and thread.state is None else None
        begin: Cells = (absent, absent)
        doubts: Status = NOTHING
        if start is not None:
            named = self.frames_of(thread.space).frame(start, returns=False)
            begin = self.printer[named][:2]
            doubts = VADS_INCOMPLETE.status if named.name == VADS_INCOMPLETE else NOTHING
        frames = [stack.frames[number] for number in shown.numbers]
        # Without frame rows only this status shows that some frames are guesses.
        guessed = fold and not all(map(_is_sure, frames))
        cells = {
            "TID": thread.tid,
            "Part": stack.part,
            "Depth": len(shown.captured.frames),
            "BackTraceHash": shown.captured.hash,
            "State": thread.state_name or absent,
            "WaitReason": thread.wait_reason_name or waits,
            **dict(zip(("StartAddress", "StartSymbol"), begin)),
            "Count": count,
        }
        row_status = status(shown.status, doubts, StatusCode.UNSURE if guessed else None)
        space = thread.space._replace(machine=stack.space.machine)
        row = self.entries.folded(ShownEntry(space, row_status, cells), shown.named)
        yield 0, row
        if not fold:
            key = self.entries.key_of(row)
            yield from self._frame_rows(key, shown, frames)
            yield from self._candidate_rows(key, stack) if self.option("candidates") else ()

    def _frame_rows(self, key: Cells, shown: ShownStack, frames: Sequence[Frame]) -> Iterator[Row]:
        pid, process, arch, tid, part = key
        start, mask, walked = _FRAME, self.printer.mask, self.printer.walked
        for number, frame, named in zip(shown.numbers, frames, shown.named):
            where, symbol, source, backing, row_status = walked(named, frame)
            sp, how = Hex(frame.sp & mask), frame.how
            row = start(
                pid, process, arch, tid, part, number, sp, where, symbol, source, backing, how, row_status
            )
            yield 1, row

    def _candidate_rows(self, key: Cells, stack: CallStack) -> Iterator[Row]:
        """Yields the rows of a stack's candidates, innermost first; they have no number."""
        mask, names, size = self.printer.mask, self.frames_of(stack.space), stack.space.pointer_size
        for candidate in stack.candidates:
            named = names.frame(candidate.address, True)
            absent = StatusCode.CODE_ABSENT if candidate.absent else None
            *cells, remarks = self.printer.guess(named, StatusCode.CANDIDATE, absent, StatusCode.UNSURE)
            yield 1, _FRAME(*key, NOT_APPLICABLE, Hex(candidate.slot + size & mask), *cells, SCAN, remarks)

    def generate_timeline(self) -> Iterator[Event]:
        """Yields the creation times of processes and threads, for Volatility's timeliner."""
        for start in started(self.symbolizer, *self._wanted_threads()):
            yield start.description, timeliner.TimeLinerType.CREATED, moment(start.time) or UNREADABLE
