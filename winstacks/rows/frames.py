# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The cells of frames, and the rows of stacks, as every plugin that lists one kind of stack shows them."""

from __future__ import annotations

from typing import Collection, Optional, Tuple

from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.status import status, text
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import ShortText
from ..stacklist.frames import LINKED_OVER, MAX_FRAMES, NamedFrame, count_unbacked, stack_text
from ..stacks.decode.frames import Frame
from .grid import NOT_APPLICABLE, UNPARSABLE, UNREADABLE, Hex, or_unreadable


class StackCell(ShortText):
    """A column Stack: text renderers and csv show the short form, json and jsonl the value."""

    def __format__(self, form: str) -> str:
        return format(self.short, form)


FrameCells = Tuple[object, object, object, object, str]
"""Address, Symbol, Source, Backing and Status of a frame."""


class FramePrinter(Memo[NamedFrame, FrameCells]):
    """The cells of frames; each frame's are made once: `printer[frame]`. `machine` is the machine whose form
    of addresses the column Address shows."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(self._print, MAX_FRAMES)
        self.mask = machine.address_mask

    def _print(self, frame: NamedFrame) -> FrameCells:
        name = frame.name
        if name is None or frame.address is None:
            absent = UNPARSABLE if frame is LINKED_OVER else UNREADABLE
            return (absent, absent, absent, absent, text(frame.details.status))
        where, backing = Hex(frame.address & self.mask), name.backing or NOT_APPLICABLE
        return (where, frame.symbol(self.mask), name.source, backing, text(name.status))

    def guess(self, frame: NamedFrame, *words: Optional[StatusCode]) -> FrameCells:
        """Returns the cells of a frame that the walker guessed: its Status has `unsure`, or other words."""
        cells = self[frame]
        if frame.name is None:
            return cells
        return (*cells[:-1], text(status(frame.name.status, *(words or (StatusCode.UNSURE,)))))

    def walked(self, frame: NamedFrame, found: Frame) -> FrameCells:
        return self[frame] if found.sure else self.guess(frame)


def unbacked(frames: Collection[NamedFrame]) -> object:
    return or_unreadable(count_unbacked(frames)) if frames else NOT_APPLICABLE


def folded(frames: Collection[NamedFrame], fold: bool = True, mask: int = -1) -> object:
    """Returns the cell Stack: with --fold the frames as one text, innermost first."""
    return stack_cell(stack_text(frames, mask)) if fold and frames else NOT_APPLICABLE


def stack_cell(stack: str) -> str:
    """Returns the cell Stack of a text of frames; see `StackCell`."""
    return StackCell(stack, stack.short) if isinstance(stack, ShortText) else stack
