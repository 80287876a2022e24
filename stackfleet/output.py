# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes what commands print: rows as an aligned table, CSV, JSON lines or Parquet; to a file that the user
names, or to standard output."""

from __future__ import annotations

import contextlib
import csv
import datetime
import io
import itertools
import json
import os
import pathlib
import select
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, Optional

import pyarrow as pa
import pyarrow.parquet as pq

from .planning import WrongUseError

TABLE, CSV, JSONL, PARQUET = "table", "csv", "jsonl", "parquet"
FORMATS = (TABLE, CSV, JSONL, PARQUET)

_ROWS = 4096


WIDTH = 120
"""The most letters of a line of an aligned table that is not wide."""
_LEAST = 12
"""The fewest letters to which a column is cut."""
_PATHS = ("Path",)
"""Columns whose ends are shown: the paths of a folder begin alike."""


def write(table: Any, form: str, stream: IO[bytes], narrow: Sequence[str] = ()) -> None:
    """Writes rows.

    Args:
        table: an Arrow table
        form: one of FORMATS
        narrow: columns of an aligned table, whose lines are cut to WIDTH; empty for all columns as they are

    Raises:
        WrongUseError: the format has no form for a value
    """
    if form == PARQUET:
        # Parquet needs the position in the file, which a pipe lacks.
        buffer = io.BytesIO()
        try:
            pq.write_table(table, buffer, compression="zstd")
        except pa.ArrowException as error:
            raise WrongUseError(f"a column has no form in Parquet, convert it to a text: {error}") from error
        stream.write(buffer.getbuffer())
        return
    if narrow and form == TABLE:
        table = table.select([name for name in narrow if name in table.column_names])
    most = WIDTH if narrow else None
    for line in {TABLE: _aligned(table, most), CSV: _csv(table), JSONL: map(json_line, rows(table))}[form]:
        stream.write(line.encode("utf-8", "replace") + b"\n")
    stream.flush()


def rows(table: Any) -> Iterator[dict[str, Any]]:
    """Yields rows as plain values, reading one batch at a time; see `plain`."""
    return plain(table.to_batches(max_chunksize=_ROWS))


def plain(batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yields rows of record batches as plain values.

    Raises:
        WrongUseError: a value has no plain form, such as a time behind the year 9999
    """
    for batch in batches:
        try:
            values = batch.to_pylist()
        except (OverflowError, ValueError) as error:
            raise WrongUseError(f"a value cannot be shown, convert it to a text: {error}") from error
        yield from values


def json_line(row: dict[str, Any]) -> str:
    """Returns a row as a line of JSON; times are in ISO 8601.

    Letters of all languages stay as they are; characters that move a cursor, reverse a line or end it are
    escaped.
    """
    line = json.dumps(row, default=_json, ensure_ascii=False)
    return _visible(line, lambda item: json.dumps(item)[1:-1])


def visible(text: str) -> str:
    """Returns a text with all unprintable characters escaped, as in Python source."""
    return _visible(text, lambda item: repr(item)[1:-1])


def _visible(text: str, escaped: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else escaped(letter) for letter in text)


def _json(value: object) -> object:
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    return str(value)


def _csv(table: Any) -> Iterator[str]:
    for line in (table.column_names, *([_cell(value) for value in row.values()] for row in rows(table))):
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="").writerow(line)
        yield buffer.getvalue()


def _aligned(table: Any, most: Optional[int] = None) -> Iterator[str]:
    lines = [table.column_names, *([_cell(value) for value in row.values()] for row in rows(table))]
    widths = [max(map(len, column)) for column in zip(*lines)]
    room = sum(widths) if most is None else most - 3 * (len(widths) - 1)
    # The narrowest columns first: each has its share of what is left, and leaves what it does not need.
    for left, place in zip(range(len(widths), 0, -1), sorted(range(len(widths)), key=widths.__getitem__)):
        widths[place] = min(widths[place], max(room // left, _LEAST))
        room -= widths[place]
    columns = [
        _ends(column, width) if name in _PATHS else [_cut(cell, width) for cell in column]
        for name, column, width in zip(table.column_names, zip(*lines), widths)
    ]
    for line in zip(*columns):
        yield " | ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()


def _cut(cell: str, width: int) -> str:
    """Returns the beginning of a cell."""
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"


def _ends(paths: Sequence[str], width: int) -> Iterator[str]:
    """Yields the ends of paths; where several have one end, the part in which they differ is before it."""
    # Of the paths with one end, those most alike are neighbours.
    ordered = sorted(set(paths), key=lambda path: (path[1 - width :], path))
    alike: dict[str, int] = {}
    for pair in itertools.pairwise(ordered):
        if len({path[1 - width :] for path in pair}) == 1:
            differ = (place for place, letters in enumerate(zip(*pair)) if len(set(letters)) > 1)
            letter = next(differ, min(map(len, pair)))
            alike.update({path: max(alike.get(path, 0), letter) for path in pair})
    half = width // 2
    for path in paths:
        if len(path) <= width:
            yield path
        elif path not in alike:
            yield f"…{path[1 - width :]}"
        else:
            letter = alike[path]
            # A folder's name is shown from its beginning, if the letter that differs is then shown, too.
            folder = max(path.rfind("/", 0, letter), path.rfind("\\", 0, letter)) + 1
            start = max(folder, letter + 2 - half)
            yield f"…{path[start : start + half - 1]}…{path[half + 1 - width :]}"


def _cell(value: object) -> str:
    """Returns a value as a cell of text; see `visible`."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return visible(str(value))


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Yields a file for writing; standard output if the path is empty.

    The file gets its name when it is whole: an error leaves no part of it, and an older file as it was.

    Raises:
        WrongUseError: the file cannot be written
        BrokenPipeError: the reader of standard output has closed it
    """
    try:
        with _standard_output() if not path else _file(path) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        where = path or "standard output"
        raise WrongUseError(f"{where} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    if sys.stdout is None:
        raise WrongUseError("standard output cannot be written: it is closed")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError:
        # When the program ends, Python would try again to write what is left, and end with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


@contextlib.contextmanager
def _file(path: str) -> Iterator[IO[bytes]]:
    # A link or a device, such as /dev/stdout, is written itself.
    itself = os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path))
    with open(path, "wb") if itself else whole_file(pathlib.Path(path)) as stream:
        yield stream


@contextlib.contextmanager
def whole_file(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Yields a new file for writing, which then takes a name in one step, also from a link.

    Raises:
        OSError: it cannot be written; what has the name is unchanged
    """
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with unfinished.open("xb") as stream:
            yield stream
        replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


_IN_USE = (5, 32)
"""ERROR_ACCESS_DENIED and ERROR_SHARING_VIOLATION."""
_PAUSES = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Pauses in seconds while another process reads the file."""


def replace(temporary: pathlib.Path, path: pathlib.Path) -> None:
    """Gives a file the name of another in one step; Windows refuses this while another process reads that.

    Raises:
        OSError: the file could not be replaced; it is unchanged
    """
    for pause in _PAUSES:
        try:
            os.replace(temporary, path)
            return
        except OSError as error:
            if getattr(error, "winerror", None) not in _IN_USE:
                raise
        time.sleep(pause)
    os.replace(temporary, path)


class _Patient(io.FileIO):
    """A file that waits for its reader, also where another program has set the file not to wait."""

    def write(self, data: Any) -> int:
        while (written := super().write(data)) is None:
            select.select((), (self,), ())
        return written


class _Messages(_Patient):
    """A file for messages: one that cannot be written is lost, and changes nothing else."""

    def write(self, data: Any) -> int:
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(data)


def take_standard_streams() -> None:
    """Lets the program go on where standard error is a full disk, or a pipe whose reader has stopped.

    Standard output gets a buffer, which writes the whole of a text; PYTHONUNBUFFERED has taken it away.
    """
    if os.name == "nt":
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _text(sys.stdout, _Patient)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _text(sys.stderr, _Messages)


def _text(stream: io.TextIOWrapper, kind: type[_Patient]) -> io.TextIOWrapper:
    file = io.BufferedWriter(kind(stream.fileno(), "w", closefd=False))
    return io.TextIOWrapper(file, stream.encoding, line_buffering=True)


def tell(text: str) -> None:
    """Writes lines to standard error; see `visible`. Further ones are indented: a name may have the text."""
    print("\n  ".join(map(visible, text.split("\n"))), file=sys.stderr)


def say(text: str) -> None:
    """Writes lines to standard output.

    Raises:
        WrongUseError: they cannot be written
        BrokenPipeError: the reader has closed standard output
    """
    with opened("") as stream:
        stream.write(f"{text}\n".encode("utf-8", "backslashreplace"))
