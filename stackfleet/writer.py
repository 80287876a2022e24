# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the tables of one image as Parquet, batch by batch; no batch holds more than BATCH rows.

Stacks share most of their frames. The values of a frame are built once for each distinct frame, and a column
of frames is selected from them by number: no row of frames exists in Python.
"""

from __future__ import annotations

import pathlib
import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import pyarrow as pa

from winstacks.columns import tables, words
from winstacks.stacklist.frames import FrameDetails, NamedFrame
from winstacks.stacklist.stack import StackRecord
from winstacks.stacklist.tables import FRAME, FlatTables

from .columns import ROW, SCHEMAS
from .digests import RowDigest
from .keys import key_rows, number_of
from .layout import FRAMES, IMAGE, KEYS, MODULE_SETS, MODULES, TABLES, TRACES
from .newfiles import ROW_GROUP, new_writer

BATCH = 1 << 14
"""The most stacks of a batch, if they have few frames."""
MOST_FRAMES = 1 << 18
"""The most frames of a batch."""
MOST_DISTINCT = 1 << 15
"""The most distinct frames that are kept for the next batch."""

MOST_LETTERS = 1 << 26
"""The most characters in the texts of a batch: forged paths in an image may have thousands each."""

_STACK = [column.name for column in tables.TRACES].index("Stack")
_FRAME_COLUMNS = tables.FRAMES[FRAME + 1 :]
"""The columns that depend on the frame alone."""

_Version = tuple[str, Optional[int], Optional[int]]
"""Name in lower case, TimeDateStamp, SizeOfImage."""
_NONE = {0}
"""The number of "no module" among the numbers of versions."""


class TableFiles:
    """The rows of an image in a folder of their own, one file for each table, until they are committed."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.paths = table_paths(folder)
        self._digests = {name: RowDigest() for name in TABLES}
        self._writers = {
            name: new_writer(path, _with_row(SCHEMAS[name])) for name, path in self.paths.items()
        }

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows, by table."""
        return {name: digest.rows for name, digest in self._digests.items()}

    def write(self, table: str, columns: Sequence[Any]) -> None:
        """Writes a batch of rows of a table."""
        count = len(columns[0])
        if count:
            first = self._digests[table].rows
            numbers = pa.array(range(first, first + count), ROW.type)
            batch = pa.record_batch([*columns, numbers], schema=_with_row(SCHEMAS[table]))
            self._digests[table].add(batch)
            self._writers[table].write_batch(batch, ROW_GROUP)

    def write_rows(self, table: str, rows: Iterable[Sequence[object]]) -> None:
        """Writes rows of plain Python values; None is an absent value."""
        pending: list[Sequence[object]] = []
        for row in rows:
            pending.append(row)
            if len(pending) == BATCH:
                self.write(table, _transposed(table, pending))
                pending = []
        if pending:
            self.write(table, _transposed(table, pending))

    def close(self) -> dict[str, dict[str, Any]]:
        """Counts the keys of the stacks, and closes all files; returns rows and digest of each table."""
        self._writers.pop(TRACES).close()
        self._writers.pop(IMAGE).close()
        for columns in key_rows(self.paths[TRACES], self.paths[IMAGE]):
            self.write(KEYS, columns)
        for writer in self._writers.values():
            writer.close()
        return {
            name: {"rows": digest.rows, "digest": digest.text()} for name, digest in self._digests.items()
        }


def table_paths(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the files of an image's tables in a folder."""
    return {name: folder / f"{name}.parquet" for name in TABLES}


def _with_row(schema: Any) -> Any:
    return schema.append(ROW)


class StackWriter:
    """Writes stacks, their frames, and the versions of modules that are in their keys."""

    def __init__(self, tables: FlatTables, files: TableFiles) -> None:
        self._tables = tables
        self._files = files
        self._modules: dict[_Version, int] = {}
        self._sets: set[int] = set()
        self._keys: tuple[object, ...] = ()
        self._begin()
        self._forget()

    def add(self, stack: StackRecord) -> None:
        """Adds a stack."""
        places = self._of_frames(stack)
        row = self._tables.trace(stack)
        self._keys = row[:2]
        self._traces.append((*row, self._module_set(stack, places)))
        self._letters += len(str(row[_STACK] or "")) + sum(map(self._sizes.__getitem__, places))
        if places:
            self._depths.append(len(places))
            self._with_frames.append(len(self._traces) - 1)
            self._places.extend(places)
            self._numbers.extend(range(len(stack.frames)))
        full = len(self._traces) >= BATCH or len(self._places) >= MOST_FRAMES
        if full or self._letters >= MOST_LETTERS:
            self._write()

    def finish(self) -> None:
        """Writes the remaining rows, and the versions of modules."""
        self._write()
        rows = ((*self._keys, number, *version) for version, number in self._modules.items())
        self._files.write_rows(MODULES, rows)

    def _begin(self) -> None:
        """Begins a batch."""
        self._traces: list[tuple[object, ...]] = []
        self._with_frames = array("i")
        self._depths = array("i")
        self._places = array("i")
        self._numbers = array("q")
        self._new_sets: list[tuple[object, ...]] = []
        self._letters = 0

    def _forget(self) -> None:
        """Drops the distinct frames."""
        self._distinct: list[tuple[object, ...]] = []
        self._columns: list[Any] = [[] for _ in _FRAME_COLUMNS]
        self._column_rows = 0
        self._known: dict[NamedFrame, int] = {}
        self._versions = array("q")
        self._sizes = array("q")

    def _of_frames(self, stack: StackRecord) -> list[int]:
        """Returns the places of a stack's frames among the distinct frames of the batch."""
        if stack.walked:
            return [self._new(frame, walked) for frame, walked in zip(stack.frames, stack.walked)]
        places = self._known
        try:
            return [places[frame] for frame in stack.frames]
        except KeyError:
            return [self._place(frame) for frame in stack.frames]

    def _place(self, frame: NamedFrame) -> int:
        place = self._known.get(frame)
        if place is None:
            place = self._known[frame] = self._new(frame)
        return place

    def _new(self, frame: NamedFrame, walked: Any = None) -> int:
        values = self._tables.frame(frame, walked)
        self._distinct.append(values)
        self._sizes.append(sum(len(value) for value in values if isinstance(value, str)))
        self._versions.append(self._version(frame.details))
        return len(self._distinct) - 1

    def _module_set(self, stack: StackRecord, places: Sequence[int]) -> Optional[int]:
        """Returns the number of the set of module versions in the key of a stack; None if there are none."""
        if stack.walked:
            places = [
                place
                for number, (place, walked) in enumerate(zip(places, stack.walked))
                if walked.how != words.SCAN and (number or walked.how != words.TRAP)
            ]
        version_numbers = sorted(set(map(self._versions.__getitem__, places)) - _NONE)
        if not version_numbers:
            return None
        number = module_set(version_numbers)
        if number not in self._sets:
            self._sets.add(number)
            self._new_sets.append((*self._keys, number, version_numbers))
        return number

    def _version(self, details: FrameDetails) -> int:
        """Returns the number of the module version of a frame, 0 if it is in no module."""
        if details.module is None:
            return 0
        version = details.module.lower(), details.stamp, details.size
        number = self._modules.get(version)
        if number is None:
            number = self._modules[version] = version_number(*version)
        return number

    def _write(self) -> None:
        """Writes the batch, and begins the next one."""
        self._files.write_rows(MODULE_SETS, self._new_sets)
        if self._traces:
            columns = _transposed(TRACES, self._traces)
            self._files.write(TRACES, columns)
            if self._places:
                self._files.write(FRAMES, self._frame_columns(columns))
        self._begin()
        if len(self._distinct) > MOST_DISTINCT:
            self._forget()

    def _frame_columns(self, traces: Sequence[Any]) -> list[Any]:
        owners = array("i")
        for place, depth in zip(self._with_frames, self._depths):
            owners.extend([place] * depth)
        of_owner = _numbers(pa.int32(), owners)
        names = SCHEMAS[TRACES].names
        columns = [
            traces[names.index(name)].take(of_owner)
            for name in (column.name for column in tables.FRAMES[:FRAME])
        ]
        columns.append(_numbers(pa.int64(), self._numbers))
        places = _numbers(pa.int32(), self._places)
        return [*columns, *(values.take(places) for values in self._columns_of_frames())]

    def _columns_of_frames(self) -> list[Any]:
        """Returns the columns of the distinct frames, and keeps the values of earlier batches."""
        new = self._distinct[self._column_rows :]
        self._column_rows = len(self._distinct)
        if new:
            new_columns = [
                _array(FRAMES, column.name, values) for column, values in zip(_FRAME_COLUMNS, zip(*new))
            ]
            self._columns = [
                pa.chunked_array([old, new_column]).combine_chunks() if len(old) else new_column
                for old, new_column in zip(self._columns, new_columns)
            ]
        return self._columns


def version_number(module: str, stamp: Optional[int], size: Optional[int]) -> int:
    """Returns the number of a module version."""
    return number_of(f"{module},{stamp},{size}".encode("utf-8", "replace"))


def module_set(versions: Sequence[int]) -> int:
    """Returns the number of a set of versions.

    Args:
        versions: numbers of the versions, in ascending order
    """
    return number_of(struct.pack(f"<{len(versions)}q", *versions))


def _numbers(kind: Any, values: array[int]) -> Any:
    """Returns an Arrow array that shares the memory of an array."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _array(table: str, name: str, values: Sequence[object]) -> Any:
    kind = SCHEMAS[table].field(name).type
    try:
        return pa.array(values, kind)
    except (UnicodeEncodeError, pa.ArrowTypeError):
        return pa.array([_as_text(value) for value in values], kind)


def _as_text(value: object) -> object:
    """Returns an address or a register as text, and a text as one that UTF-8 can encode.

    These are numbers of 64 bits, which Delta lacks. UTF-8 has no unpaired UTF-16 surrogate.
    """
    if isinstance(value, int):
        return f"{value:#x}"
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _transposed(table: str, rows: Sequence[Sequence[object]]) -> list[Any]:
    """Returns the columns of rows."""
    return [_array(table, name, values) for name, values in zip(SCHEMAS[table].names, zip(*rows))]
