# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Converts stacks to rows of the flat tables, in plain Python values.

tables = FlatTables(image)
tables.trace(stack)             # a value for each column of `columns.tables.TRACES`, None where there is none
tables.frames(stack)            # the same for each frame of the stack, by `FRAMES`
tables.wait(row)                # the same for a row of waits, by `WAITS`
image_values(facts)             # the same for the facts about the image, by `IMAGE`
json_line(TRACES, tables.trace(stack))
"""

from __future__ import annotations

import datetime
import json
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ..columns.dictionary import SCHEMA, TIME, Column
from ..columns.tables import FRAMES, IMAGE
from ..columns.words import DEADLOCK, EXACT, HANDLE, RECORDED
from ..memory.decode.memo import Memo
from ..memory.decode.status import Status, status, text
from ..memory.decode.text import moment
from ..memory.image import Image
from ..process.processlist import create_time
from ..stacks.decode.frames import Frame
from ..waits.records import WaitOwner
from .frames import MAX_FRAMES, NamedFrame, stack_text
from .imagefacts import Facts, identity
from .stack import StackRecord, frame_status
from .threadwaits import WaitRow, shown_space

Values = Tuple[object, ...]

FRAME = [column.name for column in FRAMES].index("Frame")
"""Index of the column Frame: the columns before it are equal for all frames of a stack."""

_Time = Optional[datetime.datetime]


class FlatTables:
    """Converts stacks and their frames to rows."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._image_id = image.service(identity).image_id
        self._processes: Memo[int, Tuple[Optional[int], _Time]] = Memo(self._process)
        self._texts: Memo[Status, str] = Memo(text)
        self._tails: Memo[NamedFrame, str] = Memo(self._tail, MAX_FRAMES)

    def trace(self, stack: StackRecord) -> Values:
        """Returns the row of a stack, in the order of TRACES."""
        space, thread, keys = stack.space, stack.thread, stack.keys()
        offset, created = self._processes[space.eprocess]
        exact = keys.quality in (None, EXACT)
        started = moment(thread.create_time if thread else None)
        return (
            self._image_id,
            SCHEMA,
            stack.trace_id,
            stack.kind,
            space.pid,
            space.known_name,
            offset,
            created,
            stack.tid,
            started,
            space.arch,
            _hexadecimal(self._owner(stack)),
            stack.owner_name,
            stack.event,
            stack.counted,
            stack.size,
            stack.depth,
            stack.hash,
            keys.stack,
            keys.shape,
            keys.quality,
            stack.unbacked,
            stack.guessed,
            self._stack_text(stack),
            stack.modules(keys),
            stack.incomplete,
            self._texts[stack.status if exact else status(stack.status, stack.doubts)],
        )

    def key(self, stack: StackRecord) -> Values:
        """Returns the values that the rows of a stack's frames have in common: the columns before Frame."""
        return (self._image_id, SCHEMA, stack.trace_id, stack.space.pid, stack.space.arch)

    def frames(self, stack: StackRecord) -> Iterator[Values]:
        """Yields the rows of the frames of a stack, innermost first, in the order of FRAMES."""
        key = self.key(stack)
        for number in stack.shown:
            walked = stack.walked[number] if stack.walked else None
            yield (*key, number, *self.frame(stack.frames[number], walked))

    def frame(self, frame: NamedFrame, walked: Optional[Frame] = None) -> Values:
        """Returns the columns after Frame. `walked` is how the walk found the frame; None for a recorded
        stack."""
        name, details = frame.name, frame.details
        return (
            _hexadecimal(frame.address),
            None if walked is None else _hexadecimal(walked.stack_pointer),
            details.module,
            details.path,
            details.stamp,
            details.size,
            details.rva,
            details.function,
            details.displacement,
            None if name is None else frame.symbol(),
            None if name is None else name.source,
            RECORDED if walked is None else walked.how,
            None if walked is None else walked.return_register,
            None if name is None else name.backing or None,
            details.protection,
            *frame.code,
            self._texts[frame_status(frame, walked)],
        )

    def frame_lines(self, stack: StackRecord) -> List[str]:
        """Returns the frames of a stack as lines of JSON."""
        if stack.walked:
            return [json_line(FRAMES, values) for values in self.frames(stack)]
        begin = json_line(FRAMES[:FRAME], self.key(stack))[: -len("}\n")]
        tails = map(self._tails.__getitem__, stack.frames)
        return [f'{begin}, "Frame": {number}, {tail}' for number, tail in enumerate(tails)]

    def _tail(self, frame: NamedFrame) -> str:
        return json_line(FRAMES[FRAME + 1 :], self.frame(frame))[len("{") :]

    def _stack_text(self, stack: StackRecord) -> Optional[str]:
        frames = [stack.frames[number] for number in stack.shown]
        return stack_text(frames, self._image.machine.address_mask) if frames else None

    def _owner(self, stack: StackRecord) -> Optional[int]:
        """Returns Owner of a stack: an address in the form of Volatility's columns, or a handle as it is."""
        if stack.owner is None or stack.kind == HANDLE:
            return stack.owner
        return self._image.machine.masked(stack.owner)

    def _process(self, eprocess: int) -> Tuple[Optional[int], _Time]:
        """Returns ProcessOffset and ProcessCreateTime of a process."""
        created = create_time(self._image, eprocess)
        offset = self._image.machine.masked(eprocess) if eprocess else None
        return offset, moment(created)

    def wait(self, row: WaitRow) -> Values:
        """Returns the row of a wait or a deadlock, in the order of WAITS."""
        thread, awaited = row.wait.thread, row.awaited
        space, started = thread.space, thread.create_time
        offset, created = self._processes[space.eprocess]
        key = (self._image_id, SCHEMA, row.trace_id, space.pid, space.known_name, offset, created)
        arch, end = shown_space(row.wait).arch, (row.end, row.deadlock, row.symbol, row.evidence)
        if awaited is None:
            return (*key, None, None, arch, DEADLOCK, *(None,) * 9, *end, self._texts[row.status])
        owner = awaited.owners[0] if awaited.owners else WaitOwner(None, None, None)
        address = None if awaited.address is None else self._image.machine.masked(awaited.address)
        return (
            *key,
            thread.tid,
            moment(started),
            arch,
            awaited.kind,
            _hexadecimal(address),
            awaited.name or None,
            awaited.mode or None,
            moment(row.wait.since),
            awaited.known,
            awaited.ownership,
            owner.pid,
            owner.process,
            owner.tid,
            *end,
            self._texts[row.status],
        )


def image_values(facts: Facts) -> Values:
    """Returns the row of the facts about an image, in the order of IMAGE."""
    return tuple(_of_image(column, facts.get(column.name)) for column in IMAGE)


def _of_image(column: Column, value: Any) -> object:
    if column.name == "Status":
        return text(value)
    if value is None or (column.nullable and value == ""):
        return None
    return moment(value) if column.type == TIME else value


def json_line(columns: Sequence[Column], values: Values) -> str:
    """Returns a row as a line of JSON with its line feed, in the format of Volatility's JSON renderer."""
    row: Dict[str, object] = {column.name: value for column, value in zip(columns, values)}
    return json.dumps(row, default=_json) + "\n"


def _json(value: object) -> object:
    """Returns the JSON value for an object that the json module cannot serialise."""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _hexadecimal(value: Optional[int]) -> Optional[str]:
    return None if value is None else f"{value:#x}"
