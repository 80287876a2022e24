# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the tables of one image as Parquet, batch by batch; no batch holds more than BATCH rows.

Stacks share most of their frames. What is to be said of a frame is made once for each distinct frame of a
batch, and a column of frames is that, taken by number: no row of frames exists in Python.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import pyarrow as pa
import pyarrow.parquet as pq
from volatility3.plugins.windows.stacktraces.flat.decode import schema
from volatility3.plugins.windows.stacktraces.flat.frames import FlatFrame
from volatility3.plugins.windows.stacktraces.flat.stack import FlatStack
from volatility3.plugins.windows.stacktraces.flat.tables import FRAME, FlatTables

from .columns import SCHEMAS
from .layout import FRAMES, MODULE_SETS, TABLES, TRACES, table_file

BATCH = 1 << 14
"""Stacks of a batch, if they have few frames."""
MOST_FRAMES = 1 << 18
"""Frames of a batch."""

_Version = tuple[str, Optional[int], Optional[int]]
"""Name in lower case, TimeDateStamp, SizeOfImage."""


class TableFiles:
    """The files of one attempt, one for each table; a table without rows has a file with its schema.

    Args:
        lake: the folder of the lake
        image_id: the image
        attempt: the attempt
    """

    def __init__(self, lake: str, image_id: str, attempt: str) -> None:
        self.rows = dict.fromkeys(TABLES, 0)
        self.paths = {name: table_file(lake, name, image_id, attempt) for name in TABLES}
        self._writers = {}
        for name, path in self.paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writers[name] = pq.ParquetWriter(path, SCHEMAS[name], compression="zstd")

    def write(self, table: str, columns: Sequence[Any]) -> None:
        """Writes a batch of rows.

        Args:
            table: its name
            columns: an Arrow array for each column
        """
        batch = pa.record_batch(list(columns), schema=SCHEMAS[table])
        if batch.num_rows:
            self._writers[table].write_batch(batch)
            self.rows[table] += batch.num_rows

    def write_rows(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Writes rows in plain values of Python, None for no value."""
        held: list[Sequence[object]] = []
        for row in rows:
            held.append(row)
            if len(held) == BATCH:
                self.write(table, _transposed(table, held))
                held = []
        if held:
            self.write(table, _transposed(table, held))

    def close(self) -> None:
        """Ends all files."""
        for each in self._writers.values():
            each.close()


class StackWriter:
    """Writes stacks, their frames, and the versions of modules that are in their keys.

    Args:
        tables: makes what is said of stacks and frames
        files: where it goes
    """

    def __init__(self, tables: FlatTables, files: TableFiles) -> None:
        self._tables = tables
        self._files = files
        self._sets: dict[frozenset[Optional[_Version]], int] = {}
        self._keys: Optional[tuple[object, ...]] = None
        self._begin()

    def add(self, stack: FlatStack) -> None:
        """Takes a stack."""
        self._keys = self._tables.key(stack)[:2]
        places = self._of_frames(stack)
        self._traces.append((*self._tables.trace(stack), self._module_set(stack, places)))
        if places:
            self._depths.append(len(places))
            self._with_frames.append(len(self._traces) - 1)
            self._places.extend(places)
            self._numbers.extend(range(len(stack.frames)))
            if len(self._places) >= MOST_FRAMES:
                self._write()
                return
        if len(self._traces) >= BATCH:
            self._write()

    def finish(self) -> None:
        """Writes what is left, and the module sets of all stacks."""
        self._write()
        keys = self._keys or ()
        # Sets that differ by frames in no module only have the same number.
        sets = {number: _sorted(known) for known, number in self._sets.items()}
        rows = ((*keys, number, *each) for number, versions in sets.items() for each in versions)
        self._files.write_rows(MODULE_SETS, rows)

    def _begin(self) -> None:
        self._traces: list[tuple[object, ...]] = []
        self._with_frames = array("i")
        self._depths = array("i")
        self._places = array("i")
        self._numbers = array("q")
        self._distinct: list[tuple[object, ...]] = []
        # The frame is kept beside its place, so that no other frame gets its address.
        self._known: dict[int, tuple[FlatFrame, int]] = {}
        self._versions: list[Optional[_Version]] = []

    def _of_frames(self, stack: FlatStack) -> list[int]:
        """Returns the places of the frames of a stack among the distinct ones of the batch."""
        if stack.walked:
            return [self._new(frame, walked) for frame, walked in zip(stack.frames, stack.walked)]
        known = self._known
        try:
            return [known[id(frame)][1] for frame in stack.frames]
        except KeyError:
            return [self._place(frame) for frame in stack.frames]

    def _place(self, frame: FlatFrame) -> int:
        found = self._known.get(id(frame))
        if found is None:
            found = self._known[id(frame)] = frame, self._new(frame)
        return found[1]

    def _new(self, frame: FlatFrame, walked: Any = None) -> int:
        self._distinct.append(self._tables.frame(frame, walked))
        self._versions.append(_version(frame))
        return len(self._distinct) - 1

    def _module_set(self, stack: FlatStack, places: Sequence[int]) -> Optional[int]:
        """Returns the number of the versions of modules in the key of a stack; None if there are none.

        Args:
            stack: the stack
            places: those of its frames
        """
        if stack.walked:
            places = [
                place
                for number, (place, walked) in enumerate(zip(places, stack.walked))
                if walked.how != schema.SCAN and (number or walked.how != schema.TRAP)
            ]
        known = frozenset(map(self._versions.__getitem__, places))
        number = self._sets.get(known)
        if number is None:
            versions = _sorted(known)
            number = self._sets[known] = module_set(versions) if versions else 0
        return number or None

    def _write(self) -> None:
        """Writes the batch, and begins the next one."""
        if self._traces:
            columns = _transposed(TRACES, self._traces)
            self._files.write(TRACES, columns)
            if self._places:
                self._files.write(FRAMES, self._frame_columns(columns))
        self._begin()

    def _frame_columns(self, traces: Sequence[Any]) -> list[Any]:
        owners = array("i")
        for place, depth in zip(self._with_frames, self._depths):
            owners.extend([place] * depth)
        of_owner = _numbers(pa.int32(), owners)
        names = SCHEMAS[TRACES].names
        columns = [
            traces[names.index(name)].take(of_owner)
            for name in (column.name for column in schema.FRAMES[:FRAME])
        ]
        columns.append(_numbers(pa.int64(), self._numbers))
        places = _numbers(pa.int32(), self._places)
        said = schema.FRAMES[FRAME + 1 :]
        for column, values in zip(said, zip(*self._distinct)):
            columns.append(_array(FRAMES, column.name, values).take(places))
        return columns


def module_set(versions: Iterable[_Version]) -> int:
    """Returns the number of a set of module versions: the first 8 bytes of a SHA-256, equal everywhere.

    Args:
        versions: sorted
    """
    lines = ("".join((name, f",{stamp},{size}\n")) for name, stamp, size in versions)
    return int.from_bytes(hashlib.sha256("".join(lines).encode("utf-8", "replace")).digest()[:8], "big")


def _version(frame: FlatFrame) -> Optional[_Version]:
    return None if frame.module is None else (frame.module.lower(), frame.stamp, frame.size)


def _sorted(known: Iterable[Optional[_Version]]) -> list[_Version]:
    versions = [each for each in known if each is not None]
    return sorted(versions, key=lambda each: (each[0], each[1] or -1, each[2] or -1))


def _numbers(kind: Any, values: array[int]) -> Any:
    """Returns an Arrow array of what an array holds, which is not copied."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _array(table: str, name: str, values: Sequence[object]) -> Any:
    kind = SCHEMAS[table].field(name).type
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        # Half a character of UTF-16 has no form in UTF-8.
        return pa.array([_encodable(value) for value in values], kind)


def _encodable(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _transposed(table: str, rows: Sequence[Sequence[object]]) -> list[Any]:
    """Returns the columns of rows."""
    return [_array(table, name, values) for name, values in zip(SCHEMAS[table].names, zip(*rows))]
